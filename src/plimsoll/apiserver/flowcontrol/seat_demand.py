"""Seat demand of a priority level over time, and the seats that levels borrow from each other.

Every few seconds the limits are computed anew from the demand: a level lends the part of its nominal seats
that its `lendablePercent` allows while it does not need them, and borrows up to its `borrowingLimitPercent`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.apiserver.flowcontrol.configuration import PriorityLevel

#: Upstream's interval, and the weight of the earlier demand after one: half is forgotten in five minutes.
ADJUSTMENT_SECONDS = 10.0
_SMOOTHING = 0.977
#: Targets are not smaller, so that shares can be divided by them.
_LEAST_TARGET = 0.001


class SeatDemand:
    """Time integral of the seats that requests hold or wait for."""

    __slots__ = ("_highest", "_last", "_seats", "_squares", "_start", "_sum")

    def __init__(self, now: float) -> None:
        self._seats = self._highest = 0
        self._start = self._last = now
        self._sum = self._squares = 0.0

    def set(self, seats: int, now: float) -> None:
        before = self._seats
        area = before * (now - self._last)
        self._sum += area
        self._squares += before * area
        self._last = now
        self._seats = seats
        if seats > self._highest:
            self._highest = seats

    def reset(self, now: float) -> DemandSample:
        """Return the figures since the last reset."""
        self.set(self._seats, now)
        elapsed = now - self._start
        average = self._sum / elapsed if elapsed > 0 else 0.0
        variance = self._squares / elapsed - average * average if elapsed > 0 else 0.0
        sample = DemandSample(elapsed, average, math.sqrt(max(variance, 0.0)), self._highest)
        self._start, self._sum, self._squares, self._highest = now, 0.0, 0.0, self._seats
        return sample


@dataclass(frozen=True, slots=True)
class DemandSample:
    """Demand in an interval: its length in seconds, the average, standard deviation and maximum of seats."""

    seconds: float = 0.0
    average: float = 0.0
    deviation: float = 0.0
    highest: int = 0


@dataclass(slots=True)
class SeatLimits:
    """Limits of a level: nominal, the lowest and highest it can have by lending and borrowing, and the
    current one; and the demand that this was computed from.
    """

    nominal: int = 0
    lower: int = 0
    upper: int = 0
    current: int = 0
    smoothed: float = 0.0
    target: float = 0.0
    sample: DemandSample = field(default_factory=DemandSample)

    def configure(self, level: PriorityLevel, total: int, shares: int) -> None:
        """Set the limits of a level out of `total` seats, by its part of all shares."""
        self.nominal = -(-total * level.shares // shares)  # rounded up, as upstream does
        self.lower = self.nominal - _round(self.nominal * level.lendable_percent / 100)
        percent = level.borrowing_percent
        borrowing = total if percent is None else _round(self.nominal * percent / 100)
        self.upper = self.nominal + borrowing

    def note(self, sample: DemandSample) -> None:
        self.sample = sample
        if sample.seconds > 0:
            envelope = sample.average + sample.deviation
            self.smoothed = max(envelope, _SMOOTHING * self.smoothed + (1 - _SMOOTHING) * envelope)


def adjust_limits(limits: Mapping[str, SeatLimits], exempt: str) -> float:
    """Compute the current limits of all levels from their demand; return the fair fraction of their targets.

    The level `exempt` is not limited; if it leaves too little, the others get less than they need.
    """
    total = remaining = sum(each.nominal for each in limits.values())
    others: list[SeatLimits] = []
    for name, each in limits.items():
        if name == exempt:
            each.current = max(each.lower, each.sample.highest)
            remaining -= each.current
        else:
            others.append(each)
    needed = [max(each.lower, min(each.nominal, each.sample.highest)) for each in others]
    least, wanted = sum(each.lower for each in others), sum(needed)
    for each, need in zip(others, needed, strict=True):
        each.target = max(need, each.smoothed)
    if remaining <= wanted:
        part = (remaining - least) / (wanted - least) if remaining > least else 0.0
        for each, need in zip(others, needed, strict=True):
            each.current = each.lower + _round((need - each.lower) * part)
        return 0.0
    bounds = [
        (float(need), float(each.upper), each.target) for each, need in zip(others, needed, strict=True)
    ]
    seats, fraction = share_seats(total, bounds)
    for each, share in zip(others, seats, strict=True):
        each.current = _round(share)
    return fraction


def share_seats(total: float, items: Sequence[tuple[float, float, float]]) -> tuple[list[float], float]:
    """Share seats in proportion to targets, within bounds; return the shares and the common factor.

    An item is (lower bound, upper bound, target); the bounds must allow the total. Each share is the factor
    times the target, or the bound nearest to that.
    """
    bounded = [(low, high, max(target, _LEAST_TARGET)) for low, high, target in items]

    def shares(factor: float) -> list[float]:
        return [min(max(factor * target, low), high) for low, high, target in bounded]

    # The sum of the shares grows with the factor, linearly between the points where a bound begins or ends.
    points = sorted({edge / target for low, high, target in bounded for edge in (low, high)})
    before = points[0] if points else 0.0
    for after in points:
        reached = sum(shares(after))
        if reached >= total:
            start = sum(shares(before))
            if reached > start:
                before += (after - before) * (total - start) / (reached - start)
            return shares(before), before
        before = after
    return shares(before), before


def _round(value: float) -> int:
    """Round half up, as upstream does for amounts that are not negative."""
    return math.floor(value + 0.5)
