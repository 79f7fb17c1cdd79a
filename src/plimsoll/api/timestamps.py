"""Timestamp parsing and formatting (RFC 3339 Time and MicroTime).

In memory a time is a number of seconds since 1970 in UTC. The API server stores one form: UTC, in seconds or
microseconds; clients may send any offset and fractions.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from plimsoll.errors import DecodeError, InputError

_SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,][0-9]+)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)

_MICRO_SHAPE = re.compile(r"(.{19})[.,]([0-9]{6})(Z|[+-][0-9]{2}:[0-9]{2})")

_SECONDS = len("2025-06-01T12:00:00")

#: Stored form of an unset timestamp.
ZERO_TIME = "0001-01-01T00:00:00Z"
ZERO_MICRO_TIME = "0001-01-01T00:00:00.000000Z"


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


# -- stored form


def normalize_time(text: str, field: str) -> str:
    """Return the stored form of a timestamp; raises DecodeError naming the field."""
    normalized = _normalize(text) if len(text) <= 64 else None
    if normalized is None:
        raise _refuse(text, field)
    return normalized


@lru_cache(maxsize=4096)
def _normalize(text: str) -> str | None:
    """Return the stored form of a timestamp, or None if it is invalid; cached, as timestamps repeat in
    managedFields.
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in shape.groups()[:6])
    sign, hours, minutes = shape.groups()[6:]
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    try:
        zone = timezone(-offset if sign == "-" else offset)
        timestamp = datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return format_datetime(timestamp)


def normalize_micro_time(text: str, field: str) -> str:
    """Return the stored form of a timestamp with exactly six fractional digits."""
    shape = _MICRO_SHAPE.fullmatch(text) if len(text) <= 64 else None
    if shape is None:
        raise _refuse(text, field, "2025-06-01T12:00:00.000000Z")
    seconds, fraction, zone = shape.groups()
    return f"{normalize_time(seconds + zone, field)[:-1]}.{fraction}Z"


def format_datetime(timestamp: datetime) -> str:
    """Format a datetime in stored form, truncated to seconds."""
    if timestamp.tzinfo is None:
        raise InputError("a datetime needs a time zone")
    if timestamp.tzinfo is not UTC:
        timestamp = timestamp.astimezone(UTC)
    return f"{timestamp.isoformat()[:_SECONDS]}Z"


def _refuse(text: str, field: str, example: str = "2025-06-01T12:00:00Z") -> DecodeError:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return DecodeError(f"must be a time such as {example}, not {shown!r}", field)
