"""Seat limits: nominal limits by shares, demand over time, lending and borrowing."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.flowcontrol.configuration import PriorityLevel
from plimsoll.apiserver.flowcontrol.seat_demand import (
    DemandSample,
    SeatDemand,
    SeatLimits,
    adjust_limits,
    share_seats,
)
from plimsoll.apiserver.registry.flow_control_objects import MANDATORY_LEVELS, SUGGESTED_LEVELS


def limits_of(**levels: tuple[int, int, int | None]) -> dict[str, SeatLimits]:
    """Return the limits of levels (shares, lendable percent, borrowing percent) of 600 seats."""
    shares = sum(level[0] for level in levels.values())
    found = {}
    for name, (share, lendable, borrowing) in levels.items():
        found[name] = SeatLimits()
        found[name].configure(PriorityLevel(name, "", False, share, lendable, borrowing), 600, shares)
    return found


def test_default_levels_have_the_limits_of_kube_apiserver() -> None:
    shares = {}
    for tree in (*SUGGESTED_LEVELS, *MANDATORY_LEVELS):
        settings = tree["spec"].get("limited") or tree["spec"]["exempt"]
        shares[tree["metadata"]["name"]] = (
            settings["nominalConcurrencyShares"],
            settings["lendablePercent"],
            None,
        )
    limits = limits_of(**shares)
    assert {name: (each.nominal, each.lower, each.upper) for name, each in limits.items()} == {
        "catch-all": (13, 13, 613),
        "exempt": (0, 0, 600),
        "global-default": (49, 24, 649),
        "leader-election": (25, 25, 625),
        "node-high": (98, 73, 698),
        "system": (74, 50, 674),
        "workload-high": (98, 49, 698),
        "workload-low": (245, 24, 845),
    }


def test_a_borrowing_limit_bounds_the_upper_limit() -> None:
    limits = limits_of(a=(1, 0, 50), b=(1, 100, 0))
    assert (limits["a"].upper, limits["b"].lower, limits["b"].upper) == (450, 0, 300)


def test_a_busy_level_borrows_from_idle_ones() -> None:
    limits = limits_of(busy=(1, 50, None), idle=(1, 50, None), exempt=(0, 0, None))
    limits["busy"].note(DemandSample(10, 500.0, 0.0, 500))
    limits["idle"].note(DemandSample(10, 1.0, 0.0, 2))
    adjust_limits(limits, "exempt")
    assert limits["idle"].current >= 150
    assert limits["busy"].current > 400
    assert limits["busy"].current + limits["idle"].current == 600
    limits["idle"].note(DemandSample(10, 300.0, 0.0, 300))
    adjust_limits(limits, "exempt")
    assert limits["idle"].current == 300


def test_use_by_exempt_requests_leaves_others_their_lower_limits() -> None:
    limits = limits_of(a=(1, 50, None), b=(1, 0, None), exempt=(0, 0, None))
    limits["exempt"].note(DemandSample(10, 900.0, 0.0, 900))
    adjust_limits(limits, "exempt")
    assert (limits["a"].current, limits["b"].current, limits["exempt"].current) == (150, 300, 900)


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 500), st.floats(0, 300)).map(
            lambda item: (item[0], item[0] + item[1], max(item[0], item[2]))
        ),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 1),
)
def test_shares_are_proportional_to_targets_within_their_bounds(
    items: list[tuple[float, float, float]], part: float
) -> None:
    low, high = sum(item[0] for item in items), sum(item[1] for item in items)
    total = low + part * (high - low)
    shares, factor = share_seats(total, items)
    assert sum(shares) == pytest.approx(total, abs=1e-3)
    for share, (lower, upper, target) in zip(shares, items, strict=True):
        assert lower - 1e-6 <= share <= upper + 1e-6
        wanted = factor * max(target, 0.001)
        assert share == pytest.approx(min(max(wanted, lower), upper), abs=1e-3)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=20))
def test_demand_is_the_average_over_time(steps: list[tuple[int, int]]) -> None:
    demand, now, values = SeatDemand(5.0), 5.0, list[int]()
    for seats, seconds in steps:
        demand.set(seats, now)
        now += seconds
        values += [seats] * seconds
    sample = demand.reset(now)
    assert sample.seconds == len(values)
    assert sample.average == pytest.approx(statistics.fmean(values))
    assert sample.deviation == pytest.approx(statistics.pstdev(values), abs=1e-4)
    assert sample.highest == max(values)
    assert demand.reset(now + 1) == DemandSample(1.0, steps[-1][0], 0.0, steps[-1][0])
