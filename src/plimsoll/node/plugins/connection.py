"""The standing connection to one registered plugin.

Owns the channel: whether it is connected, calls over it, and the stream of its devices' health. Promises: it
always tries to be connected; calls under way when the plugin leaves may end; nothing raises but a bug.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio

from plimsoll.node.claim_info import ClaimRef
from plimsoll.node.plugins.calls import ask
from plimsoll.node.plugins.health import Report, read_reports
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugin_info import HEALTH_V1, HEALTH_V1ALPHA1
from plimsoll.node.plugins.registration import Times
from plimsoll.node.plugins.registry import Plugin
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import health_v1, health_v1alpha1

_log = logging.getLogger("plimsoll.plugins")
_MESSAGES: dict[str, ModuleType] = {HEALTH_V1: health_v1, HEALTH_V1ALPHA1: health_v1alpha1}
#: As gRPC has it elsewhere; no answer about claims comes near.
_LARGEST = 4 * 1024 * 1024
#: Between two messages about health that are looked at: a driver that says more waits.
_PAUSE = 0.05


class Link:
    """The connection to a plugin, from its registration to its end."""

    def __init__(
        self,
        plugin: Plugin,
        times: Times,
        metrics: DraMetrics,
        connected: Callable[[bool], None],
        reported: Callable[[Sequence[Report] | None], None],
    ) -> None:
        """`connected` hears of every change, `reported` of every message about health; None: it ended."""
        self.plugin = plugin
        #: Whether health is listened to; a plugin that turns out not to have it is not asked again.
        self.has_health = bool(plugin.health_service)
        self._times = times
        self._metrics = metrics
        self._connected = connected
        self._reported = reported
        self._channel = rpc.dial(Path(plugin.endpoint), largest=_LARGEST)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(self, method: str, claims: Sequence[ClaimRef]) -> Any:
        """A driver's answer as its message, or a fault."""
        self._under_way += 1
        self._idle.clear()
        try:
            return await ask(
                self._channel,
                self.plugin.service,
                method,
                self.plugin.driver,
                claims,
                self._metrics,
                timeout=self._times.call,
            )
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def run(self) -> None:
        """Watch the connection, and the health if there is any, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_connection())
            if self.has_health:
                group.create_task(self._watch_health())

    async def close(self) -> None:
        """End the connection, and calls under way."""
        await self._channel.close()

    async def close_when_idle(self) -> None:
        """End the connection as soon as no call is under way."""
        await self._idle.wait()
        await self._channel.close()

    async def _watch_connection(self) -> None:
        before = False
        while True:
            state = self._channel.get_state(try_to_connect=True)
            connected = state is grpc.ChannelConnectivity.READY
            if connected != before:
                before = connected
                self._connected(connected)
            await self._channel.wait_for_state_change(state)

    async def _watch_health(self) -> None:
        while True:
            code = await self._follow_health()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                # It says that it has the service and has not; it will be asked when it registers anew.
                self.has_health = False
                self._reported(None)
                return
            await asyncio.sleep(self._times.health_retry)

    async def _follow_health(self) -> grpc.StatusCode:
        """Follow one stream to its end; how it ended."""
        messages = _MESSAGES[self.plugin.health_service]
        method = rpc.method_of(messages.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")
        stream = rpc.watch(self._channel, method, messages.NodeWatchResourcesRequest())
        try:
            async for message in stream:
                if message is None:  # what came cannot be read
                    return grpc.StatusCode.INTERNAL
                self._reported(read_reports(message))
                await asyncio.sleep(_PAUSE)
        except grpc.aio.AioRpcError as error:
            _log.debug("driver %s: the stream of health ended: %s", self.plugin.driver, error.code())
            return error.code()
        finally:
            stream.cancel()  # type: ignore[attr-defined]
            self._reported(None)
        return grpc.StatusCode.OK
