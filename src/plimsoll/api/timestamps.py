"""The spellings of a moment that the API knows.

A moment is a number of seconds since 1970 in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime


def read_moment(text: str | None) -> float | None:
    """The moment a timestamp names; None if there is none, or none that can be read."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def write_moment(moment: float) -> str:
    """`2025-06-01T12:00:00Z`: what most fields hold, cut to whole seconds."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_micro_moment(moment: float) -> str:
    """`2025-06-01T12:00:00.000000Z`: what leases hold."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
