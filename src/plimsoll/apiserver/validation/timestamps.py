"""Timestamps as the API writes them: RFC 3339, UTC, whole seconds or microseconds.

Owns reading what a client may send (any offset, fractions) and the one spelling that is stored.
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

#: How a timestamp that was never set is written.
ZERO = "0001-01-01T00:00:00Z"
MICRO_ZERO = "0001-01-01T00:00:00.000000Z"


def normalize_time(text: str, field: str) -> str:
    """The stored spelling of a timestamp; raises DecodeError naming the field."""
    spelled = _spell(text) if len(text) <= 64 else None
    if spelled is None:
        raise _refuse(text, field)
    return spelled


@lru_cache(maxsize=4096)
def _spell(text: str) -> str | None:
    """The same moments come again and again: an object names the time of each of its writers."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in shape.groups()[:6])
    sign, hours, minutes = shape.groups()[6:]
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    try:
        zone = timezone(-offset if sign == "-" else offset)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return format_datetime(moment)


def normalize_micro_time(text: str, field: str) -> str:
    """The stored spelling of a timestamp that has six digits after the second, no more and no fewer."""
    shape = _MICRO_SHAPE.fullmatch(text) if len(text) <= 64 else None
    if shape is None:
        raise _refuse(text, field, "2025-06-01T12:00:00.000000Z")
    seconds, fraction, zone = shape.groups()
    return f"{normalize_time(seconds + zone, field)[:-1]}.{fraction}Z"


def format_datetime(moment: datetime) -> str:
    """A moment in the stored spelling, cut to whole seconds."""
    if moment.tzinfo is None:
        raise InputError("a moment needs a time zone; the local one would be a guess")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return f"{moment.isoformat()[:_SECONDS]}Z"


def _refuse(text: str, field: str, example: str = "2025-06-01T12:00:00Z") -> DecodeError:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return DecodeError(f"must be a time such as {example}, not {shown!r}", field)
