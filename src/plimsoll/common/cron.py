"""Cron schedules: five fields with names, ranges and steps, `@daily` and the like, `@every 1h30m`.

Validation and the CronJob controller read schedules here, so that a schedule that is accepted also runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from plimsoll.api.durations import parse_duration

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Name, minimum, maximum and aliases of each field.
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_NUMBER = re.compile(r"\+?[0-9]{1,9}")
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class CronFields:
    """Minutes, hours, days of the month, months and days of the week of a schedule; or a fixed period."""

    values: tuple[frozenset[int], ...] = ()
    any_day: bool = False  #: whether the day of the month or of the week is `*`: then both must match
    every: int = 0  #: period in seconds of `@every`; 0 for a schedule of fields


@dataclass(frozen=True, slots=True)
class CronViolation:
    """Reason why a text is not a schedule."""

    message: str


@dataclass(frozen=True, slots=True)
class _Entry:
    values: range
    is_star: bool = False  #: `*` is no restriction, `*/2` is


def parse_cron(text: str) -> CronFields | CronViolation:
    """Parse a schedule without a time zone."""
    if text.startswith(_EVERY):
        period = parse_duration(text[len(_EVERY) :])
        if period is not None:
            return CronFields(every=max(1, period // _SECOND))
    if text.startswith("@") and text not in _MACROS:
        names = ", ".join(sorted(_MACROS))
        return CronViolation(f"must be one of {names}, or @every and a duration such as 1h30m")
    parts = _MACROS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        return CronViolation(f"must have {len(_FIELDS)} fields, such as '*/5 * * * *', and has {len(parts)}")
    fields = []
    for part, (name, least, most, words) in zip(parts, _FIELDS, strict=True):
        entries = []
        for entry in dict.fromkeys(part.split(",")):
            found = _parse_entry(entry, least, most, words) if entry else _Entry(range(0))
            if isinstance(found, str):
                return CronViolation(f"{name}: {found}")
            entries.append(found)
        fields.append(entries)
    values = tuple(frozenset(number for entry in entries for number in entry.values) for entries in fields)
    return CronFields(values, any_day=any(entry.is_star for entry in (*fields[2], *fields[4])))


def _parse_entry(entry: str, least: int, most: int, words: dict[str, int]) -> _Entry | str:
    """Parse one entry of a field (`*`, `5`, `1-5`, each with an optional step), or return its violation."""
    span, *steps = entry.split("/")
    low, *high = span.split("-")
    is_star = low in ("*", "?")
    if len(steps) > 1 or (len(high) > 1 and not is_star):
        return f"{entry[:20]!r} must be a number or a range, with a step or without"
    step = _parse_number(steps[0], {}) if steps else 1
    if not step:
        return f"the step of {entry[:20]!r} must be a number greater than 0"
    if is_star:
        return _Entry(range(least, most + 1, step), is_star=step == 1)
    first, last = _parse_number(low, words), _parse_number(high[0] if high else low, words)
    if first is None or last is None or first < least or last > most:
        return f"{entry[:20]!r} must be made of numbers from {least} to {most}"
    if last < first:
        return f"{entry[:20]!r} ends before it begins"
    if steps and not high:
        last = most
    return _Entry(range(first, last + 1, step))


def _parse_number(word: str, words: dict[str, int]) -> int | None:
    known = words.get(word.lower())
    return known if known is not None else int(word) if _NUMBER.fullmatch(word) else None


def find_zone(name: str) -> tzinfo | None:
    """Return a time zone by its name, UTC without one; None if it is unknown."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, malformed, or the name of a directory
        return None
