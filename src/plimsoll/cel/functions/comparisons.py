"""Equality and order. The back ends evaluate `==` and `!=` themselves.

The generated code of `compareTo`, `isGreaterThan` and `isLessThan` is here too: it compares quantities and
versions as the operators do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from plimsoll.api.quantity import Quantity
from plimsoll.cel import types
from plimsoll.cel.comparison import Meter, compare
from plimsoll.cel.overloads.costs import STRING_FACTOR, Args, CallCost, CallEstimate, Nodes, measured_size
from plimsoll.cel.overloads.fragments import WALK, CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, Overload, function, overload
from plimsoll.cel.overloads.ranges import ONE, Range
from plimsoll.cel.values import CIDR, IP, URL, NamedFormat, Semver, Value

# -- costs


def _smaller(run: Meter, args: Args, result: Value) -> int:
    return ceil(min(measured_size(args[0]), measured_size(args[1])) * STRING_FACTOR)


def _equality_cost(run: Meter, args: Args, result: Value) -> int:
    return 1 if type(args[0]) in _UNIT_EQUALITY else _smaller(run, args, result)


_UNIT_EQUALITY = frozenset({Quantity, IP, CIDR, NamedFormat, URL, Semver})


def _shorter(args: Nodes) -> CallEstimate:
    shorter = min(args[0].known_size.high, args[1].known_size.high)
    return CallEstimate(Range(min(shorter, 1), shorter).scaled(STRING_FACTOR))


_MAX_FORMAT = 64
_CHEAP_EQUALITY = frozenset(
    {
        types.QUANTITY,
        types.SEMVER,
        types.IP,
        types.CIDR,
        types.AUTHORIZER,
        types.PATH_CHECK,
        types.GROUP_CHECK,
        types.RESOURCE_CHECK,
        types.DECISION,
    }
)


def _equals(args: Nodes) -> CallEstimate:
    left, right = args
    if left.type.name == right.type.name:
        if left.type in _CHEAP_EQUALITY:
            return CallEstimate(ONE)
        if left.type == types.FORMAT:
            return CallEstimate(Range(1, _MAX_FORMAT).scaled(STRING_FACTOR))
        if left.type == types.URL:
            longest = 1 if right.size is None else right.size.high
            return CallEstimate(Range(1, longest).scaled(STRING_FACTOR))
    return _shorter(args)


# -- generated code

_OPERATORS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_MIRRORED = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_", "_!=_": "_!=_"}
_TESTS: dict[str, Callable[[int, int], bool]] = {
    "_<_": lambda a, b: a < b,
    "_<=_": lambda a, b: a <= b,
    "_>_": lambda a, b: a > b,
    "_>=_": lambda a, b: a >= b,
    "_==_": lambda a, b: a == b,
    "_!=_": lambda a, b: a != b,
}
#: Which of -1, 0, 1 pass a test of `compareTo` decides how the two sides are compared.
_BY_SIGNS = {
    (False, False, True): ">",
    (False, True, False): "==",
    (True, False, False): "<",
    (False, True, True): ">=",
    (True, True, False): "<=",
    (True, False, True): "!=",
}


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
        left, right, function = right, left, _MIRRORED[function]
    sign = _OPERATORS[function]
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
        left, right, function = right, left, _MIRRORED[function]
    if left.kind != "signs" or not right.constant or type(right.value) is not int:
        return None
    test = _TESTS[function]
    signs = (test(-1, right.value), test(0, right.value), test(1, right.value))
    operator = _BY_SIGNS.get(signs)
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


def write_signs(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    left, right = _sides(writer, codes)
    return CodeFragment("signs", left, 0, safe=right)


def write_relation(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
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


# -- declarations

_NUMBERS = {"int": "int64", "uint": "uint64", "double": "double"}
_SHORTER = CallCost(measure=_smaller, estimator=_shorter)


def _comparisons(word: str) -> list[Overload | str]:
    """Declare the overloads of an order: same type, and any two of the three number types."""
    result: list[Overload | str] = [f"{word}_bool (bool, bool) -> bool"]
    for left, mine in _NUMBERS.items():
        result.append(f"{word}_{mine} ({left}, {left}) -> bool")
        for right in ("double", "int", "uint"):
            if right != left:
                result.append(f"{word}_{mine}_{_NUMBERS[right]} ({left}, {right}) -> bool")
    for text in ("string", "bytes"):
        result.append(overload(f"{word}_{text} ({text}, {text}) -> bool", cost=_SHORTER))
    return [*result, *(f"{word}_{time} ({time}, {time}) -> bool" for time in ("timestamp", "duration"))]


FUNCTIONS: tuple[Function, ...] = (
    function(
        "_==_",
        "equals (A, A) -> bool",
        cost=CallCost(measure=_equality_cost, estimator=_equals),
        handler=_equality,
    ),
    function("_!=_", "not_equals (A, A) -> bool", cost=_SHORTER, handler=_equality),
    function("_<_", *_comparisons("less"), dynamic=lambda a, b: compare(a, b) < 0, handler=_order),
    function("_<=_", *_comparisons("less_equals"), dynamic=lambda a, b: compare(a, b) <= 0, handler=_order),
    function("_>_", *_comparisons("greater"), dynamic=lambda a, b: compare(a, b) > 0, handler=_order),
    function(
        "_>=_", *_comparisons("greater_equals"), dynamic=lambda a, b: compare(a, b) >= 0, handler=_order
    ),
)
