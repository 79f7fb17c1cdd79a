"""Cost estimates of the string functions: passes over the text, and how long the result can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plimsoll.cel.overloads.estimates import AstNode, CallEstimate
from plimsoll.cel.overloads.ranges import MAX, Range, fixed, wrapped
from plimsoll.cel.overloads.runtime_costs import STRING_FACTOR
from plimsoll.cel.syntax.ast import Const


def contains_estimate(args: Sequence[AstNode]) -> CallEstimate:
    text, part = args[0].known_size.scaled(STRING_FACTOR), args[1].known_size.scaled(STRING_FACTOR)
    return CallEstimate(text.times(part))


def affix_estimate(args: Sequence[AstNode]) -> CallEstimate:
    """Estimate `startsWith` and `endsWith`, which upstream counts by the part that is looked for."""
    return CallEstimate(args[1].known_size.scaled(STRING_FACTOR))


def format_estimate(args: Sequence[AstNode]) -> CallEstimate:
    return CallEstimate(args[0].known_size.scaled(STRING_FACTOR))


def quote_estimate(args: Sequence[AstNode]) -> CallEstimate:
    size = args[0].known_size
    return CallEstimate(size.scaled(STRING_FACTOR), wrapped(size.low + 2, size.high * 2 + 2))


def replace_estimate(args: Sequence[AstNode]) -> CallEstimate:
    size, old, new = args[0].some_size, args[1].some_size, args[2].some_size
    # How often the text can be replaced, and how much of it can stay, for the longest and shortest result.
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
    quotient = math.ceil(float(value) / float(by))
    # A double of 2**64 does not fit in uint64; the processor's conversion leaves only the top bit.
    return 1 << 63 if quotient > MAX else quotient


def split_estimate(args: Sequence[AstNode]) -> CallEstimate:
    size = args[0].some_size
    parts = size.high
    if len(args) > 2 and isinstance(args[2].expr, Const) and type(args[2].expr.value) is int:
        parts = args[2].expr.value & MAX
    return CallEstimate(size.scaled(2 * STRING_FACTOR), Range(0, parts))


def join_estimate(args: Sequence[AstNode]) -> CallEstimate:
    count = args[0].some_size
    size = count.times(args[0].item_size) if args[0].type.params else fixed(0)
    if len(args) > 1:
        between = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(args[1].some_size.times(between))
    return CallEstimate(size.scaled(STRING_FACTOR), size)
