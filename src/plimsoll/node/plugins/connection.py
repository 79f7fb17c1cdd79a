"""Persistent connection to one registered plugin.

Tracks whether it is connected, makes calls, and watches the health of its devices. Guarantees that it always
tries to connect, that calls in progress when the plugin leaves may complete, and that nothing raises except
for a bug.
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
from plimsoll.node.plugins.calls import call_driver
from plimsoll.node.plugins.health import HealthReport, read_reports
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.plugins.plugin_info import HEALTH_V1, HEALTH_V1ALPHA1
from plimsoll.node.plugins.registration import PluginTiming
from plimsoll.node.plugins.registry import Plugin
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import health_v1, health_v1alpha1

_log = logging.getLogger("plimsoll.plugins")
_MESSAGES: dict[str, ModuleType] = {HEALTH_V1: health_v1, HEALTH_V1ALPHA1: health_v1alpha1}
#: gRPC's usual limit; responses about claims are far smaller.
_MAX_BYTES = 4 * 1024 * 1024
#: Minimum interval between two health messages: a driver that sends more is throttled.
_PAUSE = 0.05


class PluginConnection:
    """Connection to a plugin, from its registration to its removal."""

    def __init__(
        self,
        plugin: Plugin,
        times: PluginTiming,
        metrics: DraMetrics,
        connected: Callable[[bool], None],
        reported: Callable[[Sequence[HealthReport] | None], None],
    ) -> None:
        """`connected` is called on every change, `reported` with health messages, None at their end."""
        self.plugin = plugin
        #: Whether health is watched; a plugin that turns out not to support it is not asked again.
        self.has_health = bool(plugin.health_service)
        self._times = times
        self._metrics = metrics
        self._connected = connected
        self._reported = reported
        self._channel = rpc.dial(Path(plugin.endpoint), max_size=_MAX_BYTES)
        self._calls_in_progress = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(self, method: str, claims: Sequence[ClaimRef]) -> Any:
        """Return a driver's response message, or a fault."""
        self._calls_in_progress += 1
        self._idle.clear()
        try:
            return await call_driver(
                self._channel,
                self.plugin.service,
                method,
                self.plugin.driver,
                claims,
                self._metrics,
                timeout=self._times.call,
            )
        finally:
            self._calls_in_progress -= 1
            if not self._calls_in_progress:
                self._idle.set()

    async def run(self) -> None:
        """Watch the connection, and the health if supported, until canceled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_connection())
            if self.has_health:
                group.create_task(self._watch_health())

    async def close(self) -> None:
        """Close the connection, and abort calls in progress."""
        await self._channel.close()

    async def close_when_idle(self) -> None:
        """Close the connection once no call is in progress."""
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
            code = await self._watch_health_stream()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                # Announced but not implemented: not tried again before the next registration.
                self.has_health = False
                self._reported(None)
                return
            await asyncio.sleep(self._times.health_retry)

    async def _watch_health_stream(self) -> grpc.StatusCode:
        """Watch one stream to its end; return its status code."""
        messages = _MESSAGES[self.plugin.health_service]
        method = rpc.find_method(messages.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")
        stream = rpc.watch(self._channel, method, messages.NodeWatchResourcesRequest())
        try:
            async for message in stream:
                if message is None:  # the message cannot be decoded
                    return grpc.StatusCode.INTERNAL
                self._reported(read_reports(message))
                await asyncio.sleep(_PAUSE)
        except grpc.aio.AioRpcError as error:
            _log.debug("driver %s: health stream ended: %s", self.plugin.driver, error.code())
            return error.code()
        finally:
            stream.cancel()  # type: ignore[attr-defined]
            self._reported(None)
        return grpc.StatusCode.OK
