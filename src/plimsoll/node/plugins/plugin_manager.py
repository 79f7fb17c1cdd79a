"""Plugin manager: discovers, registers, watches and calls the drivers of a node.

One task scans the registration directory; one per socket registers its plugin and keeps the connection until
the socket is removed. `registry` and `health` hold the state. See docs/spec/node-protocols.md, "Plugin
registration" and "DRA plugin". Guarantees that nothing a plugin does ends any of the tasks, and that `stop`
leaves none behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import PREPARE, UNPREPARE, ClaimRef, Devices, DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins.connection import PluginConnection
from plimsoll.node.plugins.health import HealthCache, HealthReport, HealthStatus
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugin_info import PluginInfo, RegistrationRefusal
from plimsoll.node.plugins.registration import (
    PluginTiming,
    get_plugin_info,
    notify_plugin,
    open_registration,
    retry_delay,
)
from plimsoll.node.plugins.registry import Plugin, Registry
from plimsoll.node.plugins.responses import read_prepared, read_unprepared
from plimsoll.node.plugins.sockets import Socket, compare, scan
from plimsoll.protocols import rpc

_log = logging.getLogger("plimsoll.plugins")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """Registered plugin of a driver; a driver may have several. `version`: v1 or v1beta1."""

    name: str
    endpoint: str
    version: str
    connected: bool
    registered_at: float


async def _do_nothing(driver: str) -> None:
    return None


class PluginManager:
    """Drivers of this node, by name (`Drivers`), between `start` and `stop`."""

    def __init__(
        self,
        layout: Layout,
        *,
        times: PluginTiming | None = None,
        metrics: DraMetrics | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics or DraMetrics()
        #: Called when a driver was added or removed, or the health of a device changed. Must return quickly.
        self.on_change: Callable[[], None] = lambda: None
        #: Called when no plugin of this driver has been connected for `PluginTiming.gone`. Canceled if one
        #: reconnects.
        self.on_gone: Callable[[str], Awaitable[None]] = _do_nothing
        self._directory = layout.registry
        self._plugins_dir = layout.plugins
        self._times = times or PluginTiming()
        self._clock = clock
        self._monotonic = monotonic
        self.registry = Registry()
        self._health = HealthCache()
        #: By the rank of the plugin.
        self._connections: dict[int, PluginConnection] = {}
        self._ranks = 0
        self._seen: Mapping[Path, Socket] = {}
        self._refused: dict[Path, str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._socket_tasks: dict[Path, asyncio.Task[None]] = {}
        self.cleanups: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[asyncio.Task[None], PluginConnection] = {}

    # -- lifecycle

    async def start(self) -> None:
        """Start to discover plugins; raise ConfigError if the directories cannot be created."""
        for directory in (self._directory, self._plugins_dir):
            try:
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{directory}: cannot be created: {error.strerror}") from None
        if self._watcher is None:
            await self._scan_sockets()
            self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Disconnect from all plugins without notifying them. Calls in progress fail."""
        if self._watcher is not None:
            await cancel_tasks([self._watcher])
            self._watcher = None
        await cancel_tasks([*self._socket_tasks.values(), *self.cleanups.values()])
        self._socket_tasks.clear()
        self.cleanups.clear()
        closing = dict(self._closing)
        await cancel_tasks(closing)
        for connection in closing.values():
            await connection.close()
        self._seen = {}

    # -- queries and calls

    def drivers(self) -> Sequence[DriverInfo]:
        """Return all registered plugins, by driver, the oldest first."""
        return tuple(
            DriverInfo(plugin.driver, plugin.endpoint, plugin.version, plugin.connected, plugin.registered_at)
            for plugin in self.registry.plugins()
        )

    def refused(self) -> Mapping[Path, str]:
        """Return the sockets whose plugins could not be registered so far, and the reasons."""
        return dict(self._refused)

    def health(self, driver: str, pool: str, device: str) -> HealthStatus | None:
        """Return the health of a device; None if its driver does not report health."""
        plugins = [plugin.rank for plugin in self.registry.of(driver)]
        if not any(self._connections[rank].has_health for rank in plugins if rank in self._connections):
            return None
        return self._health.get_health(plugins, pool, device, self._monotonic())

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        return await self._call(driver, PREPARE, claims, read_prepared)

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        return await self._call(driver, UNPREPARE, claims, read_unprepared)

    async def _call(
        self,
        driver: str,
        method: str,
        claims: Sequence[ClaimRef],
        read: Callable[[str, Sequence[ClaimRef], Any], Mapping[str, R | DriverFault]],
    ) -> Mapping[str, R | DriverFault]:
        claims = _deduplicate(claims)
        if not claims:
            return {}
        plugin = self.registry.choose(driver)
        if plugin is not None:
            response = await self._connections[plugin.rank].call(method, claims)
        else:
            text = f"DRA driver {driver} is not registered" if driver else "DRA driver name is empty"
            response = DriverFault(driver, "absent", text)
        if isinstance(response, DriverFault):
            return {claim.uid: response for claim in claims}
        return read(driver, claims, response)

    # -- registration directory

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._times.scan)
            try:
                await self._scan_sockets()
                self._report_gone()
                if self._health.expire(self._monotonic()):
                    self._changed()
            except Exception:
                _log.exception("scanning for plugins failed; retrying")

    async def _scan_sockets(self) -> None:
        """Scan the directory, drop removed sockets and start to register new ones."""
        seen = scan(self._directory)
        changes = compare(self._seen, seen)
        self._seen = seen
        leaving = [self._socket_tasks.pop(socket.path) for socket in changes.gone]
        await cancel_tasks(leaving)
        for socket in changes.gone:
            self._refused.pop(socket.path, None)
        # DIFF: plugins that a kubelet finds when it starts are registered in arbitrary order, and the last
        # one is called. Here the age of the socket decides: test_the_newest_socket_wins_after_a_restart.
        for socket in changes.added:
            self._ranks += 1
            self._socket_tasks[socket.path] = asyncio.create_task(
                self._serve_with_retries(socket.path, self._ranks)
            )

    def _report_gone(self) -> None:
        for driver in self.registry.gone(self._monotonic(), self._times.gone):
            _log.warning("driver %s: no plugin is connected", driver)
            self.cleanups[driver] = asyncio.create_task(self._clean_up(driver))

    async def _clean_up(self, driver: str) -> None:
        try:
            await self.on_gone(driver)
        except Exception:
            _log.exception("driver %s: cleanup failed", driver)
        finally:
            if self.cleanups.get(driver) is asyncio.current_task():
                del self.cleanups[driver]

    # -- single sockets

    async def _serve_with_retries(self, socket: Path, rank: int) -> None:
        """Register the plugin of a socket, with retries, and keep it until canceled."""
        failures = 0
        while True:
            try:
                refusal = await self._serve_socket(socket, rank)
            except Exception as error:
                _log.exception("%s: serving this plugin failed", _format_path(socket))
                refusal = RegistrationRefusal(f"{type(error).__name__}: {error}")
            failures += 1
            self._refused[socket] = refusal.message
            level = logging.WARNING if failures == 1 else logging.DEBUG
            _log.log(
                level, "%s: %s", _format_path(socket), refusal.message.encode("ascii", "replace").decode()
            )
            await asyncio.sleep(retry_delay(failures, self._times))

    async def _serve_socket(self, socket: Path, rank: int) -> RegistrationRefusal:
        """Register a plugin and keep it connected; return only if that failed."""
        async with open_registration(socket, self._times) as channel:
            if isinstance(channel, RegistrationRefusal):
                return channel
            plugin_info = await get_plugin_info(channel, socket, self._times)
            if isinstance(plugin_info, RegistrationRefusal):
                return await self._notify_refusal(channel, socket, plugin_info)
            connection = self._register(plugin_info, rank)
            if isinstance(connection, RegistrationRefusal):
                return await self._notify_refusal(channel, socket, connection)
            try:
                watching = asyncio.create_task(connection.run())
                try:
                    failure = await notify_plugin(channel, socket, "", self._times)
                    await rpc.close(channel)
                    if failure is not None:
                        return failure
                    self._refused.pop(socket, None)
                    _log.info("driver %s: registered with %s", plugin_info.driver, plugin_info.service)
                    await watching
                finally:
                    await cancel_tasks([watching])
            finally:
                self._unregister(connection)
        raise AssertionError("a watched connection ends only with its task")

    async def _notify_refusal(
        self, channel: Any, socket: Path, refusal: RegistrationRefusal
    ) -> RegistrationRefusal:
        return await notify_plugin(channel, socket, refusal.message, self._times) or refusal

    def _register(self, plugin_info: PluginInfo, rank: int) -> PluginConnection | RegistrationRefusal:
        plugin = Plugin(
            plugin_info.driver,
            plugin_info.endpoint,
            plugin_info.service,
            plugin_info.health_service,
            rank,
            self._clock(),
        )
        problem = self.registry.add(plugin, self._monotonic())
        if problem:
            return RegistrationRefusal(
                f"RegisterPlugin error -- plugin registration failed with err: {problem}"
            )
        connection = PluginConnection(
            plugin, self._times, self.metrics, partial(self._connected, plugin), partial(self._reported, rank)
        )
        self._connections[rank] = connection
        self._changed()
        return connection

    def _unregister(self, connection: PluginConnection) -> None:
        plugin = connection.plugin
        self.registry.remove(plugin.driver, plugin.rank, self._monotonic())
        self._health.clear(plugin.rank)
        del self._connections[plugin.rank]
        # DIFF: the kubelet aborts calls in progress when a plugin removes its socket, though a plugin that
        # shuts down gracefully still responds: test_a_driver_that_unregisters_may_finish_its_response.
        task = asyncio.create_task(connection.close_when_idle())
        self._closing[task] = connection
        task.add_done_callback(self._closing.pop)
        self._changed()

    def _connected(self, plugin: Plugin, connected: bool) -> None:
        if self.registry.set_connected(plugin.driver, plugin.rank, connected, self._monotonic()):
            _log.info("driver %s: %s", plugin.driver, "connected" if connected else "connection lost")
            cleanup = self.cleanups.get(plugin.driver)
            if connected and cleanup is not None:
                cleanup.cancel()
            self._changed()

    # DIFF: the kubelet keeps one list for all plugins of a driver, and clears it when the stream of any of
    # them ends: test_the_end_of_one_stream_keeps_the_health_of_other_drivers.
    def _reported(self, rank: int, reports: Sequence[HealthReport] | None) -> None:
        if reports is None:
            changed = self._health.clear(rank)
        else:
            changed = self._health.report(rank, reports, self._monotonic())
        if changed:
            self._changed()

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:
            _log.exception("the change callback failed")


def _deduplicate(claims: Sequence[ClaimRef]) -> Sequence[ClaimRef]:
    return tuple({claim.uid: claim for claim in claims}.values())


def _format_path(socket: Path) -> str:
    return os.fsencode(socket).decode("ascii", "backslashreplace")
