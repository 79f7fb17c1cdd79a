"""What drivers say about the health of their devices, and for how long it holds.

Owns the book of reports (section 2 of the node protocols, `NodeWatchResources`), as values: no streams, no
clock. Every message lists all devices; a device that is not listed keeps its state until that runs out.
What has run out is unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

#: For devices whose driver names no time.
DEFAULT_SECONDS = 30.0
#: Bytes; as `v1.ResourceHealth` has room for.
LONGEST_MESSAGE = 1024
#: Of one plugin; what is beyond is not kept.
MOST_DEVICES = 16384
_LONGEST_NAME = 253
#: A year: nobody checks less often, and no sum of times overflows.
_LONGEST_SECONDS = 365 * 24 * 3600

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_STATUS = {1: HEALTHY, 2: UNHEALTHY}


@dataclass(frozen=True, slots=True)
class Health:
    """A device's health as pod statuses show it: Healthy, Unhealthy or Unknown."""

    status: str
    message: str = ""


NOTHING_KNOWN = Health(UNKNOWN)


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver says of one device; it holds for so many seconds."""

    pool: str
    device: str
    health: Health
    seconds: float = DEFAULT_SECONDS


def read_reports(message: Any) -> tuple[Report, ...]:
    """The reports in a message of either version; what cannot be a device is left out."""
    found = []
    for entry in message.devices[:MOST_DEVICES]:
        pool, device = entry.device.pool_name, entry.device.device_name
        if not device or len(pool) > _LONGEST_NAME or len(device) > _LONGEST_NAME:
            continue
        seconds = float(min(entry.health_check_timeout_seconds, _LONGEST_SECONDS))
        found.append(
            Report(
                pool,
                device,
                Health(_STATUS.get(entry.health, UNKNOWN), cut_message(entry.message)),
                seconds if seconds > 0 else DEFAULT_SECONDS,
            )
        )
    return tuple(found)


def cut_message(text: str) -> str:
    """A message with at most `LONGEST_MESSAGE` bytes, cut between characters."""
    data = text.encode()
    if len(data) <= LONGEST_MESSAGE:
        return text
    return data[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."


@dataclass(frozen=True, slots=True)
class _Kept:
    health: Health
    until: float


class HealthBook:
    """The reports of plugins, by any key that names a plugin."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, dict[tuple[str, str], _Kept]] = {}
        self._next = float("inf")

    def report(self, plugin: Hashable, reports: Iterable[Report], now: float) -> bool:
        """Take in a message; whether it says anything new."""
        before = self._kept.setdefault(plugin, {})
        after: dict[tuple[str, str], _Kept] = {}
        news = False
        for report in reports:
            key = (report.pool, report.device)
            after[key] = _Kept(report.health, now + report.seconds)
            news = news or _at(before.get(key), now) != report.health
            self._next = min(self._next, now + report.seconds)
        for key, kept in before.items():
            if key in after:
                continue
            if kept.until > now and len(after) < MOST_DEVICES:
                after[key] = kept
            else:
                news = True
        self._kept[plugin] = after
        return news

    def expire(self, now: float) -> bool:
        """Forget what has run out; whether any health is another one now."""
        if now < self._next:
            return False
        news = False
        self._next = float("inf")
        for devices in self._kept.values():
            for key, kept in list(devices.items()):
                if kept.until <= now:
                    news = True
                    del devices[key]
                else:
                    self._next = min(self._next, kept.until)
        return news

    def clear(self, plugin: Hashable) -> bool:
        """Forget a plugin; whether anything was known of it."""
        return bool(self._kept.pop(plugin, None))

    def look(self, plugins: Iterable[Hashable], pool: str, device: str, now: float) -> Health:
        """A device's health as the first of these plugins knows it that knows it at all."""
        for plugin in plugins:
            kept = self._kept.get(plugin, {}).get((pool, device))
            if kept is not None and kept.until > now:
                return kept.health
        return NOTHING_KNOWN


def _at(kept: _Kept | None, now: float) -> Health | None:
    """What still holds. Nothing is not the same as Unknown, which hides what an older plugin says."""
    return kept.health if kept is not None and kept.until > now else None
