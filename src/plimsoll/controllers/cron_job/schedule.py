"""Times of cron schedules in a time zone.

Times are found as Kubernetes does: in the wall-clock time of the zone. A time that a zone skips when clocks
go forward does not occur; one that is repeated when they go back occurs twice, unless its hour is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from plimsoll.common.cron import CronFields, find_zone, parse_cron

#: Years in which a schedule must have a time; February 30 never comes.
_HORIZON = 5


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Schedule in a time zone."""

    cron: CronFields
    zone: tzinfo = UTC

    def next_after(self, seconds: float) -> float | None:
        """Return the first time after another, in seconds since 1970; None if there is none."""
        if self.cron.every:
            return float(int(seconds) + self.cron.every)
        minutes, hours, _, months, _ = self.cron.values
        time = datetime.fromtimestamp(int(seconds) // 60 * 60 + 60, UTC)
        end = time + timedelta(days=366 * _HORIZON)
        while time < end:
            local = time.astimezone(self.zone)
            if local.month not in months or not self._has_day(local):
                time = self._start_of_next_day(local)
            elif local.hour not in hours:
                time = (time + timedelta(minutes=60 - local.minute)).replace(second=0)
            elif local.minute not in minutes:
                time += timedelta(minutes=1)
            else:
                return time.timestamp()
        return None

    def _has_day(self, local: datetime) -> bool:
        in_month = local.day in self.cron.values[2]
        in_week = local.isoweekday() % 7 in self.cron.values[4]
        return in_month and in_week if self.cron.any_day else in_month or in_week

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
    zone, cron = find_zone(time_zone), parse_cron(text.strip())
    return CronSchedule(cron, zone) if zone is not None and isinstance(cron, CronFields) else None
