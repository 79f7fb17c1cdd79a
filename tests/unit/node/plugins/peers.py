"""Scriptable drivers in the test's event loop, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.node.claim_info import ClaimRef, PreparedDevice
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager, PluginTiming
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration
from tests.directories import short_directory
from tests.leaks import leaked_tasks
from tests.waiting import DEADLINE, until

T = TypeVar("T")
DRIVER = "gpu.example.com"
#: Short intervals, and timeouts that only a driver that never answers reaches.
QUICK = PluginTiming(
    scan=0.02,
    dial=DEADLINE,
    info=DEADLINE,
    notify_plugin=DEADLINE,
    call=DEADLINE,
    retry=0.05,
    longest_retry=0.2,
    health_retry=0.05,
    gone=0.15,
)
V1, BETA = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH, HEALTH_ALPHA = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"

_PEERS: list[Peer] = []


def claim(name: str, uid: str = "") -> ClaimRef:
    return ClaimRef("default", name, uid or f"uid-{name}")


def device(pool: str = "pool", uid: str = "uid-a") -> tuple[PreparedDevice, ...]:
    """Build a device that a peer prepares."""
    return (PreparedDevice(pool, "dev-0", ("gpu",), (f"example.com/gpu={uid}",)),)


@asynccontextmanager
async def node(times: PluginTiming = QUICK, **options: Any) -> AsyncIterator[tuple[Layout, PluginManager]]:
    """Run a plugin manager in its own directory and check that nothing is left of it."""
    with short_directory() as directory:
        layout = Layout(directory)
        plugins = PluginManager(layout, times=times, **options)
        await plugins.start()
        try:
            yield layout, plugins
        finally:
            await plugins.stop()
            left = leaked_tasks("plimsoll/node")
            assert not left, left


async def registered(plugins: PluginManager, count: int = 1, connected: int | None = None) -> None:
    """Wait until a number of plugins is registered, and a number of them connected."""
    wanted = count if connected is None else connected
    await until(
        lambda: plugins.drivers(),
        lambda found: len(found) == count and sum(driver.connected for driver in found) == wanted,
    )


@asynccontextmanager
async def node_with_driver(
    times: PluginTiming = QUICK, **options: Any
) -> AsyncIterator[tuple[PluginManager, Peer]]:
    """Do as `node` does, with a registered driver."""
    async with node(times, **options) as (layout, plugins):
        peer = await Peer(layout).start()
        await registered(plugins)
        yield plugins, peer


class Peer:
    """Driver whose attributes control its responses."""

    def __init__(
        self,
        layout: Layout,
        name: str = DRIVER,
        *,
        instance: str = "",
        versions: Sequence[str] = (V1, BETA),
        type: str = "DRAPlugin",
        endpoint: str | None = None,
        socket: str = "",
    ) -> None:
        self.name, self.type, self.versions = name, type, list(versions)
        suffix = f"-{instance}" if instance else ""
        self.dra = layout.plugins / name / f"dra{suffix}.sock"
        self.socket = layout.registry / (socket or f"{name}{suffix}-reg.sock")
        self.endpoint = str(self.dra) if endpoint is None else endpoint
        self.pool = instance or "pool"
        #: Notifications and calls it received: (method, version, names of claims).
        self.notified: list[tuple[bool, str]] = []
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []
        self.infos = 0
        self.delay = 0.0
        #: Nothing is answered while it is closed.
        self.gate = asyncio.Event()
        self.gate.set()
        #: Answers in place of the usual ones, from the request.
        self.response: Callable[[Any], Any] | None = None
        self.notify_fails = False
        self.info_delay = 0.0
        self.streams: list[asyncio.Queue[Any]] = []
        self.health: list[dict[str, Any]] = []
        self._servers: dict[Path, rpc.RpcServer] = {}
        _PEERS.append(self)

    async def serve(self) -> None:
        """Serve claims and health, without registering."""
        self.dra.parent.mkdir(parents=True, exist_ok=True)
        handlers = [
            rpc.handle(
                messages.DESCRIPTOR,
                "DRAPlugin",
                {
                    "NodePrepareResources": self._prepare(messages, version),
                    "NodeUnprepareResources": self._unprepare(messages, version),
                },
            )
            for version, messages in (("v1", dra_v1), ("v1beta1", dra_v1beta1))
            if f"{version}.DRAPlugin" in self.versions
        ]
        handlers += [
            rpc.handle(
                messages.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": self._watch(messages)}
            )
            for version, messages in ((HEALTH, health_v1), (HEALTH_ALPHA, health_v1alpha1))
            if version in self.versions
        ]
        self._servers[self.dra] = await rpc.serve(self.dra, handlers)

    async def register(self) -> None:
        """Create the registration socket."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        methods: Any = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notify}
        handler = rpc.handle(registration.DESCRIPTOR, "Registration", methods)
        self._servers[self.socket] = await rpc.serve(self.socket, [handler])

    async def start(self) -> Peer:
        await self.serve()
        await self.register()
        return self

    async def stop(self, *paths: Path, grace: float | None = None) -> None:
        """Stop serving one socket, or all; the sockets are removed."""
        for path in paths or tuple(self._servers):
            server = self._servers.pop(path, None)
            if server is not None:
                if grace:
                    path.unlink(missing_ok=True)
                for queue in self.streams:
                    queue.put_nowait(None)
                await server.stop(grace)
                path.unlink(missing_ok=True)

    async def send_health(self, *devices: dict[str, Any]) -> None:
        self.health = list(devices)
        for queue in self.streams:
            queue.put_nowait(self.health)

    async def _info(self, request: Any, context: Any) -> Any:
        self.infos += 1
        await asyncio.sleep(self.info_delay)
        return registration.PluginInfo(
            type=self.type, name=self.name, endpoint=self.endpoint, supported_versions=self.versions
        )

    async def _notify(self, request: Any, context: Any) -> Any:
        self.notified.append((request.plugin_registered, request.error))
        if self.notify_fails:
            await context.abort(rpc.StatusCode.INTERNAL, "not interested")
        return registration.RegistrationStatusResponse()

    def _prepare(self, messages: Any, version: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def prepare(request: Any, context: Any) -> Any:
            self.calls.append(("prepare", version, tuple(claim.name for claim in request.claims)))
            await asyncio.sleep(self.delay)
            await self.gate.wait()
            if self.response is not None:
                return self.response(request)
            response = messages.NodePrepareResourcesResponse()
            for asked in request.claims:
                device = messages.Device(pool_name=self.pool, device_name="dev-0", request_names=["gpu"])
                device.cdi_device_ids.append(f"example.com/gpu={asked.uid}")
                response.claims[asked.uid].devices.append(device)
            return response

        return prepare

    def _unprepare(self, messages: Any, version: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def unprepare(request: Any, context: Any) -> Any:
            self.calls.append(("unprepare", version, tuple(claim.name for claim in request.claims)))
            await asyncio.sleep(self.delay)
            await self.gate.wait()
            if self.response is not None:
                return self.response(request)
            response = messages.NodeUnprepareResourcesResponse()
            for asked in request.claims:
                response.claims[asked.uid].SetInParent()
            return response

        return unprepare

    def _watch(self, messages: Any) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
            queue: asyncio.Queue[Any] = asyncio.Queue()
            self.streams.append(queue)
            queue.put_nowait(self.health)
            try:
                while (devices := await queue.get()) is not None:
                    if isinstance(devices, bytes):
                        yield devices
                        continue
                    yield messages.NodeWatchResourcesResponse(
                        devices=[messages.DeviceHealth(**device) for device in devices]
                    )
            finally:
                self.streams.remove(queue)

        return watch


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a timeout and check that no peer is left."""

    async def bounded() -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                await scenario()
        finally:
            while _PEERS:
                await _PEERS.pop().stop()

    asyncio.run(bounded())
