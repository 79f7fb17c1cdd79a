"""Calls in generated code: comparisons and library functions, one handler each.

A handler takes the fragments of its arguments and returns source with its maximum cost; it raises
`Unsupported` for what it cannot turn into safe source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from plimsoll.cel.codegen.fragments import (
    ARITHMETIC,
    BY_SIGNS,
    MIRRORED,
    OPERATORS,
    PARTS,
    TESTS,
    WALK,
    CodeFragment,
    SourceWriter,
    Unsupported,
)
from plimsoll.cel.functions import semver
from plimsoll.cel.functions.attributes import MAX_VALUES
from plimsoll.cel.functions.quantity import parse as parse_quantity
from plimsoll.cel.functions.regex import compile_pattern
from plimsoll.cel.values import INT_MAX
from plimsoll.errors import CelRuntimeError

# -- calls


def _negation(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    return CodeFragment("bool", f"(not {writer.condition(codes[0])})", 0)


def _choice(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    condition = writer.condition(codes[0])
    kinds = {codes[1].kind, codes[2].kind}
    if not kinds <= {"bool", "str", "int", "dyn"}:
        raise Unsupported
    kind = kinds.pop() if len(kinds) == 1 else "dyn"
    return CodeFragment(kind, f"({writer.read(codes[1])} if {condition} else {writer.read(codes[2])})", 0)


def _index(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    return replace(writer.indexed(codes[0], codes[1]), bound=0)


def _optional(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    entries, key = codes
    if entries.kind != "entries" or key.kind != "str":
        raise Unsupported
    return CodeFragment("optional", "", 0, safe=entries.safe, key=writer.read(key), item=entries.item)


def _or_value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    optional, other = codes
    if optional.kind != "optional" or not other.constant:
        raise Unsupported
    # What reads as dyn is taken to be a kind of value that attributes have, so the default must be too.
    kinds = ("str", "int", "bool", "semver") if optional.item == "dyn" else (optional.item,)
    if other.kind not in kinds:
        raise Unsupported
    return CodeFragment(optional.item, f"{optional.safe}.get({optional.key}, {writer.read(other)})", 0)


def _has_value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "optional":
        raise Unsupported
    return CodeFragment("bool", f"({codes[0].key} in {codes[0].safe})", 0)


def _value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "optional":
        raise Unsupported
    return CodeFragment(codes[0].item, f"{codes[0].safe}[{codes[0].key}]", 0)


# -- comparison


def _equality(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if (order := _compare_to(writer, function, codes)) is not None:
        return order
    left, right = codes
    if left.constant:
        left, right = right, left
    text = _equal(writer, left, right)
    return CodeFragment("bool", text if function == "_==_" else f"(not {text})", WALK)


def _equal(writer: SourceWriter, left: CodeFragment, right: CodeFragment) -> str:
    kinds = (left.kind, right.kind)
    if left.constant or "signs" in kinds:
        raise Unsupported
    if kinds == ("quantity", "quantity"):
        return f"({_nano(writer, left)} == {_nano(writer, right)})"
    if right.constant:
        return _equals_constant(writer, left, right)
    if kinds in (("dyn", "dyn"), ("dyn", "int"), ("int", "dyn"), ("dyn", "bool"), ("bool", "dyn")):
        return f"SAME({left.text}, {right.text})"
    if kinds in (("str", "str"), ("dyn", "str"), ("str", "dyn"), ("int", "int")):
        return f"({left.text} == {right.text})"
    raise Unsupported


def _equals_constant(writer: SourceWriter, left: CodeFragment, right: CodeFragment) -> str:
    value = right.value
    if left.kind == "bool" and type(value) is bool:
        return left.text if value else f"(not {left.text})"
    if left.kind == "dyn" and right.kind == "semver":
        return f"({left.text}.key == {writer.constant(value.key)})"
    if left.kind == "dyn" and type(value) is bool:
        test = writer.condition(left)
        return test if value else f"(not {test})"
    if left.kind in ("dyn", "str") and type(value) is str:
        return f"({left.text} == {writer.constant(value)})"
    if left.kind == "dyn" and right.kind == "null":
        return f"({left.text} is None)"
    if type(value) is int and left.kind == "int":
        return f"({left.text} == {writer.constant(value)})"
    if type(value) is int and left.kind == "dyn":
        if value not in (0, 1):
            return f"({left.text} == {writer.constant(value)})"
        name = writer.temporary()  # to Python, 0 and 1 equal false and true
        return f"(({name} := {left.text}) == {writer.constant(value)} and {name}.__class__ is INT)"
    raise Unsupported


def _order(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if (order := _compare_to(writer, function, codes)) is not None:
        return order
    left, right = codes
    if left.constant:
        left, right, function = right, left, MIRRORED[function]
    sign = OPERATORS[function]
    if right.constant and type(right.value) is int and left.kind == "dyn":
        name = writer.temporary()
        test = f"((({name} := {left.text}).__class__ is INT or STOP()) and {name} {sign} "
        return CodeFragment("bool", f"{test}{writer.constant(right.value)})", 0)
    allowed = {("int", "int"), ("str", "str"), ("dyn", "str"), ("str", "dyn")}
    if (left.kind, right.kind) not in allowed or left.constant:
        raise Unsupported
    return CodeFragment("bool", f"({left.text} {sign} {writer.read(right)})", WALK)


def _compare_to(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment | None:
    """Compare the operands of `a.compareTo(b) >= 0` directly."""
    left, right = codes
    if right.kind == "signs":
        left, right, function = right, left, MIRRORED[function]
    if left.kind != "signs" or not right.constant or type(right.value) is not int:
        return None
    test = TESTS[function]
    signs = (test(-1, right.value), test(0, right.value), test(1, right.value))
    operator = BY_SIGNS.get(signs)
    if operator is None:  # true or false for every result
        raise Unsupported
    return CodeFragment("bool", f"({left.text} {operator} {left.safe})", 0)


def _sides(writer: SourceWriter, codes: list[CodeFragment]) -> tuple[str, str]:
    left, right = codes
    if left.kind == right.kind == "quantity":
        return _nano(writer, left), _nano(writer, right)
    if {left.kind, right.kind} <= {"semver", "dyn"}:
        return _version_key(writer, left), _version_key(writer, right)
    raise Unsupported


def _signs(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    left, right = _sides(writer, codes)
    return CodeFragment("signs", left, 0, safe=right)


def _relation(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    left, right = _sides(writer, codes)
    return CodeFragment("bool", f"({left} {'>' if function == 'isGreaterThan' else '<'} {right})", 0)


def _nano(writer: SourceWriter, code: CodeFragment) -> str:
    return writer.constant(code.value.nano) if code.constant else f"{code.text}.nano"


def _version_key(writer: SourceWriter, code: CodeFragment) -> str:
    if code.kind == "semver":
        return writer.constant(code.value.key)
    if code.constant:
        raise Unsupported
    return f"{code.text}.key"


# -- library functions


def _quantity(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text = codes[0]
    if text.kind != "str" or not text.constant:
        raise Unsupported
    try:
        return CodeFragment(
            "quantity", bound=len(text.value), constant=True, value=parse_quantity(text.value)
        )
    except CelRuntimeError:
        raise Unsupported from None


def _semver(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if any(not code.constant for code in codes) or codes[0].kind != "str":
        raise Unsupported
    text, normal = codes[0].value, len(codes) > 1 and codes[1].value
    if type(normal) is not bool:
        raise Unsupported
    try:
        return CodeFragment("semver", bound=len(text), constant=True, value=semver.parse_with(text, normal))
    except CelRuntimeError:
        raise Unsupported from None


def _as_integer(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "quantity" or codes[0].constant:
        raise Unsupported
    return CodeFragment("int", f"WHOLE({codes[0].text})", 0)


def _version_part(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "dyn" or codes[0].constant:
        raise Unsupported
    name = writer.temporary()
    part = f"({name} := {codes[0].text}.key[{PARTS[function]}])"
    return CodeFragment("int", f"({part} if {name} <= {writer.constant(INT_MAX)} else STOP())", 0)


def _size(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    code = codes[0]
    if code.constant or code.kind not in ("dyn", "str", "entries", "domains"):
        raise Unsupported
    return CodeFragment("int", f"len({code.safe or code.text})", 0)


def _string_test(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text, part = codes
    if text.constant or text.kind not in ("dyn", "str") or part.kind != "str":
        raise Unsupported
    if function == "contains":
        source = f"({text.text}.find({writer.read(part)}) >= 0)"
        bound = WALK * (len(part.value) + 1 if part.constant else WALK)
        return CodeFragment("bool", source, bound)
    return CodeFragment("bool", f"{text.text}.{function.lower()}({writer.read(part)})", WALK)


def _matches(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text, pattern = codes
    if text.constant or text.kind not in ("dyn", "str") or not pattern.constant or pattern.kind != "str":
        raise Unsupported
    search = writer.constant(compile_pattern(pattern.value).search)
    bound = WALK * (len(pattern.value) + 1)
    return CodeFragment("bool", f"({search}({text.text}.encode()) is not None)", bound)


def _includes(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    target, value = codes
    if target.kind != "dyn" or target.constant or not value.constant or value.kind != "str":
        raise Unsupported
    name, key = writer.temporary(), writer.constant(value.value)
    listed = f"(len({name}) <= {MAX_VALUES} or STOP()) and {key} in {name}"
    source = f"(({listed}) if ({name} := {target.text}).__class__ is LIST else {name} == {key})"
    return CodeFragment("bool", source, 0)


def _ascii(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].constant or codes[0].kind not in ("dyn", "str"):
        raise Unsupported
    table = "LOWER" if function == "lowerAscii" else "UPPER"
    return CodeFragment("str", f"{codes[0].text}.translate({table})", WALK)


def _arithmetic(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if not {code.kind for code in codes} <= {"int", "dyn"} or all(code.constant for code in codes):
        raise Unsupported
    name = ARITHMETIC[function][0]
    return CodeFragment("int", f"{name}({writer.read(codes[0])}, {writer.read(codes[1])})", WALK)


def _dyn(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "dyn":
        raise Unsupported
    return replace(codes[0], bound=0)


_Handler: TypeAlias = Callable[[SourceWriter, str, list[CodeFragment]], CodeFragment]
HANDLERS: dict[tuple[str, int], _Handler] = {
    ("!_", 1): _negation,
    ("_?_:_", 3): _choice,
    ("_[_]", 2): _index,
    ("_?._", 2): _optional,
    ("_[?_]", 2): _optional,
    ("orValue", 2): _or_value,
    ("hasValue", 1): _has_value,
    ("value", 1): _value,
    ("_==_", 2): _equality,
    ("_!=_", 2): _equality,
    **{(name, 2): _order for name in OPERATORS},
    ("compareTo", 2): _signs,
    ("isGreaterThan", 2): _relation,
    ("isLessThan", 2): _relation,
    ("quantity", 1): _quantity,
    ("semver", 1): _semver,
    ("semver", 2): _semver,
    ("asInteger", 1): _as_integer,
    **{(name, 1): _version_part for name in PARTS},
    ("size", 1): _size,
    ("startsWith", 2): _string_test,
    ("endsWith", 2): _string_test,
    ("contains", 2): _string_test,
    ("matches", 2): _matches,
    ("includes", 2): _includes,
    ("lowerAscii", 1): _ascii,
    ("upperAscii", 1): _ascii,
    **{(name, 2): _arithmetic for name in ARITHMETIC},
    ("dyn", 1): _dyn,
}
