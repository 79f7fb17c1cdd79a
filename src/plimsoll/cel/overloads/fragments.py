"""Source fragments of generated code, their kinds, and the functions the source may call.

A generated function can use only the names defined here and its constants; it has no other builtins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.cel.values import EMPTY_DOMAIN, INT_MAX, INT_MIN, Value

#: Longest string and list for which the cost bound of generated code is valid; longer ones are interpreted.
MAX_PLAIN_SIZE = 4096
MAX_PLAIN_LIST = 64

#: Maximum cost of traversing one string of a plain device.
WALK = -(-MAX_PLAIN_SIZE // 10) + 1


class Unsupported(Exception):
    """The expression can be evaluated only by the interpreter."""


@dataclass(frozen=True, slots=True)
class CodeFragment:
    """A source fragment, the kind of its value, and its maximum cost.

    Kinds: bool, str, int, dyn (an attribute's value), quantity, semver; device, domains, entries (one domain;
    in `safe` a missing domain is empty) and optional (`safe` is the domain, `key` the entry). `value` is set
    for constants.
    """

    kind: str
    text: str = ""
    bound: int = 1
    safe: str = ""
    key: str = ""
    item: str = "dyn"
    constant: bool = False
    value: Value = None


def raise_unsupported() -> bool:
    raise Unsupported


def same(a: Value, b: Value) -> bool:
    """Compare two attribute values for equality; raise unless both have the same plain type."""
    kind = a.__class__
    if kind is not b.__class__ or (kind is not str and kind is not int and kind is not bool):
        raise Unsupported
    return bool(a == b)


def literal(value: Value) -> CodeFragment:
    kind = {bool: "bool", int: "int", str: "str", type(None): "null"}.get(type(value))
    if kind is None or (kind == "int" and not INT_MIN <= value <= INT_MAX):
        raise Unsupported
    return CodeFragment(kind, bound=1, constant=True, value=value)


FIELDS = {
    "driver": CodeFragment("str", "d.driver", 3),
    "allowMultipleAllocations": CodeFragment("bool", "d.allow_multiple", 3),
    "attributes": CodeFragment("domains", "A", 3),
    "capacity": CodeFragment("domains", "C", 3, item="quantity"),
}

#: Names the source may use in addition to its constants.
NAMES: dict[str, Any] = {
    "E": EMPTY_DOMAIN,
    "INT": int,
    "LIST": list,
    "STOP": raise_unsupported,
    "SAME": same,
    "__builtins__": {"len": len, "any": any, "all": all, "Exception": Exception},
}


class SourceWriter:
    """Writer of generated source: allocates names and collects the table of constants."""

    def __init__(self) -> None:
        self._constants: list[Value] = []
        self._temporaries = 0

    def names(self) -> dict[str, Any]:
        return NAMES | {f"k{index}": value for index, value in enumerate(self._constants)}

    def constant(self, value: Value) -> str:
        self._constants.append(value)
        return f"k{len(self._constants) - 1}"

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def condition(self, code: CodeFragment) -> str:
        """Return the source as a condition, with a check if the value may not be a bool."""
        if code.kind == "bool":
            return self.read(code)
        if code.kind != "dyn" or code.constant:
            raise Unsupported
        name = self.temporary()
        return f"(({name} := {code.text}) is True or ({name} is not False and STOP()))"

    def read(self, code: CodeFragment) -> str:
        if not code.constant:
            return code.text
        if type(code.value) is bool:
            return "True" if code.value else "False"
        return self.constant(code.value)

    def indexed(self, operand: CodeFragment, key: CodeFragment) -> CodeFragment:
        if key.kind != "str":
            raise Unsupported
        bound = operand.bound + key.bound + 1
        if operand.kind == "domains":
            text = self.read(key)
            return CodeFragment(
                "entries",
                f"{operand.text}[{text}]",
                bound,
                safe=f"{operand.text}.get({text}, E)",
                item=operand.item,
            )
        if operand.kind == "entries":
            return CodeFragment(operand.item, f"{operand.text}[{self.read(key)}]", bound)
        raise Unsupported


#: Takes the name of a function and the fragments of its arguments; returns source with its maximum cost, or
#: raises `Unsupported`.
Handler: TypeAlias = Callable[[SourceWriter, str, list[CodeFragment]], CodeFragment]
