"""Run-time cost of calls, in units of the cost limit.

Most calls cost 1. String traversals cost a tenth of the length, regular expressions the product of text and
pattern, list functions the elements they touch; each by the size of the actual arguments. A failed argument
counts as size 1. Implements the run-time part of cel-go's cost model with the Kubernetes libraries; the
compile-time estimate is in `static/estimate.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.cel.interpreter.evaluation import Evaluation
from plimsoll.cel.values import (
    CIDR,
    IP,
    NONE,
    URL,
    DomainMap,
    NamedFormat,
    Optional,
    Semver,
    Value,
    from_key,
    size_of,
)
from plimsoll.errors import CelFatalError

LIST_COST = 10
MAP_COST = 30
STRUCT_COST = 40
_STRING = 0.1
_REGEX = 0.25

Args: TypeAlias = tuple[Value, ...]
Measure: TypeAlias = Callable[[Evaluation, Args, Value], int]

#: Stands for an argument or result that failed.
FAILED = object()


@dataclass(frozen=True, slots=True)
class RuntimeCost:
    """The price of a call: a fixed one, or measured on the arguments or, if `after`, on the result."""

    fixed: int = 1
    measure: Measure | None = None
    after: bool = False

    def of(self, run: Evaluation, args: Args, result: Value = FAILED) -> int:
        return self.fixed if self.measure is None else self.measure(run, args, result)


ONE = RuntimeCost()


def call_cost(function: str, overload: str) -> RuntimeCost:
    """Return the cost of a function; `overload` is empty if the checker left several open."""
    return _BY_OVERLOAD_FIRST.get(overload) or _BY_FUNCTION.get(function) or _BY_OVERLOAD.get(overload) or ONE


def measured_size(value: Value) -> int:
    """Return the size of a value; that of an optional is the size of what is in it."""
    while type(value) is Optional and value is not NONE:
        value = value.value
    return size_of(value)


def _text(factor: float) -> RuntimeCost:
    return RuntimeCost(measure=lambda run, args, result: ceil(size_of(args[0]) * factor))


def _twice_text(run: Evaluation, args: Args, result: Value) -> int:
    return ceil(size_of(args[0]) * 2 * _STRING)


def _joined(run: Evaluation, args: Args, result: Value) -> int:
    return ceil(size_of(result) * 2 * _STRING)


def _pattern(run: Evaluation, args: Args, result: Value) -> int:
    return ceil((1.0 + size_of(args[0])) * _STRING) * ceil(size_of(args[1]) * _REGEX)


def _validation(run: Evaluation, args: Args, result: Value) -> int:
    named = args[0]
    if type(named) is not NamedFormat:
        return 1
    return ceil((1.0 + size_of(args[1])) * _STRING) * ceil(named.regex_size * _REGEX)


def _contains(run: Evaluation, args: Args, result: Value) -> int:
    return ceil(size_of(args[0]) * _STRING) * ceil(size_of(args[1]) * _STRING)


def _smaller(run: Evaluation, args: Args, result: Value) -> int:
    return ceil(min(measured_size(args[0]), measured_size(args[1])) * _STRING)


def equality_cost(run: Evaluation, args: Args, result: Value) -> int:
    return 1 if type(args[0]) in _UNIT_EQUALITY else _smaller(run, args, result)


_UNIT_EQUALITY = frozenset({Quantity, IP, CIDR, NamedFormat, URL, Semver})


def _both(run: Evaluation, args: Args, result: Value) -> int:
    return ceil((measured_size(args[0]) + measured_size(args[1])) * _STRING)


def _contains_ip(parsed: bool) -> Measure:
    def measure(run: Evaluation, args: Args, result: Value) -> int:
        size = size_of(args[0])
        return ceil((size + size) * _STRING) + (ceil(size_of(args[1]) * _STRING) if parsed else 0)

    return measure


def _contains_cidr(parsed: bool) -> Measure:
    def measure(run: Evaluation, args: Args, result: Value) -> int:
        size = size_of(args[0])
        cost = ceil((size + size) * _STRING) + ceil(size * _STRING) + 1
        return cost + (ceil(size_of(args[1]) * _STRING) if parsed else 0)

    return measure


def _label_selector(run: Evaluation, args: Args, result: Value) -> int:
    """Return the cost of parsing a selector: its text, and a requirement for every second character."""
    size = size_of(args[1])
    return LIST_COST + ceil(size * _STRING) + ceil(ceil(size * 0.5) * (LIST_COST + STRUCT_COST))


# -- lists


def _traversal(run: Evaluation, args: Args, result: Value) -> int:
    """Return the cost of walking a value as a tree of data."""
    total = 0
    pending = [args[0]] if args else []
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is list:
            run.spend(len(value))
            pending.extend(value)
        elif kind is dict or kind is DomainMap:
            run.spend(2 * len(value))
            for key, item in value.items():
                pending += (from_key(key), item)
        elif kind is str:
            total += int(len(value.encode()) * _STRING)
        elif kind is bytes:
            total += int(len(value) * _STRING)
        else:
            total += 1
    return total


def _allocated(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _output(run: Evaluation, args: Args, result: Value) -> int:
    return _allocated(1, size_of(result))


def _flattened(run: Evaluation, args: Args, result: Value) -> int:
    depth = 1 if len(args) == 1 else args[1]
    if type(depth) is not int:
        raise CelFatalError("internal error: flatten depth is not an int")
    cost = (_as_uint64(size_of(args[0]) * float(depth)) + 1 + LIST_COST) % 2**64
    return cost if cost < 2**63 else cost - 2**64


def _as_uint64(number: float) -> int:
    """Convert a double to uint64 as the hardware does: wrapping below zero, zero above the maximum."""
    if number < -(2.0**63) or 2.0**63 <= number < 2.0**64:
        return 2**63 if number < 0 else int(number)
    return 0 if number >= 2.0**64 else int(number) % 2**64


def _self_compared(index: int) -> Measure:
    def measure(run: Evaluation, args: Args, result: Value) -> int:
        items = args[index]
        if type(items) is not list:
            raise CelFatalError("internal error: sorting needs a list")
        factor = 2.0
        if items and type(items[0]) in (str, bytes):
            factor += _STRING
        return _allocated(factor, len(items) * len(items))

    return measure


def _sets(factor: int) -> Measure:
    return lambda run, args, result: 1 + size_of(args[0]) * size_of(args[1]) * factor


_SORTABLE = (
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
)

_BY_OVERLOAD_FIRST: dict[str, RuntimeCost] = {
    "list_slice": RuntimeCost(measure=_output, after=True),
    "lists_range": RuntimeCost(measure=_output, after=True),
    "list_reverse": RuntimeCost(measure=_output, after=True),
    "list_flatten": RuntimeCost(measure=_flattened),
    "list_flatten_int": RuntimeCost(measure=_flattened),
    "list_distinct": RuntimeCost(measure=_self_compared(0)),
    "list_sets_contains_list": RuntimeCost(measure=_sets(1)),
    "list_sets_intersects_list": RuntimeCost(measure=_sets(1)),
    "list_sets_equivalent_list": RuntimeCost(measure=_sets(2)),
    "cidr_ip": ONE,
    "cidr_contains_ip_string": RuntimeCost(measure=_contains_ip(True)),
    "cidr_contains_cidr_string": RuntimeCost(measure=_contains_cidr(True)),
    **{f"list_{name}_sort": RuntimeCost(measure=_self_compared(0)) for name in _SORTABLE},
    **{f"list_{name}_sortByAssociatedKeys": RuntimeCost(measure=_self_compared(1)) for name in _SORTABLE},
}

_WALK = RuntimeCost(measure=_traversal)
_TEXT = _text(_STRING)
_TWICE = RuntimeCost(measure=_twice_text)
_MATCH = RuntimeCost(measure=_pattern)

_BY_FUNCTION: dict[str, RuntimeCost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _WALK),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _TEXT),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _TEXT),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _TWICE),
    "check": RuntimeCost(350_000),
    "fieldSelector": RuntimeCost(measure=_label_selector),
    "labelSelector": RuntimeCost(measure=_label_selector),
    "join": RuntimeCost(measure=_joined, after=True),
    "find": _MATCH,
    "findAll": _MATCH,
    "containsIP": RuntimeCost(measure=_contains_ip(False)),
    "containsCIDR": RuntimeCost(measure=_contains_cidr(False)),
    "validate": RuntimeCost(measure=_validation),
    "_==_": RuntimeCost(measure=equality_cost),
    "_!=_": RuntimeCost(measure=_smaller),
}

_SMALLER = RuntimeCost(measure=_smaller)
_BY_OVERLOAD: dict[str, RuntimeCost] = {
    **dict.fromkeys(
        ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote"),
        _TEXT,
    ),
    "string_format": _TEXT,
    "in_list": RuntimeCost(measure=lambda run, args, result: measured_size(args[1])),
    **{
        f"{test}_{kind}": _SMALLER
        for test in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "add_string": RuntimeCost(measure=_both),
    "add_bytes": RuntimeCost(measure=_both),
    "matches_string": _MATCH,
    "contains_string": RuntimeCost(measure=_contains),
}
