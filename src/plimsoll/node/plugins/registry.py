"""Registry of plugins, and the selection of the plugin that serves a driver.

Values only: no sockets, no clock. A driver may have several plugins at once (a rolling update); the newest
connected one is called, and if none is connected, the newest. A driver without a connected plugin is missing;
after a while it counts as gone, once.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Plugin:
    """Registered plugin. `rank` follows the age of registration sockets: a greater one is newer."""

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
    """Registered plugins. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        #: By driver, the oldest first.
        self._plugins: dict[str, list[Plugin]] = {}
        #: Time since when no plugin of a driver is connected; None once that was reported.
        self._missing: dict[str, float | None] = {}

    def add(self, plugin: Plugin, now: float) -> str:
        """Add a plugin; return an error message, or ""."""
        plugins = self._plugins.get(plugin.driver, [])
        path = os.path.normpath(plugin.endpoint)
        if any(os.path.normpath(other.endpoint) == path for other in plugins):
            return f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.driver}"
        self._plugins[plugin.driver] = sorted([*plugins, plugin], key=lambda each: each.rank)
        self._update_missing(plugin.driver, now)
        return ""

    def remove(self, driver: str, rank: int, now: float) -> None:
        """Remove a plugin; an unknown one is ignored."""
        before = self._plugins.get(driver, [])
        after = [plugin for plugin in before if plugin.rank != rank]
        if len(after) == len(before):
            return
        if after:
            self._plugins[driver] = after
        else:
            del self._plugins[driver]
            if self._missing.get(driver, now) is None:
                del self._missing[driver]  # reported, and nothing is left to remember it by
                return
        self._update_missing(driver, now)

    def set_connected(self, driver: str, rank: int, connected: bool, now: float) -> bool:
        """Set whether a plugin is connected; return whether that changed."""
        for place, plugin in enumerate(self._plugins.get(driver, ())):
            if plugin.rank == rank and plugin.connected != connected:
                self._plugins[driver][place] = replace(plugin, connected=connected)
                self._update_missing(driver, now)
                return True
        return False

    def _update_missing(self, driver: str, now: float) -> None:
        if any(plugin.connected for plugin in self._plugins.get(driver, ())):
            self._missing.pop(driver, None)
        else:
            self._missing.setdefault(driver, now)

    def choose(self, driver: str) -> Plugin | None:
        """Return the plugin to call for a driver."""
        plugins = self._plugins.get(driver, ())
        connected = [plugin for plugin in plugins if plugin.connected]
        return connected[-1] if connected else plugins[-1] if plugins else None

    def of(self, driver: str) -> Sequence[Plugin]:
        """Return a driver's plugins, the newest first."""
        return tuple(reversed(self._plugins.get(driver, ())))

    def plugins(self) -> Sequence[Plugin]:
        """Return all plugins, by driver, the oldest first."""
        return tuple(plugin for driver in sorted(self._plugins) for plugin in self._plugins[driver])

    def gone(self, now: float, after: float) -> Sequence[str]:
        """Return drivers that have been missing for `after` seconds, each once while it stays missing."""
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
        """Return drivers that are missing and not yet reported as gone, and since when."""
        return {driver: since for driver, since in self._missing.items() if since is not None}
