"""Kubernetes quantities in CEL: `quantity("40Gi")`, comparison, arithmetic, conversion.

DIFF: results of `add` and `sub` are quantities like any other, on either side of `==` and in lists
(test_sum_compares_on_either_side); adding never changes an operand
(test_addition_does_not_change_the_operand).
"""

from __future__ import annotations

import math
import re

from plimsoll.api.quantity import INT64_MAX, NANO, Format, Quantity
from plimsoll.cel.functions.comparisons import write_relation, write_signs
from plimsoll.cel.overloads.costs import PARSING
from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.errors import CelRuntimeError, QuantityError


def parse(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError:
        well_formed = _WELL_FORMED.fullmatch(text)
        raise CelRuntimeError(_UNKNOWN_SUFFIX if well_formed else _MALFORMED) from None


_WELL_FORMED = re.compile("([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_MALFORMED = f"quantities must match the regular expression '^{_WELL_FORMED.pattern}$'"
_UNKNOWN_SUFFIX = "unable to parse quantity's suffix"


def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def compare(a: Quantity, b: Quantity) -> int:
    return (a.nano > b.nano) - (a.nano < b.nano)


def as_integer(value: Quantity) -> int:
    number = value.as_int64()
    if number is None:
        raise CelRuntimeError("cannot convert value to integer")
    return number


def as_float(value: Quantity) -> float:
    """Return the value as a double: an integer times a power of ten, each rounded, as upstream does."""
    scale = value.scale
    if scale is None:
        scale = _decimal_scale(value)
    number = value.nano // 10 ** (scale + 9) if scale > -9 else value.nano
    try:
        base = float(number)
    except OverflowError:
        base = math.copysign(math.inf, number)
    if scale == 0:
        return base
    return base * _power_of_ten(scale)


def _power_of_ten(exponent: int) -> float:
    return float(f"1e{exponent}") if exponent <= 308 else math.inf


def _decimal_scale(value: Quantity) -> int:
    """Return the exponent of upstream's big decimal: nano-units, except for zero and the binary maximum."""
    return 0 if value.nano == 0 or abs(value.nano) == INT64_MAX * NANO else -9


def _whole(number: int) -> Quantity:
    return Quantity.of(number, Format.DECIMAL_EXPONENT)


# -- generated code


def _quantity(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text = codes[0]
    if text.kind != "str" or not text.constant:
        raise Unsupported
    try:
        return CodeFragment("quantity", bound=len(text.value), constant=True, value=parse(text.value))
    except CelRuntimeError:
        raise Unsupported from None


def _as_integer(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "quantity" or codes[0].constant:
        raise Unsupported
    return CodeFragment("int", f"{writer.constant(as_integer)}({codes[0].text})", 0)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "quantity", "string_to_quantity (string) -> Quantity", call=parse, cost=PARSING, handler=_quantity
    ),
    function("isQuantity", "is_quantity_string (string) -> bool", call=is_quantity, cost=PARSING),
    function("sign", "quantity_sign (Quantity) -> int", call=Quantity.sign),
    function(
        "isGreaterThan",
        "quantity_is_greater_than Quantity.(Quantity) -> bool",
        call=lambda a, b: a.nano > b.nano,
        handler=write_relation,
    ),
    function(
        "isLessThan",
        "quantity_is_less_than Quantity.(Quantity) -> bool",
        call=lambda a, b: a.nano < b.nano,
        handler=write_relation,
    ),
    function(
        "compareTo", "quantity_compare_to Quantity.(Quantity) -> int", call=compare, handler=write_signs
    ),
    function("asApproximateFloat", "quantity_get_float Quantity.() -> double", call=as_float),
    function("asInteger", "quantity_get_int Quantity.() -> int", call=as_integer, handler=_as_integer),
    function("isInteger", "quantity_is_integer Quantity.() -> bool", call=lambda q: q.as_int64() is not None),
    function(
        "add",
        overload("quantity_add Quantity.(Quantity) -> Quantity", lambda a, b: a + b),
        overload("quantity_add_int Quantity.(int) -> Quantity", lambda a, n: a + _whole(n)),
    ),
    function(
        "sub",
        overload("quantity_sub Quantity.(Quantity) -> Quantity", lambda a, b: a - b),
        overload("quantity_sub_int Quantity.(int) -> Quantity", lambda a, n: a - _whole(n)),
    ),
)
