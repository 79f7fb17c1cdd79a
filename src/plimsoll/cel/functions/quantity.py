"""Kubernetes quantities in CEL: `quantity("40Gi")`, comparison, arithmetic, conversion.

DIFF: results of `add` and `sub` are quantities like any other, on either side of `==` and in lists
(test_sum_compares_on_either_side); adding never changes an operand (test_adding_leaves_the_operand_alone).
"""

from __future__ import annotations

import math

from plimsoll.api.quantity import INT64_MAX, NANO, Format, Quantity
from plimsoll.cel.functions.registry import INT, QUANTITY, STRING, Function, Overload, function
from plimsoll.errors import CelRuntimeError, QuantityError


def parse(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise CelRuntimeError(str(error)) from None


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


FUNCTIONS: tuple[Function, ...] = (
    function("quantity", Overload("string_to_quantity", (STRING,), parse)),
    function("isQuantity", Overload("is_quantity_string", (STRING,), is_quantity)),
    function("sign", Overload("quantity_sign", (QUANTITY,), Quantity.sign)),
    function(
        "isGreaterThan",
        Overload("quantity_is_greater_than", (QUANTITY, QUANTITY), lambda a, b: a.nano > b.nano),
    ),
    function(
        "isLessThan", Overload("quantity_is_less_than", (QUANTITY, QUANTITY), lambda a, b: a.nano < b.nano)
    ),
    function("compareTo", Overload("quantity_compare_to", (QUANTITY, QUANTITY), compare)),
    function("asApproximateFloat", Overload("quantity_get_float", (QUANTITY,), as_float)),
    function("asInteger", Overload("quantity_get_int", (QUANTITY,), as_integer)),
    function("isInteger", Overload("quantity_is_integer", (QUANTITY,), lambda q: q.as_int64() is not None)),
    function(
        "add",
        Overload("quantity_add", (QUANTITY, QUANTITY), lambda a, b: a + b),
        Overload("quantity_add_int", (QUANTITY, INT), lambda a, n: a + _whole(n)),
    ),
    function(
        "sub",
        Overload("quantity_sub", (QUANTITY, QUANTITY), lambda a, b: a - b),
        Overload("quantity_sub_int", (QUANTITY, INT), lambda a, n: a - _whole(n)),
    ),
)
