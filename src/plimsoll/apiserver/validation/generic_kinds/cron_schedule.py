"""Validation of cron schedules and time zone names.

A schedule has five fields (minute, hour, day of month, month, day of week), each a list of numbers, names,
ranges and steps; or is a macro such as `@daily`; or `@every` and a duration.
"""

from __future__ import annotations

import re

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid

_WORDS = frozenset(
    ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"),
)
_EVERY = "@every "
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")
_NUMBER = re.compile(r"\+?[0-9]{1,9}")
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
_ZONE_PART = re.compile(r"[A-Za-z._0-9+][-A-Za-z._0-9+]{0,13}")


def cron_schedule(text: str) -> list[str]:
    """Return the first violation of a schedule."""
    if text.startswith("@"):
        if text in _WORDS or (text.startswith(_EVERY) and _DURATION.fullmatch(text[len(_EVERY) :])):
            return []
        return [f"must be one of {', '.join(sorted(_WORDS))}, or @every and a duration such as 1h30m"]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return [f"must have {len(_FIELDS)} fields, such as '*/5 * * * *', and has {len(fields)}"]
    for field, (name, least, most, words) in zip(fields, _FIELDS, strict=True):
        for entry in dict.fromkeys(field.split(",")):
            message = _find_violation(entry, least, most, words) if entry else ""
            if message:
                return [f"{name}: {message}"]
    return []


def _find_violation(entry: str, least: int, most: int, words: dict[str, int]) -> str:
    """Return the violation of one entry of a field: `*`, `5`, `1-5`, each with an optional step."""
    span, *steps = entry.split("/")
    low, *high = span.split("-")
    if len(steps) > 1 or (len(high) > 1 and low not in ("*", "?")):
        return f"{entry[:20]!r} must be a number or a range, with a step or without"
    if steps and (not _NUMBER.fullmatch(steps[0]) or int(steps[0]) == 0):
        return f"the step of {entry[:20]!r} must be a number greater than 0"
    if low in ("*", "?"):
        return ""
    ends = [_number(word, words) for word in (low, *high)]
    if None in ends or not all(least <= end <= most for end in ends if end is not None):
        return f"{entry[:20]!r} must be made of numbers from {least} to {most}"
    return "" if ends == sorted(end or 0 for end in ends) else f"{entry[:20]!r} ends before it begins"


def _number(word: str, words: dict[str, int]) -> int | None:
    known = words.get(word.lower())
    return known if known is not None else int(word) if _NUMBER.fullmatch(word) else None


def validate_schedule(schedule: str, time_zone: str | None, path: FieldPath, *, old: str = "") -> FieldErrors:
    """Validate a schedule; a time zone inside it is accepted only if the stored one (`old`) has one."""
    inside = "TZ" in schedule
    bare = schedule.partition(" ")[2].strip() if schedule.startswith(("TZ=", "CRON_TZ=")) else schedule
    for message in cron_schedule(bare):
        yield invalid(path, schedule, message)
    if inside and "TZ" not in old:
        yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif inside and time_zone is not None:
        yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def validate_time_zone(name: str | None, path: FieldPath) -> FieldErrors:
    """Validate the format of a time zone name; whether the zone exists is not checked."""
    if name is None:
        return
    if not all(_ZONE_PART.fullmatch(word) and word not in (".", "..") for word in name.split("/")):
        yield invalid(path, name, "must be the name of a time zone, such as Europe/Berlin")
    elif name.lower() == "local":
        yield invalid(path, name, "must be an explicit time zone")
