"""Timestamps and durations: parsing, formatting, arithmetic and calendar fields.

Texts are parsed and formatted as in Go (lenient RFC 3339, durations such as `1h30m`). Calendar fields are in
UTC unless a zone is given, as an offset `+02:30` or by name from the time zone database (the system's, or the
packaged one if the system has none).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from plimsoll.api import durations
from plimsoll.cel.functions.numbers import shortest
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.values import INT_MAX, INT_MIN, Duration, Timestamp
from plimsoll.errors import CelRuntimeError

SECOND = 10**9
DAY = 86400
MIN_SECONDS = -62135596800  # 0001-01-01T00:00:00Z
MAX_SECONDS = 253402300799  # 9999-12-31T23:59:59Z

_STAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_OFFSET = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse an RFC 3339 time, or return None; raises if it is outside the years 1 to 9999."""
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            return None
        offset = (int(match[9]) * 60 + int(match[10])) * (-60 if match[8] == "-" else 60)
    if hour > 23 or minute > 59 or second > 59 or not 1 <= month <= 12:
        return None
    if not 1 <= day <= days_in(year, month):
        return None
    seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    nanos = int(((match[7] or "") + "000000000")[:9])
    return Timestamp(seconds * SECOND + nanos, offset if match[8] else None)


def format_timestamp(stamp: Timestamp) -> str:
    """Format a time as RFC 3339 in its own zone, without trailing zeros in the fraction."""
    offset = stamp.offset or 0
    seconds, nanos = divmod(stamp.nanos + offset * SECOND, SECOND)
    days, clock = divmod(seconds, DAY)
    year, month, day = civil_from_days(days)
    text = f"{year:04d}-{month:02d}-{day:02d}T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
    if nanos:
        text += f".{nanos:09d}".rstrip("0")
    if not offset:
        return text + "Z"
    minutes = abs(offset) // 60
    return f"{text}{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def parse_duration(text: str) -> Duration | None:
    """Parse a duration such as `1h30m` or `-1.5s`, or return None."""
    nanos = durations.parse_duration(text)
    return Duration(nanos) if nanos is not None else None


def format_duration(duration: Duration) -> str:
    """Format a duration in seconds, as `90s` or `0.5s`."""
    return shortest(_units(duration.nanos, SECOND), exponents=False) + "s"


def _units(nanos: int, unit: int) -> float:
    """Return a duration in a unit as a double, computed as in Go."""
    whole = abs(nanos) // unit * (1 if nanos >= 0 else -1)
    return float(whole) + float(nanos - whole * unit) / float(unit)


# -- arithmetic


def add_nanos(stamp: Timestamp, nanos: int) -> Timestamp:
    total = stamp.nanos + nanos
    if not MIN_SECONDS <= total // SECOND <= MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    return Timestamp(total, stamp.offset)


def checked_duration(nanos: int) -> Duration:
    if not INT_MIN <= nanos <= INT_MAX:
        raise CelRuntimeError("integer overflow")
    return Duration(nanos)


# -- calendar


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the proleptic Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def zone_offset(stamp: Timestamp, zone: str) -> int:
    """Return the seconds east of UTC at a time, for `+02:30` or a zone name."""
    hours, colon, minutes = zone.partition(":")
    if not colon:
        return _named_offset(stamp, zone)
    if not _OFFSET.fullmatch(hours) or not _OFFSET.fullmatch(minutes):
        raise CelRuntimeError(f"invalid time zone {zone[:40]!r}")
    shift = int(hours) * 60 + (-int(minutes) if zone.startswith("-") else int(minutes))
    return shift * 60


def _named_offset(stamp: Timestamp, zone: str) -> int:
    if zone in ("", "UTC", "Local"):
        return 0
    utc = datetime(1970, 1, 1) + timedelta(seconds=stamp.nanos // SECOND)
    try:
        shifted = utc.replace(tzinfo=UTC).astimezone(_zone(zone))
    except OverflowError:  # the local time would fall outside years 1 to 9999
        shifted = datetime(5000, 1, 1, tzinfo=UTC).astimezone(_zone(zone))
    offset = shifted.utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


@functools.lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except Exception:  # unknown, malformed or unreadable
        raise CelRuntimeError(f"unknown time zone {name[:40]}") from None


def _local(stamp: Timestamp, zone: str) -> tuple[int, int]:
    """Return the days and the seconds of the day in a zone."""
    return divmod(stamp.nanos // SECOND + zone_offset(stamp, zone), DAY)


def _day_of_year(days: int) -> int:
    return days - days_from_civil(civil_from_days(days)[0], 1, 1)


_FIELDS: dict[str, tuple[str, Callable[[Timestamp, str], int]]] = {
    "getFullYear": ("year", lambda t, z: civil_from_days(_local(t, z)[0])[0]),
    "getMonth": ("month", lambda t, z: civil_from_days(_local(t, z)[0])[1] - 1),
    "getDayOfYear": ("day_of_year", lambda t, z: _day_of_year(_local(t, z)[0])),
    "getDayOfMonth": ("day_of_month", lambda t, z: civil_from_days(_local(t, z)[0])[2] - 1),
    "getDate": ("day_of_month_1_based", lambda t, z: civil_from_days(_local(t, z)[0])[2]),
    "getDayOfWeek": ("day_of_week", lambda t, z: (_local(t, z)[0] + 4) % 7),
    "getHours": ("hours", lambda t, z: _local(t, z)[1] // 3600),
    "getMinutes": ("minutes", lambda t, z: _local(t, z)[1] // 60 % 60),
    "getSeconds": ("seconds", lambda t, z: _local(t, z)[1] % 60),
    "getMilliseconds": ("milliseconds", lambda t, z: _milliseconds(t, z)),
}

_SPAN_FIELDS: dict[str, Callable[[Duration], int]] = {
    "getHours": lambda d: int(_units(d.nanos, 3600 * SECOND)),
    "getMinutes": lambda d: int(_units(d.nanos, 60 * SECOND)),
    "getSeconds": lambda d: int(_units(d.nanos, SECOND)),
    "getMilliseconds": lambda d: abs(d.nanos) // 10**6 * (1 if d.nanos >= 0 else -1),
}


def _milliseconds(stamp: Timestamp, zone: str) -> int:
    zone_offset(stamp, zone)  # raises for an invalid zone, though milliseconds do not depend on it
    return stamp.nanos % SECOND // 10**6


def _accessor(name: str) -> Function:
    word, read = _FIELDS[name]
    zoned = "timestamp_to_seconds_tz" if word == "seconds" else f"timestamp_to_{word}_with_tz"
    overloads = [
        overload(f"timestamp_to_{word} timestamp.() -> int", lambda t: read(t, "UTC")),
        overload(f"{zoned} timestamp.(string) -> int", read),
    ]
    if name in _SPAN_FIELDS:
        overloads.append(overload(f"duration_to_{word} duration.() -> int", _SPAN_FIELDS[name]))
    return function(name, *overloads)


FUNCTIONS: tuple[Function, ...] = tuple(_accessor(name) for name in _FIELDS)
