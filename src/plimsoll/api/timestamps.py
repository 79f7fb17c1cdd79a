"""Timestamp parsing and formatting (RFC 3339 Time and MicroTime).

In memory a time is a number of seconds since 1970 in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime


def parse_datetime(text: object) -> datetime | None:
    """Parse a timestamp, in UTC unless it names a time zone; None if it is absent or malformed."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_time(text: object) -> float | None:
    """Parse a timestamp into seconds; None if it is absent, malformed or out of range."""
    time = parse_datetime(text)
    try:
        return None if time is None else time.timestamp()
    except OverflowError:
        return None


def format_time(seconds: float) -> str:
    """Format a Time, truncated to seconds: `2025-06-01T12:00:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Format a MicroTime, as in leases: `2025-06-01T12:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
