"""Thinning of samples with age: which ones are kept. Pure.

Each tier keeps one sample per interval up to an age. The first sample of an interval is kept, so that a
sample that was kept once does not give way to a later one. Intervals are multiples of each other and aligned:
the first sample of a long interval is also the first of a short one, and what the long interval needs has not
been dropped before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tier:
    """One sample per `interval` seconds for samples up to `age` seconds old."""

    age: int
    interval: int


MINUTE, HOUR, DAY = 60, 3600, 86400
#: 120 samples of two hours, 276 of two days, 288 of two weeks, 304 of 90 days.
TIERS = (Tier(2 * HOUR, MINUTE), Tier(2 * DAY, 10 * MINUTE), Tier(14 * DAY, HOUR), Tier(90 * DAY, 6 * HOUR))


def thin(times: Iterable[int], now: int, tiers: Sequence[Tier] = TIERS) -> list[int]:
    """Return the times to keep in order; those in the future (a clock that was set back) are dropped."""
    kept: list[int] = []
    seen: set[tuple[int, int]] = set()
    for time in sorted(set(times)):
        tier = _tier_of(now - time, tiers)
        if tier is None:
            continue
        # A sample occupies its interval in every tier, whichever one it belongs to itself.
        if (tier.interval, time // tier.interval) not in seen:
            kept.append(time)
        seen |= {(each.interval, time // each.interval) for each in tiers}
    return kept


def _tier_of(age: int, tiers: Sequence[Tier]) -> Tier | None:
    if age < 0:
        return None
    return next((tier for tier in tiers if age <= tier.age), None)
