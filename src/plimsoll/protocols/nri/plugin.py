"""NRI plugin: the plugin's side of the protocol (docs/spec/node-protocols.md, "NRI").

Guarantees: one connection at a time; a runtime that disconnects, hangs or sends malformed data ends only the
connection; a handler that fails is answered with an error; `serve` reconnects until cancelled, with backoff.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from plimsoll.common.tasks import cancel_tasks
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri.events import NOTIFICATIONS, PLUGIN, RUNTIME, NriEvent, mask_of
from plimsoll.protocols.nri.names import NRI_VERSION, Version, nri_version
from plimsoll.protocols.ttrpc import (
    CLOSED,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    Handler,
    TtrpcClient,
    TtrpcFault,
    TtrpcServer,
)

logger = logging.getLogger(__name__)

DEFAULT_SOCKET = Path("/var/run/nri/nri.sock")
#: Maximum number of pods and containers in all parts of one synchronization.
MAX_OBJECTS = 200_000

#: Receives all pods and containers; returns updates of containers.
Synchronize: TypeAlias = Callable[
    [Sequence[nri.PodSandbox], Sequence[nri.Container]], Awaitable[Iterable[nri.ContainerUpdate] | TtrpcFault]
]
#: Receives the configuration of the runtime; returns an event mask, or None for the events with handlers.
Configure: TypeAlias = Callable[[nri.ConfigureRequest], Awaitable[int | TtrpcFault | None]]


class NriPlugin:
    """NRI plugin with handlers by event, each called with the request of its event.

    A handler returns the event's response, a TtrpcFault, or None for an empty response. Handlers run
    concurrently. `update_containers` must not be awaited inside a handler: runtimes respond to it afterwards.
    """

    def __init__(
        self,
        name: str,
        index: str,
        handlers: Mapping[NriEvent, Handler],
        *,
        socket: Path = DEFAULT_SOCKET,
        synchronize: Synchronize | None = None,
        configure: Configure | None = None,
        events: int | None = None,
        registration_timeout: float = 5.0,
    ) -> None:
        self.name = name
        self.index = index
        self.socket = socket
        self._handlers = dict(handlers)
        self._synchronize = synchronize
        self._configure = configure
        # NRI cannot express an empty subscription: an empty mask means all events.
        self._events = mask_of(handlers or {NriEvent.REMOVE_POD_SANDBOX}) if events is None else events
        self._registration_timeout = registration_timeout
        self._client: TtrpcClient | None = None
        self._mux: Mux | None = None
        self._reconnecting = False
        self.pods: list[nri.PodSandbox] = []
        self._containers: list[nri.Container] = []
        self._synchronized = asyncio.Event()
        #: As reported by the runtime; None before the first connection.
        self.runtime: nri.ConfigureRequest | None = None

    @property
    def synchronized(self) -> bool:
        """True if the runtime is connected and has sent its state."""
        return self._synchronized.is_set()

    @property
    def nri_version(self) -> Version | None:
        """NRI version of the runtime, if known."""
        if self.runtime is None:
            return None
        runtime = self.runtime
        return nri_version(runtime.runtime_name, runtime.runtime_version, runtime.NRI_version)

    async def run(self) -> TtrpcFault | None:
        """Run one connection until it ends; returns a TtrpcFault if it was not registered."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.socket))
        except (OSError, ValueError) as error:
            return TtrpcFault(UNAVAILABLE, f"{self.socket}: {error}", "closed")
        return await self.run_on(reader, writer)

    async def run_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> TtrpcFault | None:
        """Run over an existing connection."""
        mux = Mux(reader, writer)
        server = TtrpcServer(mux.open(PLUGIN_SERVICE), PLUGIN, self._methods())
        client = TtrpcClient(mux.open(RUNTIME_SERVICE))
        self.pods, self._containers = [], []
        self._client, self._mux = client, mux
        try:
            answer = await client.call(
                RUNTIME.methods_by_name["RegisterPlugin"],
                nri.RegisterPluginRequest(
                    plugin_name=self.name, plugin_idx=self.index, NRI_version=NRI_VERSION
                ),
                timeout=self._registration_timeout,
            )
            if isinstance(answer, TtrpcFault):
                return answer
            await mux.wait_closed()
            return None
        finally:
            self._synchronized.clear()
            self._client = self._mux = None
            await server.close()
            await client.close()
            await mux.close()

    async def serve(
        self,
        *,
        shortest: float = 0.1,
        longest: float = 10.0,
        ended: Callable[[TtrpcFault | None], None] | None = None,
    ) -> None:
        """Reconnect until cancelled, with exponential backoff and jitter.

        `ended` is called for every connection that ends or fails, with the reason.
        """
        pause, logged = shortest, ""
        while True:
            served = asyncio.create_task(self._synchronized.wait())
            try:
                fault = await self.run()
            finally:
                was_served = served.done()
                await cancel_tasks([served])
            if was_served:
                pause, logged = shortest, ""
            if ended is not None:
                ended(fault)
            if fault is not None and fault.message != logged:
                logged = fault.message
                logger.warning("NRI plugin %s: %s", self.name, logged)
            if self._reconnecting:
                self._reconnecting = False
                continue
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(longest, pause * 2)

    async def reconnect(self) -> None:
        """Close the connection; `serve` connects again at once, and the runtime synchronizes.

        Never call this inside a handler.
        """
        if self._mux is not None:
            self._reconnecting = True
            await self._mux.close()

    async def update_containers(
        self,
        updates: Iterable[nri.ContainerUpdate],
        evict: Iterable[nri.ContainerEviction] = (),
        *,
        timeout: float = 5.0,
    ) -> tuple[nri.ContainerUpdate, ...] | TtrpcFault:
        """Update containers; return those that could not be updated. Never call this inside a handler."""
        client = self._client
        if client is None:
            return CLOSED
        request = nri.UpdateContainersRequest(update=list(updates), evict=list(evict))
        answer = await client.call(RUNTIME.methods_by_name["UpdateContainers"], request, timeout=timeout)
        return answer if isinstance(answer, TtrpcFault) else tuple(answer.failed)

    # -- calls of the runtime

    def _methods(self) -> dict[str, Handler]:
        methods: dict[str, Handler] = {
            "Configure": self._on_configure,
            "Synchronize": self._on_synchronize,
            "Shutdown": self._on_shutdown,
            "StateChange": self._on_state_change,
        }
        for event in NriEvent:
            methods[event.method] = self._handlers.get(event, _ignore)
        return methods

    async def _on_configure(self, request: nri.ConfigureRequest) -> nri.ConfigureResponse | TtrpcFault:
        self.runtime = request
        events: int | TtrpcFault | None = None
        if self._configure is not None:
            events = await self._configure(request)
        if isinstance(events, TtrpcFault):
            return events
        return nri.ConfigureResponse(events=self._events if events is None else events)

    async def _on_synchronize(self, request: nri.SynchronizeRequest) -> nri.SynchronizeResponse | TtrpcFault:
        self.pods.extend(request.pods)
        self._containers.extend(request.containers)
        if len(self.pods) + len(self._containers) > MAX_OBJECTS:
            self.pods, self._containers = [], []
            return TtrpcFault(RESOURCE_EXHAUSTED, f"more than {MAX_OBJECTS} pods and containers")
        if request.more:
            return nri.SynchronizeResponse(more=True)
        pods, containers = self.pods, self._containers
        self.pods, self._containers = [], []
        updates: Iterable[nri.ContainerUpdate] | TtrpcFault = ()
        if self._synchronize is not None:
            updates = await self._synchronize(pods, containers)
        if isinstance(updates, TtrpcFault):
            return updates
        self._synchronized.set()
        return nri.SynchronizeResponse(update=list(updates))

    async def _on_shutdown(self, request: nri.Empty) -> None:
        logger.info("NRI plugin %s: the runtime shuts down", self.name)

    async def _on_state_change(self, event: nri.StateChangeEvent) -> TtrpcFault | None:
        known: NriEvent | None = None
        with suppress(ValueError):
            known = NriEvent(event.event)
        handler = None if known is None else self._handlers.get(known)
        if known is None or known not in NOTIFICATIONS or handler is None:
            return None
        request: Any = known.request(pod=event.pod)
        if event.HasField("container") and "container" in request.DESCRIPTOR.fields_by_name:
            request.container.CopyFrom(event.container)
        answer = await handler(request)
        return answer if isinstance(answer, TtrpcFault) else None


async def _ignore(request: Any) -> None:
    return None
