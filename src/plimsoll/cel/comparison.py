"""CEL equality and order of run-time values.

`equal` is the operator `==`; `same` is the equality that a type defines, which differs for null compared with
the Kubernetes types. Both raise CelRuntimeError where CEL defines no result (a Quantity, Semver, IP, CIDR,
URL or format compared with another type). Traversing nested values is charged to the meter step by step,
because lists that share elements can be far larger than the expression that built them. An int is compared
with a double as a double, as upstream does (2**53 + 1 equals 2.0**53).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plimsoll.api.quantity import Quantity
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import (
    CIDR,
    IP,
    MISSING,
    NONE,
    UNABSORBED,
    URL,
    DomainMap,
    Duration,
    EmptyMessage,
    NamedFormat,
    Optional,
    Semver,
    Timestamp,
    TypeValue,
    Value,
    content,
    find,
    from_key,
)
from plimsoll.errors import CelRuntimeError

#: Meter cost of comparing one element of a container, which takes several times as long as copying it.
_COMPARE_COST = 8


class Meter(Protocol):
    """Budget for work that the cost model does not cover."""

    def spend(self, amount: int) -> None:
        """Subtract `amount` from the budget; raises CelCostError if it is exhausted."""


def equal(a: Value, b: Value, meter: Meter) -> bool:
    """Evaluate `a == b`."""
    if a is None or b is None:
        return a is b
    return same(a, b, meter)


def same(a: Value, b: Value, meter: Meter) -> bool:
    """Return whether `a` equals `b` by the rules of its type."""
    kind = type(a)
    if kind is type(b):
        test = _SAME_TYPE.get(kind)
        if test is not None:
            return test(a, b)
        if kind is list:
            return _same_list(a, b, meter)
        if kind is Optional:
            if a is NONE or b is NONE:
                return a is b
            return same(content(a), content(b), meter)
    if kind in _NUMBERS and type(b) in _NUMBERS:
        return _compare_numbers(a, b) == 0 if not (a != a or b != b) else False
    if kind is dict or kind is DomainMap:
        return (type(b) is dict or type(b) is DomainMap) and _same_map(a, b, meter)
    if kind in _STRICT:
        raise CelRuntimeError("no such overload")
    return False


def _same_list(a: list[Value], b: list[Value], meter: Meter) -> bool:
    if len(a) != len(b):
        return False
    meter.spend(_COMPARE_COST * len(a))
    for x, y in zip(a, b, strict=True):
        try:
            if not equal(x, y, meter):
                return False
        except CelRuntimeError as error:
            if isinstance(error, UNABSORBED):
                raise
            # Upstream: elements that cannot be compared do not make lists differ.
    return True


def _same_map(a: dict[Value, Value], b: dict[Value, Value], meter: Meter) -> bool:
    if len(a) != len(b):
        return False
    meter.spend(_COMPARE_COST * len(a))
    for key, x in a.items():
        y = find(b, from_key(key))
        if y is MISSING:
            return False
        try:
            if not equal(x, y, meter):
                return False
        except CelRuntimeError as error:
            if isinstance(error, UNABSORBED):
                raise
    return True


def contains(items: list[Value], value: Value, meter: Meter) -> bool:
    """Return whether a list contains a value; incomparable items differ."""
    kind = type(value)
    if kind is str:
        meter.spend(len(items) >> 3)
        return any(type(item) is str and item == value for item in items)
    meter.spend(len(items))
    return any(equal_or_false(value, item, meter) for item in items)


def equal_or_false(a: Value, b: Value, meter: Meter) -> bool:
    """Return whether values are equal; errors count as different."""
    try:
        return same(a, b, meter)
    except CelRuntimeError as error:
        if isinstance(error, UNABSORBED):
            raise
        return False


def compare(a: Value, b: Value) -> int:
    """Return -1, 0 or 1; raises CelRuntimeError for types that have no order."""
    kind = type(a)
    if kind is type(b):
        if kind is str or kind is int or kind is bytes or kind is bool:
            return int(a > b) - int(a < b)
        if kind is Duration or kind is Timestamp:
            return int(a.nanos > b.nanos) - int(a.nanos < b.nanos)
    if kind in _NUMBERS and type(b) in _NUMBERS:
        if a != a or b != b:
            raise CelRuntimeError("NaN values cannot be ordered")
        return _compare_numbers(a, b)
    raise CelRuntimeError("no such overload")


def is_comparable(value: Value) -> bool:
    return type(value) in _COMPARABLE


def _compare_numbers(a: int | Uint | float, b: int | Uint | float) -> int:
    x = a.value if isinstance(a, Uint) else a
    y = b.value if isinstance(b, Uint) else b
    if type(x) is not type(y):  # an int compared with a double counts as the nearest double
        x, y = float(x), float(y)
    return (x > y) - (x < y)


_NUMBERS = frozenset({int, Uint, float})
_STRICT = frozenset({Quantity, Semver, IP, CIDR, URL, NamedFormat})
_COMPARABLE = frozenset({bool, int, Uint, float, str, bytes, Duration, Timestamp})

_SAME_TYPE: dict[type, Callable[[Value, Value], bool]] = {
    str: lambda a, b: bool(a == b),
    int: lambda a, b: bool(a == b),
    bool: lambda a, b: a is b,
    float: lambda a, b: bool(a == b),
    Uint: lambda a, b: bool(a.value == b.value),
    bytes: lambda a, b: bool(a == b),
    type(None): lambda a, b: True,
    Timestamp: lambda a, b: bool(a.nanos == b.nanos),
    Duration: lambda a, b: bool(a.nanos == b.nanos),
    TypeValue: lambda a, b: bool(a.name == b.name),
    Quantity: lambda a, b: bool(a.nano == b.nano),
    Semver: lambda a, b: bool(a.key == b.key),
    IP: lambda a, b: bool(a == b),
    CIDR: lambda a, b: bool(a == b),
    URL: lambda a, b: bool(a.text == b.text),
    NamedFormat: lambda a, b: bool(a.name == b.name),
    EmptyMessage: lambda a, b: True,
}
