"""Sizes and costs as ranges of unsigned 64-bit numbers.

Arithmetic of the cost estimate: sums and products saturate at the largest uint64, fractions are rounded up
through a double. Tests compare estimates with Kubernetes' numbers, so the rounding must be the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MAX = (1 << 64) - 1


class Range(NamedTuple):
    low: int
    high: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.low + other.low, MAX), min(self.high + other.high, MAX))

    def times(self, other: Range) -> Range:
        return Range(min(self.low * other.low, MAX), min(self.high * other.high, MAX))

    def scaled(self, factor: float) -> Range:
        return Range(_scale(self.low, factor), _scale(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def fixed(value: int) -> Range:
    return Range(value, value)


ZERO = fixed(0)
ONE = fixed(1)
UNKNOWN = Range(0, MAX)
# The neutral element of `union`.
EMPTY_RANGE = Range(MAX, 0)


def wrapped(low: int, high: int) -> Range:
    """Return a range whose bounds overflow silently, as plain uint64 arithmetic does."""
    return Range(low & MAX, high & MAX)


def _scale(value: int, factor: float) -> int:
    product = float(value) * factor
    if product >= 2.0**64:
        return MAX
    return math.ceil(product)
