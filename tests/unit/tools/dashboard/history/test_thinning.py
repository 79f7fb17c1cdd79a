"""Thinning: bounded, idempotent, and no interval of any tier loses all of its samples."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.dashboard.history.thinning import TIERS, thin

NOW = 1_800_000_000
#: Upper bound of the number of samples that are kept.
MOST = sum(
    (tier.age - before) // tier.interval + 2
    for before, tier in zip((0, *(tier.age for tier in TIERS)), TIERS, strict=False)
)
AGES = st.lists(st.integers(-100, 100 * 86400) | st.integers(0, 10800), max_size=200)


@given(AGES)
def test_thinning_keeps_the_first_sample_of_each_interval(ages: list[int]) -> None:
    times = [NOW - age for age in ages]
    kept = thin(times, NOW)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(times)
    assert len(kept) <= MOST
    assert thin(kept, NOW) == kept
    before = 0
    for tier in TIERS:
        inside = [time for time in times if before <= NOW - time <= tier.age and NOW - time >= 0]
        # Every interval that had samples and lies in one tier alone still has its first one.
        for number in {time // tier.interval for time in inside}:
            members = sorted(time for time in times if time // tier.interval == number)
            if all(before < NOW - time <= tier.age for time in members):
                assert [time for time in kept if time // tier.interval == number] == members[:1]
        before = tier.age


@given(st.integers(1, 400), st.integers(20, 4000))
def test_samples_taken_one_by_one_stay_bounded_and_cover_the_past(steps: int, apart: int) -> None:
    kept: list[int] = []
    now = NOW
    for _ in range(steps):
        now += apart
        kept = thin([*kept, now], now)
    assert len(kept) <= MOST
    # The oldest sample within the first tier and everything older than it is at most one interval away.
    first = NOW + apart
    gaps = [later - earlier for earlier, later in pairwise(kept)]
    oldest = now - kept[0]
    assert oldest <= TIERS[-1].age
    assert kept[0] - first < TIERS[-1].interval or now - first > TIERS[-1].age - TIERS[-1].interval
    assert max(gaps, default=0) <= 2 * max(TIERS[-1].interval, apart)


def test_numbers_of_samples() -> None:
    every_minute = range(NOW - 100 * 86400, NOW + 1, 60)
    assert len(thin(every_minute, NOW)) in range(970, MOST + 1)
    assert thin([NOW + 5], NOW) == []
