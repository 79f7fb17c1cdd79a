"""The drivers of a node: found, registered, watched and called.

Owns the tasks: one looks into the registration folder, one for each socket there registers its plugin and
keeps the connection until the socket is gone. What they find goes into the books (`registry`, `health`),
which decide. Section 1 and 2 of the node protocols. Promises: nothing a plugin does ends any of the tasks,
and `stop` leaves none behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import ClaimRef, Devices, DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins.connection import Link
from plimsoll.node.plugins.health import Health, HealthBook, Report
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugin_info import Offer, Refusal
from plimsoll.node.plugins.registration import Times, ask_info, conversation, notify, wait_before
from plimsoll.node.plugins.registry import Plugin, Registry
from plimsoll.node.plugins.responses import PREPARE, UNPREPARE, read_prepared, read_released
from plimsoll.node.plugins.sockets import Socket, compare, scan
from plimsoll.protocols import rpc

_log = logging.getLogger("plimsoll.plugins")


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """A registered plugin of a driver; a driver may have several. `version`: v1 or v1beta1."""

    name: str
    endpoint: str
    version: str
    connected: bool
    registered_at: float


def _nothing() -> None:
    return None


async def _nobody(driver: str) -> None:
    return None


class Plugins:
    """The drivers of this node, by name (`Drivers`), between `start` and `stop`."""

    def __init__(
        self,
        layout: Layout,
        *,
        times: Times | None = None,
        metrics: DraMetrics | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics or DraMetrics()
        #: A driver came or went, or the health of a device is another one. To be quick.
        self.on_change: Callable[[], None] = _nothing
        #: No plugin of this driver has been connected for `Times.gone`. Cancelled if one comes back.
        self.on_gone: Callable[[str], Awaitable[None]] = _nobody
        self._folder = layout.registry
        self._plugins_folder = layout.plugins
        self._times = times or Times()
        self._clock = clock
        self._monotonic = monotonic
        self._registry = Registry()
        self._health = HealthBook()
        #: By the rank of the plugin.
        self._links: dict[int, Link] = {}
        self._ranks = 0
        self._seen: Mapping[Path, Socket] = {}
        self._refused: dict[Path, str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._attendants: dict[Path, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[asyncio.Task[None], Link] = {}

    # -- life

    async def start(self) -> None:
        """Begin to look for plugins; ConfigError if the folders for them cannot be made."""
        for folder in (self._folder, self._plugins_folder):
            try:
                folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{folder}: cannot be made: {error.strerror}") from None
        if self._watcher is None:
            await self._look()
            self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Let go of all plugins; they are not told. Calls under way fail."""
        if self._watcher is not None:
            await _end([self._watcher])
            self._watcher = None
        await _end([*self._attendants.values(), *self._wipes.values()])
        self._attendants.clear()
        self._wipes.clear()
        closing = dict(self._closing)
        await _end(closing)
        for link in closing.values():
            await link.close()
        self._seen = {}

    # -- asked by others

    def drivers(self) -> Sequence[DriverInfo]:
        """All registered plugins, by driver, the oldest first."""
        return tuple(
            DriverInfo(plugin.driver, plugin.endpoint, plugin.version, plugin.connected, plugin.registered_at)
            for plugin in self._registry.plugins()
        )

    def refused(self) -> Mapping[Path, str]:
        """Sockets whose plugins could not be registered so far, and why."""
        return dict(self._refused)

    def health(self, driver: str, pool: str, device: str) -> Health | None:
        """A device's health; None if its driver does not speak of health at all."""
        plugins = [plugin.rank for plugin in self._registry.of(driver)]
        if not any(self._links[rank].has_health for rank in plugins if rank in self._links):
            return None
        return self._health.look(plugins, pool, device, self._monotonic())

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        claims = _once(claims)
        if not claims:
            return {}
        answer = await self._call(driver, PREPARE, claims)
        if isinstance(answer, DriverFault):
            return {claim.uid: answer for claim in claims}
        return read_prepared(driver, claims, answer)

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        claims = _once(claims)
        if not claims:
            return {}
        answer = await self._call(driver, UNPREPARE, claims)
        if isinstance(answer, DriverFault):
            return {claim.uid: answer for claim in claims}
        return read_released(driver, claims, answer)

    async def _call(self, driver: str, method: str, claims: Sequence[ClaimRef]) -> Any:
        if not driver:
            return DriverFault(driver, "absent", "DRA driver name is empty")
        plugin = self._registry.choose(driver)
        if plugin is None:
            return DriverFault(driver, "absent", f"DRA driver {driver} is not registered")
        return await self._links[plugin.rank].call(method, claims)

    # -- the folder

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._times.scan)
            try:
                await self._look()
                self._tell_gone()
                if self._health.expire(self._monotonic()):
                    self._changed()
            except Exception:
                _log.exception("looking for plugins failed; it goes on")

    async def _look(self) -> None:
        """Look into the folder, let go of the sockets that went and begin with those that came."""
        seen = scan(self._folder)
        changes = compare(self._seen, seen)
        self._seen = seen
        leaving = [self._attendants.pop(socket.path) for socket in changes.gone]
        await _end(leaving)
        for socket in changes.gone:
            self._refused.pop(socket.path, None)
        # DIFF: plugins that a kubelet finds when it starts are registered in any order, and the last one is
        # the one it asks. Here the age of the socket counts: test_the_newest_socket_wins_after_a_restart.
        for socket in changes.come:
            self._ranks += 1
            self._attendants[socket.path] = asyncio.create_task(self._attend(socket.path, self._ranks))

    def _tell_gone(self) -> None:
        for driver in self._registry.gone(self._monotonic(), self._times.gone):
            _log.warning("driver %s: no plugin is connected", driver)
            self._wipes[driver] = asyncio.create_task(self._wipe(driver))

    async def _wipe(self, driver: str) -> None:
        try:
            await self.on_gone(driver)
        except Exception:
            _log.exception("driver %s: cleaning up after it failed", driver)
        finally:
            if self._wipes.get(driver) is asyncio.current_task():
                del self._wipes[driver]

    # -- one socket

    async def _attend(self, socket: Path, rank: int) -> None:
        """Register the plugin of a socket, again and again if need be, and keep it until cancelled."""
        failures = 0
        while True:
            try:
                refusal = await self._serve_socket(socket, rank)
            except Exception as error:
                _log.exception("%s: attending to this plugin failed", _shown(socket))
                refusal = Refusal(f"{type(error).__name__}: {error}")
            failures += 1
            self._refused[socket] = refusal.message
            level = logging.WARNING if failures == 1 else logging.DEBUG
            _log.log(level, "%s: %s", _shown(socket), refusal.message.encode("ascii", "replace").decode())
            await asyncio.sleep(wait_before(failures, self._times))

    async def _serve_socket(self, socket: Path, rank: int) -> Refusal:
        """Register a plugin and keep it; returns only if that did not work."""
        async with conversation(socket, self._times) as channel:
            if isinstance(channel, Refusal):
                return channel
            offer = await ask_info(channel, socket, self._times)
            if isinstance(offer, Refusal):
                return await self._tell(channel, socket, offer)
            link = self._book(offer, rank)
            if isinstance(link, Refusal):
                return await self._tell(channel, socket, link)
            try:
                watching = asyncio.create_task(link.run())
                try:
                    untold = await notify(channel, socket, "", self._times)
                    await rpc.close(channel)
                    if untold is not None:
                        return untold
                    self._refused.pop(socket, None)
                    _log.info("driver %s: registered with %s", offer.driver, offer.service)
                    await watching
                finally:
                    await _end([watching])
            finally:
                self._unbook(link)
        raise AssertionError("a watched connection ends only with its task")

    async def _tell(self, channel: Any, socket: Path, refusal: Refusal) -> Refusal:
        untold = await notify(channel, socket, refusal.message, self._times)
        return untold or Refusal(refusal.message, told=True)

    def _book(self, offer: Offer, rank: int) -> Link | Refusal:
        plugin = Plugin(
            offer.driver, offer.endpoint, offer.service, offer.health_service, rank, self._clock()
        )
        trouble = self._registry.add(plugin, self._monotonic())
        if trouble:
            return Refusal(f"RegisterPlugin error -- plugin registration failed with err: {trouble}")
        link = Link(
            plugin, self._times, self.metrics, partial(self._connected, plugin), partial(self._reported, rank)
        )
        self._links[rank] = link
        self._changed()
        return link

    def _unbook(self, link: Link) -> None:
        plugin = link.plugin
        self._registry.remove(plugin.driver, plugin.rank, self._monotonic())
        self._health.clear(plugin.rank)
        del self._links[plugin.rank]
        # DIFF: the kubelet breaks off calls under way when a plugin takes its socket away, though a plugin
        # that ends in good order still answers them: test_a_driver_that_leaves_may_finish_its_answer.
        task = asyncio.create_task(link.close_when_idle())
        self._closing[task] = link
        task.add_done_callback(self._closing.pop)
        self._changed()

    def _connected(self, plugin: Plugin, connected: bool) -> None:
        if self._registry.set_connected(plugin.driver, plugin.rank, connected, self._monotonic()):
            _log.info("driver %s: %s", plugin.driver, "connected" if connected else "connection lost")
            wipe = self._wipes.get(plugin.driver)
            if connected and wipe is not None:
                wipe.cancel()
            self._changed()

    # DIFF: the kubelet keeps one list for all plugins of a driver, and forgets it when the stream of any of
    # them ends: test_the_end_of_one_stream_leaves_what_others_say.
    def _reported(self, rank: int, reports: Sequence[Report] | None) -> None:
        if reports is None:
            news = self._health.clear(rank)
        else:
            news = self._health.report(rank, reports, self._monotonic())
        if news:
            self._changed()

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:
            _log.exception("telling of a change failed")


def _once(claims: Sequence[ClaimRef]) -> Sequence[ClaimRef]:
    return tuple({claim.uid: claim for claim in claims}.values())


def _shown(socket: Path) -> str:
    return os.fsencode(socket).decode("ascii", "backslashreplace")


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them."""
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
