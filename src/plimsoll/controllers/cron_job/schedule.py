"""Cron schedules: five fields, names, steps, `@daily` and the like, `@every 1h30m`, in a time zone.

Times are found as Kubernetes does: in the wall-clock time of the zone. A time that a zone skips when clocks
go forward does not occur; one that is repeated when they go back occurs twice, unless its hour is fixed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Lowest and highest value, and names, of minute, hour, day of month, month, day of week.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = re.compile(r"@every ((?:[0-9]+(?:\.[0-9]+)?(?:h|m|s|ms|us|µs|ns))+)")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
#: Years in which a schedule must have a time; February 30 never comes.
_HORIZON = 5


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Schedule in a time zone: fields, or a fixed period."""

    fields: tuple[frozenset[int], ...]
    any_day: bool = False  #: whether the day of the month or of the week is `*`: then both must match
    every: float = 0.0
    zone: tzinfo = UTC

    def next_after(self, seconds: float) -> float | None:
        """Return the first time after another, in seconds since 1970; None if there is none."""
        if self.every:
            return float(int(seconds)) + self.every
        minutes, hours = self.fields[0], self.fields[1]
        time = datetime.fromtimestamp(int(seconds) // 60 * 60 + 60, UTC)
        end = time + timedelta(days=366 * _HORIZON)
        while time < end:
            local = time.astimezone(self.zone)
            if local.month not in self.fields[3] or not self._has_day(local):
                time = self._start_of_next_day(local)
            elif local.hour not in hours:
                time = (time + timedelta(minutes=60 - local.minute)).replace(second=0)
            elif local.minute not in minutes:
                time += timedelta(minutes=1)
            else:
                return time.timestamp()
        return None

    def _has_day(self, local: datetime) -> bool:
        in_month = local.day in self.fields[2]
        in_week = local.isoweekday() % 7 in self.fields[4]
        return in_month and in_week if self.any_day else in_month or in_week

    def _start_of_next_day(self, local: datetime) -> datetime:
        """Return the first minute of the next day; where midnight is skipped, that after the gap."""
        day = local.date() + timedelta(days=1)
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        start = midnight.astimezone(UTC)
        return start if start > local.astimezone(UTC) else local.astimezone(UTC) + timedelta(minutes=1)


def parse_schedule(text: str, time_zone: str = "") -> CronSchedule | None:
    """Parse a schedule; None if it is invalid."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        time_zone, _, text = text.partition("=")[2].partition(" ")
    zone = find_zone(time_zone)
    text = text.strip()
    if zone is None:
        return None
    every = _EVERY.fullmatch(text)
    if every is not None:
        period = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(every[1]))
        return CronSchedule((), every=max(1.0, float(int(period))), zone=zone)
    parts = _DESCRIPTORS.get(text.lower(), text).split()
    if len(parts) != len(_FIELDS):
        return None
    fields = [_parse_field(part, *bounds) for part, bounds in zip(parts, _FIELDS, strict=True)]
    found = tuple(field for field in fields if field)
    if len(found) != len(_FIELDS):
        return None
    # `*/2` is a restriction, `*` is not.
    free = {"*", "?", "*/1", "?/1"}
    any_day = any(entry in free for part in (parts[2], parts[4]) for entry in part.split(","))
    return CronSchedule(found, any_day, zone=zone)


def find_zone(name: str) -> tzinfo | None:
    """Return a time zone by its name, UTC without one; None if it is unknown."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, malformed, or the name of a directory
        return None


def _parse_field(text: str, lowest: int, highest: int, names: dict[str, int]) -> frozenset[int] | None:
    values: set[int] = set()
    for entry in text.split(","):
        span, slash, step_text = entry.partition("/")
        first_text, dash, last_text = span.partition("-")
        step = _parse_number(step_text, {}) if slash else 1
        if span in ("*", "?"):
            first, last = lowest, highest
        else:
            start, end = _parse_number(first_text, names), _parse_number(last_text, names)
            if start is None or (dash and end is None):
                return None
            first = start
            last = end if dash and end is not None else (highest if slash else start)
        if not step or not lowest <= first <= last <= highest:
            return None
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _parse_number(text: str, names: dict[str, int]) -> int | None:
    if text.lower() in names:
        return names[text.lower()]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
