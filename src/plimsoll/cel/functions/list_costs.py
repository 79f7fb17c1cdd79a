"""Costs of the list extensions: for the lists they create and the pairs of items they compare."""

from __future__ import annotations

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.costs import (
    LIST_COST,
    STRING_FACTOR,
    Args,
    AstNode,
    CallCost,
    CallEstimate,
    Nodes,
)
from plimsoll.cel.overloads.ranges import MAX, ONE, Range, fixed
from plimsoll.cel.syntax.ast import Const
from plimsoll.cel.values import Value, size_of
from plimsoll.errors import CelFatalError

# -- run time


def _allocation_cost(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _result_cost(run: Meter, args: Args, result: Value) -> int:
    return _allocation_cost(1, size_of(result))


def _flatten_cost(run: Meter, args: Args, result: Value) -> int:
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


# -- estimates


def _allocation_estimate(factor: float, size: Range) -> CallEstimate:
    """Return the cost of a call that creates a list of this size."""
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_COST)), size)


def _literal_int(node: AstNode, default: int) -> int:
    value = node.expr.value if isinstance(node.expr, Const) else None
    if type(value) is not int:
        return default
    return max(value, 0)


def _slice_estimate(args: Nodes) -> CallEstimate:
    start = _literal_int(args[1], 0)
    end = _literal_int(args[2], args[0].some_size.high)
    return _allocation_estimate(1, fixed((end - start) & MAX))


def _range_estimate(args: Nodes) -> CallEstimate:
    return _allocation_estimate(1, fixed(_literal_int(args[0], MAX)))


def _reverse_estimate(args: Nodes) -> CallEstimate:
    return _allocation_estimate(1, args[0].some_size)


def _flatten_estimate(args: Nodes) -> CallEstimate:
    depth = _literal_int(args[1], MAX) if len(args) > 1 else 1
    return _allocation_estimate(float(depth), args[0].some_size)


# -- both


def _pairs(items: Value) -> int:
    """Return the cost of comparing every pair of items."""
    if type(items) is not list:
        raise CelFatalError("internal error: sorting needs a list")
    factor = 2.0
    if items and type(items[0]) in (str, bytes):
        factor += STRING_FACTOR
    return _allocation_cost(factor, len(items) * len(items))


def sorting_cost(keys: int, texts: bool) -> CallCost:
    """Return the cost of comparing every pair of items of the argument at an index."""
    factor = 2.0 + STRING_FACTOR if texts else 2.0
    return CallCost(
        measure=lambda run, args, result: _pairs(args[keys]),
        estimator=lambda args: _allocation_estimate(factor, args[keys].some_size.times(args[keys].some_size)),
    )


DISTINCT = sorting_cost(0, texts=False)
FLATTEN = CallCost(measure=_flatten_cost, estimator=_flatten_estimate)
RANGE = CallCost(measure=_result_cost, estimator=_range_estimate, after=True)
REVERSE = CallCost(measure=_result_cost, estimator=_reverse_estimate, after=True)
SLICE = CallCost(measure=_result_cost, estimator=_slice_estimate, after=True)
