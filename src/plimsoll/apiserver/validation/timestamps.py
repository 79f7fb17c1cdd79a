"""Timestamps in stored form: RFC 3339, UTC, in seconds or microseconds.

Accepts what clients may send (any offset, fractions) and returns the single form that is stored.
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
ZERO = "0001-01-01T00:00:00Z"
MICRO_ZERO = "0001-01-01T00:00:00.000000Z"


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
