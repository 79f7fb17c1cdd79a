"""Derived attributes: CEL expressions that compute an attribute of a device (KEP-6080).

`compile_derived` returns a `DerivedAttribute`, which is evaluated for devices: to one value, or to those of a
list. The values are used by constraints only, and evaluated by the interpreter.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from plimsoll.cel.check import check
from plimsoll.cel.compiled_expression import CompiledExpression
from plimsoll.cel.device import CelDevice
from plimsoll.cel.static.environment import Environment
from plimsoll.cel.values import Semver, Value, type_name
from plimsoll.errors import CelRuntimeError

#: A type and a value: values of different types are never equal.
AttributeValue: TypeAlias = "tuple[str, str | int]"


class DerivedValues(NamedTuple):
    """Values of a derived attribute on a device: one, or those of a list."""

    values: tuple[AttributeValue, ...]
    is_list: bool


class DerivedAttribute(CompiledExpression):
    """A compiled expression of a derived attribute."""

    __slots__ = ()

    def evaluate(self, device: CelDevice) -> DerivedValues:
        """Return the value for a device, or the values of a list; raises CelRuntimeError."""
        value = self._program.evaluate_value(device)
        if type(value) is not list:
            return DerivedValues((_read(value, "CEL return type"),), False)
        found = tuple(_read(each, "list element type") for each in value)
        kinds = {kind for kind, _ in found}
        if len(kinds) > 1:
            raise CelRuntimeError(f"elements of a list have different types: {', '.join(sorted(kinds))}")
        return DerivedValues(found, True)


def compile_derived(expression: str, environment: Environment | None = None) -> DerivedAttribute:
    """Compile the expression of a derived attribute; raises CelCompileError."""
    return DerivedAttribute(check(expression, environment or Environment(), derived=True))


def _read(value: Value, what: str) -> AttributeValue:
    match value:
        case bool():
            return "bool", value
        case int():
            return "int", value
        case str():
            return "string", value
        case Semver():
            return "version", value.text
    raise CelRuntimeError(f"unsupported {what}: {type_name(value)}")
