"""Conversion of resource amounts to cgroup values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import INT64_MAX
from plimsoll.node.cgroup_plans.conversions import (
    MAX_SHARES,
    MAX_WEIGHT,
    MIN_SHARES,
    format_page_size,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    parse_page_size,
    shares_to_weight,
    sum_huge_pages,
)
from tests.unit.ledger.samples import amounts


@pytest.mark.parametrize(
    ("milli", "shares"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (300_000, 262_144)]
)
def test_shares(milli: int, shares: int) -> None:
    assert milli_cpu_to_shares(milli) == shares


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (102, 4), (1024, 39), (262_143, 9999), (262_144, 10_000), (300_000, 10_000)],
)
def test_weights(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [(0, 100_000, 0), (1, 100_000, 1000), (10, 100_000, 1000), (1500, 100_000, 150_000), (1, 1000, 1000)],
)
def test_quotas(milli: int, period: int, quota: int) -> None:
    assert milli_cpu_to_quota(milli, period) == quota


@given(st.integers(0, 256_000))
def test_shares_and_weights_come_back(milli: int) -> None:
    shares = milli_cpu_to_shares(milli)
    assert MIN_SHARES <= shares <= MAX_SHARES
    assert 1 <= shares_to_weight(shares) <= MAX_WEIGHT
    assert shares_to_weight(shares) <= shares_to_weight(shares + 1)


def test_conversions_do_not_wrap() -> None:
    assert milli_cpu_to_shares(INT64_MAX) == MAX_SHARES
    assert milli_cpu_to_quota(INT64_MAX, 100_000) == INT64_MAX * 100


@pytest.mark.parametrize(
    ("resource", "size", "text"),
    [
        ("hugepages-2Mi", 2 << 20, "2MB"),
        ("hugepages-1Gi", 1 << 30, "1GB"),
        ("hugepages-64Ki", 64 << 10, "64KB"),
        ("hugepages-1500", 1500, None),
        ("hugepages-16Pi", 16 << 50, "16PB"),
    ],
)
def test_page_sizes(resource: str, size: int, text: str | None) -> None:
    assert parse_page_size(resource) == size
    assert format_page_size(size) == text


def test_huge_pages_by_size() -> None:
    found = sum_huge_pages(amounts(cpu="1", hugepages_2Mi="4Mi", hugepages_2048Ki="2Mi", hugepages_1Gi="1Gi"))
    assert found == {2 << 20: 6 << 20, 1 << 30: 1 << 30}


def test_huge_pages_without_a_size_are_left_out() -> None:
    assert parse_page_size("cpu") is None
    assert sum_huge_pages(amounts(hugepages_many="4Mi", hugepages_="1")) == {}
