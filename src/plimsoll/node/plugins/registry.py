"""Which drivers there are, and which of a driver's plugins is asked.

Owns the book of registered plugins, as values: no sockets, no clock. A driver may have several plugins at
once (a rolling update); the newest that is connected is asked, and if none is, the newest. A driver none of
whose plugins is connected is missing since then; after a while it counts as gone, once.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered plugin. `rank` grows with the age of registration sockets: a greater one is newer."""

    driver: str
    endpoint: str
    service: str
    health_service: str
    rank: int
    registered_at: float
    connected: bool = False

    @property
    def version(self) -> str:
        """v1 or v1beta1."""
        return self.service.partition(".")[0]


class Registry:
    """The registered plugins. Times are seconds of one clock that only goes forward."""

    def __init__(self) -> None:
        #: By driver, the oldest first.
        self._plugins: dict[str, list[Plugin]] = {}
        #: Since when no plugin of a driver is connected; None once that was told.
        self._missing: dict[str, float | None] = {}

    def add(self, plugin: Plugin, now: float) -> str:
        """Book a plugin; the reason why not, or nothing."""
        plugins = self._plugins.get(plugin.driver, [])
        path = os.path.normpath(plugin.endpoint)
        if any(os.path.normpath(other.endpoint) == path for other in plugins):
            return f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.driver}"
        self._plugins[plugin.driver] = sorted([*plugins, plugin], key=lambda booked: booked.rank)
        self._note(plugin.driver, now)
        return ""

    def remove(self, driver: str, rank: int, now: float) -> None:
        """Take a plugin off the book; one that is not on it is no matter."""
        before = self._plugins.get(driver, [])
        after = [plugin for plugin in before if plugin.rank != rank]
        if len(after) == len(before):
            return
        if after:
            self._plugins[driver] = after
        else:
            del self._plugins[driver]
            if self._missing.get(driver, now) is None:
                del self._missing[driver]  # told, and nothing is left to remember it by
                return
        self._note(driver, now)

    def set_connected(self, driver: str, rank: int, connected: bool, now: float) -> bool:
        """Note whether a plugin's connection stands; whether that is news."""
        for place, plugin in enumerate(self._plugins.get(driver, ())):
            if plugin.rank == rank and plugin.connected != connected:
                self._plugins[driver][place] = replace(plugin, connected=connected)
                self._note(driver, now)
                return True
        return False

    def _note(self, driver: str, now: float) -> None:
        if any(plugin.connected for plugin in self._plugins.get(driver, ())):
            self._missing.pop(driver, None)
        else:
            self._missing.setdefault(driver, now)

    def choose(self, driver: str) -> Plugin | None:
        """The plugin that is asked for a driver."""
        plugins = self._plugins.get(driver, ())
        connected = [plugin for plugin in plugins if plugin.connected]
        return connected[-1] if connected else plugins[-1] if plugins else None

    def of(self, driver: str) -> Sequence[Plugin]:
        """A driver's plugins, the newest first."""
        return tuple(reversed(self._plugins.get(driver, ())))

    def plugins(self) -> Sequence[Plugin]:
        """All plugins, by driver, the oldest first."""
        return tuple(plugin for driver in sorted(self._plugins) for plugin in self._plugins[driver])

    def is_connected(self, driver: str) -> bool:
        return any(plugin.connected for plugin in self._plugins.get(driver, ()))

    def gone(self, now: float, after: float) -> Sequence[str]:
        """Drivers that have been missing for `after` seconds, each told once as long as it stays missing."""
        due = sorted(
            driver for driver, since in self._missing.items() if since is not None and now - since >= after
        )
        for driver in due:
            if driver in self._plugins:
                self._missing[driver] = None
            else:
                del self._missing[driver]  # nothing is left to remember it by
        return due

    def missing(self) -> Mapping[str, float]:
        """Drivers that are missing and not yet told as gone, and since when."""
        return {driver: since for driver, since in self._missing.items() if since is not None}
