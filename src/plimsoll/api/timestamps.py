"""Timestamp parsing and formatting (RFC 3339 Time and MicroTime).

In memory a time is a number of seconds since 1970 in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str | None) -> float | None:
    """Parse a timestamp; None if it is absent or malformed."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def format_time(seconds: float) -> str:
    """Format a Time, truncated to seconds: `2025-06-01T12:00:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Format a MicroTime, as in leases: `2025-06-01T12:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
