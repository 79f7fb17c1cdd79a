"""Validation of cron schedules and time zone names."""

from __future__ import annotations

import re

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid
from plimsoll.common.cron import CronViolation, find_zone, parse_cron

_ZONE_PART = re.compile(r"[A-Za-z._0-9+][-A-Za-z._0-9+]{0,13}")


def validate_schedule(schedule: str, time_zone: str | None, path: FieldPath, *, old: str = "") -> FieldErrors:
    """Validate a schedule; a time zone inside it is accepted only if the stored one (`old`) has one."""
    inside = "TZ" in schedule
    bare = schedule.partition(" ")[2].strip() if schedule.startswith(("TZ=", "CRON_TZ=")) else schedule
    parsed = parse_cron(bare)
    if isinstance(parsed, CronViolation):
        yield invalid(path, schedule, parsed.message)
    if inside and "TZ" not in old:
        yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif inside and time_zone is not None:
        yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def validate_time_zone(name: str | None, path: FieldPath) -> FieldErrors:
    """Validate the name of a time zone: it is one that the CronJob controller finds."""
    if name is None:
        return
    if not all(_ZONE_PART.fullmatch(word) and word not in (".", "..") for word in name.split("/")):
        yield invalid(path, name, "must be the name of a time zone, such as Europe/Berlin")
    elif name.lower() == "local":
        yield invalid(path, name, "must be an explicit time zone")
    elif find_zone(name) is None:
        yield invalid(path, name, f"unknown time zone {name}")
