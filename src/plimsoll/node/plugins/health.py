"""Health of devices as reported by drivers, with expiry.

Values only: no streams, no clock. See docs/spec/node-protocols.md, "DRA plugin" (`NodeWatchResources`). Every
message lists all devices; a device that is not listed keeps its state until it expires. Expired health is
unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

#: Validity of reports without a timeout.
DEFAULT_SECONDS = 30.0
#: Bytes; the limit of `v1.ResourceHealth`.
MAX_MESSAGE_BYTES = 1024
#: Maximum number of devices of one plugin; further ones are ignored.
MAX_DEVICES = 16384
_MAX_NAME_LENGTH = 253
#: One year: a longer timeout makes no sense, and no sum of times overflows.
_MAX_SECONDS = 365 * 24 * 3600

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_STATUS = {1: HEALTHY, 2: UNHEALTHY}


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """Health of a device as pod statuses show it: Healthy, Unhealthy or Unknown."""

    status: str
    message: str = ""


UNKNOWN_HEALTH = HealthStatus(UNKNOWN)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Report of a driver on one device, with its validity in seconds."""

    pool: str
    device: str
    health: HealthStatus
    seconds: float = DEFAULT_SECONDS


def read_reports(message: Any) -> tuple[HealthReport, ...]:
    """Return the reports in a message of either version; invalid devices are left out."""
    found = []
    for entry in message.devices[:MAX_DEVICES]:
        pool, device = entry.device.pool_name, entry.device.device_name
        if not device or len(pool) > _MAX_NAME_LENGTH or len(device) > _MAX_NAME_LENGTH:
            continue
        seconds = float(min(entry.health_check_timeout_seconds, _MAX_SECONDS))
        found.append(
            HealthReport(
                pool,
                device,
                HealthStatus(_STATUS.get(entry.health, UNKNOWN), truncate_message(entry.message)),
                seconds if seconds > 0 else DEFAULT_SECONDS,
            )
        )
    return tuple(found)


def truncate_message(text: str) -> str:
    """Truncate a message to `MAX_MESSAGE_BYTES`, between characters."""
    data = text.encode()
    if len(data) <= MAX_MESSAGE_BYTES:
        return text
    return data[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "..."


@dataclass(frozen=True, slots=True)
class _StoredHealth:
    health: HealthStatus
    until: float


class HealthCache:
    """Reports of plugins, by any key that identifies a plugin."""

    def __init__(self) -> None:
        self._stored: dict[Hashable, dict[tuple[str, str], _StoredHealth]] = {}
        self._next = float("inf")

    def report(self, plugin: Hashable, reports: Iterable[HealthReport], now: float) -> bool:
        """Store a message; return whether it changes anything."""
        before = self._stored.setdefault(plugin, {})
        after: dict[tuple[str, str], _StoredHealth] = {}
        changed = False
        for report in reports:
            key = (report.pool, report.device)
            after[key] = _StoredHealth(report.health, now + report.seconds)
            changed = changed or _current_health(before.get(key), now) != report.health
            self._next = min(self._next, now + report.seconds)
        for key, stored in before.items():
            if key in after:
                continue
            if stored.until > now and len(after) < MAX_DEVICES:
                after[key] = stored
            else:
                changed = True
        self._stored[plugin] = after
        return changed

    def expire(self, now: float) -> bool:
        """Remove expired reports; return whether the health of a device changed."""
        if now < self._next:
            return False
        changed = False
        self._next = float("inf")
        for devices in self._stored.values():
            for key, stored in list(devices.items()):
                if stored.until <= now:
                    changed = True
                    del devices[key]
                else:
                    self._next = min(self._next, stored.until)
        return changed

    def clear(self, plugin: Hashable) -> bool:
        """Remove a plugin; return whether anything was known of it."""
        return bool(self._stored.pop(plugin, None))

    def get_health(self, plugins: Iterable[Hashable], pool: str, device: str, now: float) -> HealthStatus:
        """Return the health of a device, from the first of these plugins that reports it."""
        for plugin in plugins:
            stored = self._stored.get(plugin, {}).get((pool, device))
            if stored is not None and stored.until > now:
                return stored.health
        return UNKNOWN_HEALTH


def _current_health(stored: _StoredHealth | None, now: float) -> HealthStatus | None:
    """Return the unexpired health, or None; Unknown would hide the report of an older plugin."""
    return stored.health if stored is not None and stored.until > now else None
