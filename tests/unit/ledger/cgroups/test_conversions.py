"""Kernel numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import INT64_MAX
from plimsoll.ledger.cgroups.conversions import (
    MAX_SHARES,
    MIN_SHARES,
    UNLIMITED,
    huge_pages_of,
    milli_of_quota,
    milli_of_shares,
    page_size_of,
    page_size_text,
    quota_of,
    shares_of,
    shares_of_weight,
    weight_of,
)
from tests.unit.ledger.samples import amounts


@pytest.mark.parametrize(
    ("milli", "shares"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (300_000, 262_144)]
)
def test_shares(milli: int, shares: int) -> None:
    assert shares_of(milli) == shares


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (102, 4), (1024, 39), (262_143, 9999), (262_144, 10_000), (300_000, 10_000)],
)
def test_weights(shares: int, weight: int) -> None:
    assert weight_of(shares) == weight


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [(0, 100_000, 0), (1, 100_000, 1000), (10, 100_000, 1000), (1500, 100_000, 150_000), (1, 1000, 1000)],
)
def test_quotas(milli: int, period: int, quota: int) -> None:
    assert quota_of(milli, period) == quota


@given(st.integers(0, 256_000))
def test_shares_and_weights_come_back(milli: int) -> None:
    shares = shares_of(milli)
    assert MIN_SHARES <= shares <= MAX_SHARES
    assert shares_of(milli_of_shares(shares)) == shares
    again = shares_of_weight(weight_of(shares))
    assert 0 <= shares - again <= 27
    assert weight_of(again) in (weight_of(shares), weight_of(shares) - 1)


@given(st.integers(10, 100_000), st.sampled_from((1000, 10_000, 100_000)))
def test_quotas_come_back(milli: int, period: int) -> None:
    back = milli_of_quota(quota_of(milli, period), period)
    assert back == max(milli, 1_000_000 // period)


def test_no_quota_is_no_limit() -> None:
    assert milli_of_quota(UNLIMITED, 100_000) == 0
    assert milli_of_shares(1) == 0


def test_conversions_do_not_wrap() -> None:
    assert shares_of(INT64_MAX) == MAX_SHARES
    assert quota_of(INT64_MAX, 100_000) == INT64_MAX * 100


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
    assert page_size_of(resource) == size
    assert page_size_text(size) == text


def test_huge_pages_by_size() -> None:
    found = huge_pages_of(amounts(cpu="1", hugepages_2Mi="4Mi", hugepages_2048Ki="2Mi", hugepages_1Gi="1Gi"))
    assert found == {2 << 20: 6 << 20, 1 << 30: 1 << 30}


def test_huge_pages_without_a_size_are_left_out() -> None:
    assert page_size_of("cpu") is None
    assert huge_pages_of(amounts(hugepages_many="4Mi", hugepages_="1")) == {}
