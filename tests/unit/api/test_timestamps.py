"""Timestamps: every form that the API has is read, anything else is None."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.timestamps import format_micro_time, format_time, parse_datetime, parse_time

NOON = 1748779200


@pytest.mark.parametrize(
    "text",
    [
        "2025-06-01T12:00:00Z",
        "2025-06-01T12:00:00.000000Z",
        "2025-06-01T14:00:00+02:00",
        "2025-06-01T12:00:00",
    ],
)
def test_forms_of_one_time(text: str) -> None:
    assert parse_time(text) == NOON
    assert parse_datetime(text) == datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, "", "soon", 5, "2025-13-01T00:00:00Z"])
def test_invalid_timestamps_are_none(value: object) -> None:
    assert parse_datetime(value) is None
    assert parse_time(value) is None


@given(st.integers(0, 4_000_000_000), st.integers(0, 999_999))
def test_formatted_times_are_read_back(seconds: int, micros: int) -> None:
    assert parse_time(format_time(seconds + micros / 1_000_000)) == seconds
    read = parse_time(format_micro_time(seconds))
    assert read == seconds
