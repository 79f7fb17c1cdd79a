"""Costs of the string functions: passes over the text, and the maximum size of the result."""

from __future__ import annotations

from math import ceil

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.costs import (
    STRING_FACTOR,
    Args,
    CallCost,
    CallEstimate,
    Nodes,
    measure_text,
    measure_text_twice,
)
from plimsoll.cel.overloads.ranges import MAX, Range, fixed, wrapped
from plimsoll.cel.syntax.ast import Const
from plimsoll.cel.values import Value, size_of


def _contains_estimate(args: Nodes) -> CallEstimate:
    text, part = args[0].known_size.scaled(STRING_FACTOR), args[1].known_size.scaled(STRING_FACTOR)
    return CallEstimate(text.times(part))


def _affix_estimate(args: Nodes) -> CallEstimate:
    """Estimate `startsWith` and `endsWith`, which upstream charges by the length of the argument."""
    return CallEstimate(args[1].known_size.scaled(STRING_FACTOR))


def _format_estimate(args: Nodes) -> CallEstimate:
    return CallEstimate(args[0].known_size.scaled(STRING_FACTOR))


def _quote_estimate(args: Nodes) -> CallEstimate:
    size = args[0].known_size
    return CallEstimate(size.scaled(STRING_FACTOR), wrapped(size.low + 2, size.high * 2 + 2))


def _replace_estimate(args: Nodes) -> CallEstimate:
    size, old, new = args[0].some_size, args[1].some_size, args[2].some_size
    # Number of replacements, and the unchanged part of the text, for the longest and the shortest result.
    if old.low == 0:
        most, kept_most = min(size.high + 1, MAX), size.high
    elif new.high <= old.low:
        most, kept_most = 0, size.high
    else:
        most, kept_most = _ceil_divide(size.high, old.low), 0
    if old.high == 0:
        least, kept_least = min(size.low + 1, MAX), size.low
    elif old.high <= new.low:
        least, kept_least = 0, size.low
    else:
        least, kept_least = _ceil_divide(size.low, old.high), 0
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return CallEstimate(size.scaled(2 * STRING_FACTOR), result)


def _ceil_divide(value: int, by: int) -> int:
    quotient = ceil(float(value) / float(by))
    # A double of 2**64 does not fit in uint64; the processor converts it to 2**63.
    return 1 << 63 if quotient > MAX else quotient


def _split_estimate(args: Nodes) -> CallEstimate:
    size = args[0].some_size
    parts = size.high
    if len(args) > 2 and isinstance(args[2].expr, Const) and type(args[2].expr.value) is int:
        parts = args[2].expr.value & MAX
    return CallEstimate(size.scaled(2 * STRING_FACTOR), Range(0, parts))


def _join_estimate(args: Nodes) -> CallEstimate:
    count = args[0].some_size
    size = count.times(args[0].item_size) if args[0].type.params else fixed(0)
    if len(args) > 1:
        between = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(args[1].some_size.times(between))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _contains_cost(run: Meter, args: Args, result: Value) -> int:
    return ceil(size_of(args[0]) * STRING_FACTOR) * ceil(size_of(args[1]) * STRING_FACTOR)


def _join_cost(run: Meter, args: Args, result: Value) -> int:
    return ceil(size_of(result) * 2 * STRING_FACTOR)


AFFIX = CallCost(measure=measure_text, estimator=_affix_estimate)
CONTAINS = CallCost(measure=_contains_cost, estimator=_contains_estimate)
FORMAT = CallCost(measure=measure_text, estimator=_format_estimate)
JOIN = CallCost(measure=_join_cost, estimator=_join_estimate, after=True)
QUOTE = CallCost(measure=measure_text, estimator=_quote_estimate)
REPLACE = CallCost(measure=measure_text_twice, estimator=_replace_estimate)
SPLIT = CallCost(measure=measure_text_twice, estimator=_split_estimate)
