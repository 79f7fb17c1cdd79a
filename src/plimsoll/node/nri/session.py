"""Connection of one plugin, on the runtime's side.

Handles registration, configuration, synchronization and event delivery: by the event's own call, or as
StateChange once the plugin has shown that it does not implement it. Guarantees that every wait is bounded,
that a plugin which does not respond in time or disconnects is closed, and that nothing it sends raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from plimsoll.api.go_text import quote_go
from plimsoll.node.nri.split import split
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri.events import ALL_EVENTS, NOTIFICATIONS, PLUGIN, RUNTIME, NriEvent
from plimsoll.protocols.nri.names import NRI_VERSION, index_fault, name_fault
from plimsoll.protocols.ttrpc import (
    CLOSED,
    TIMED_OUT,
    UNIMPLEMENTED,
    UNKNOWN,
    TtrpcClient,
    TtrpcFault,
    TtrpcServer,
)

logger = logging.getLogger(__name__)

#: Handler of a plugin's unsolicited update of containers.
Update: TypeAlias = Callable[
    ["PluginSession", nri.UpdateContainersRequest], Awaitable[nri.UpdateContainersResponse | TtrpcFault]
]


class PluginSession:
    """Connected plugin."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        update: Update,
        *,
        registration_timeout: float = 5.0,
        request_timeout: float = 2.0,
    ) -> None:
        self._update = update
        self._registration_timeout = registration_timeout
        self._request_timeout = request_timeout
        self._registered: asyncio.Future[TtrpcFault | None] = asyncio.get_running_loop().create_future()
        self._mux = Mux(reader, writer)
        self._client = TtrpcClient(self._mux.open(PLUGIN_SERVICE))
        self._server = TtrpcServer(
            self._mux.open(RUNTIME_SERVICE),
            RUNTIME,
            {"RegisterPlugin": self._on_register, "UpdateContainers": self._on_update},
        )
        self.base = ""
        self.index = ""
        self.events = 0
        #: Whether events are delivered by StateChange.
        self.uses_state_change = False

    @property
    def name(self) -> str:
        return f"{self.index}-{self.base}"

    @property
    def closed(self) -> bool:
        return self._mux.closed

    @property
    def is_validator(self) -> bool:
        return self.subscribed(NriEvent.VALIDATE_CONTAINER_ADJUSTMENT)

    def subscribed(self, event: NriEvent) -> bool:
        return bool(self.events & event.bit)

    async def wait_closed(self) -> None:
        await self._mux.wait_closed()

    def end(self) -> None:
        """Close without waiting."""
        self._mux.end()

    async def close(self) -> None:
        await self._server.close()
        await self._client.close()
        await self._mux.close()

    # -- registration

    async def _on_register(self, request: nri.RegisterPluginRequest) -> TtrpcFault | None:
        if self._registered.done():
            return TtrpcFault(UNKNOWN, f"plugin {quote_go(self.name)} is registered already")
        fault = None
        if text := name_fault(request.plugin_name):
            fault = TtrpcFault(UNKNOWN, f"invalid plugin name: {text}")
        elif text := index_fault(request.plugin_idx):
            fault = TtrpcFault(UNKNOWN, f"invalid plugin index: {text}")
        else:
            self.base, self.index = request.plugin_name, request.plugin_idx
        self._registered.set_result(fault)
        return fault

    async def wait_registered(self) -> TtrpcFault | None:
        """Wait until the plugin has registered; return a TtrpcFault if that fails or its name is invalid."""
        gone = asyncio.create_task(self.wait_closed())
        either: set[asyncio.Future[Any]] = {gone, self._registered}
        try:
            await asyncio.wait(
                either, timeout=self._registration_timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            gone.cancel()
        if self._registered.done():
            return self._registered.result()
        return (
            CLOSED if self.closed else TtrpcFault(TIMED_OUT.code, "plugin registration timed out", "timeout")
        )

    async def configure(self, runtime_name: str, runtime_version: str, config: str) -> TtrpcFault | None:
        request = nri.ConfigureRequest(
            config=config,
            runtime_name=runtime_name,
            runtime_version=runtime_version,
            registration_timeout=round(self._registration_timeout * 1000),
            request_timeout=round(self._request_timeout * 1000),
            NRI_version=NRI_VERSION,
        )
        response = await self._call("Configure", request)
        if isinstance(response, TtrpcFault):
            return TtrpcFault(response.code, f"failed to configure plugin: {response.message}", response.kind)
        if extra := response.events & ~ALL_EVENTS & 0xFFFFFFFF:
            return TtrpcFault(UNKNOWN, f"invalid plugin events: 0x{extra:x}")
        self.events = response.events or ALL_EVENTS
        return None

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> tuple[nri.ContainerUpdate, ...] | TtrpcFault:
        """Send all pods and containers; return the updates that the plugin requests."""
        parts = split(pods, containers)
        if parts is None:
            return TtrpcFault(UNKNOWN, "failed to synchronize plugin with split messages")
        response: Any = None
        for part in parts:
            response = await self._call("Synchronize", part)
            if isinstance(response, TtrpcFault):
                return response
            if part.more and (response.update or not response.more):
                return TtrpcFault(UNKNOWN, "plugin does not handle split sync requests")
        return tuple(response.update)

    # -- events

    async def deliver(self, event: NriEvent, request: Any) -> Any | TtrpcFault:
        """Deliver an event and return the response; close a plugin that does not respond in time."""
        if self.uses_state_change and event in NOTIFICATIONS:
            response = await self._deliver_state_change(event, request)
        else:
            response = await self._call(event.method, request)
            if isinstance(response, TtrpcFault) and response.code == UNIMPLEMENTED and event in NOTIFICATIONS:
                logger.info("NRI plugin %s: events are delivered by StateChange from now on", self.name)
                self.uses_state_change = True
                response = await self._deliver_state_change(event, request)
        if isinstance(response, TtrpcFault) and response.fatal:
            logger.warning("NRI plugin %s is closed: %s: %s", self.name, event.method, response.message)
            self.end()
        return response

    async def _deliver_state_change(self, event: NriEvent, request: Any) -> Any | TtrpcFault:
        change = nri.StateChangeEvent(event=int(event), pod=request.pod)  # type: ignore[arg-type]
        if "container" in request.DESCRIPTOR.fields_by_name:
            change.container.CopyFrom(request.container)
        response = await self._call("StateChange", change)
        return response if isinstance(response, TtrpcFault) else event.response()

    async def shut_down(self) -> None:
        """Notify a plugin of the shutdown."""
        await self._client.call(PLUGIN.methods_by_name["Shutdown"], nri.Empty(), timeout=0.2)

    async def _call(self, method: str, request: Any) -> Any | TtrpcFault:
        return await self._client.call(PLUGIN.methods_by_name[method], request, timeout=self._request_timeout)

    async def _on_update(
        self, request: nri.UpdateContainersRequest
    ) -> nri.UpdateContainersResponse | TtrpcFault:
        if not self._registered.done() or not self.base:
            return TtrpcFault(UNKNOWN, "the plugin is not registered")
        return await self._update(self, request)
