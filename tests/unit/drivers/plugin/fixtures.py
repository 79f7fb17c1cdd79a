"""API server, node agent side of the sockets, and drivers, on the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.client.retries import Backoff
from plimsoll.client.transport import Reply, Request, ResponseStream, Transport
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    DevicePool,
    Driver,
    InjectedDevice,
    Prepared,
)
from plimsoll.drivers.plugin.slice_publisher import SlicePublisher
from plimsoll.errors import UnreachableError
from tests.leaks import leaked_tasks
from tests.waiting import DEADLINE

T = TypeVar("T")
DRIVER, NODE = "widgets.example.com", "node-1"
Tree = dict[str, Any]


class FlakyTransport:
    """Connection that can be cut, and that records writes."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.down = False
        self.writes: list[tuple[str, str]] = []
        self._ended = asyncio.Event()

    def disconnect(self) -> None:
        self.down = True
        self._ended.set()

    def reconnect(self) -> None:
        self.down = False
        self._ended = asyncio.Event()

    async def send(self, request: Request) -> Reply:
        if self.down:
            raise UnreachableError("connection refused", sent=False)
        if request.method != "GET":
            self.writes.append((request.method, request.path))
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[ResponseStream]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        if self.down:
            raise UnreachableError("connection refused", sent=False)
        async with self.inner.stream(request) as stream:
            yield ResponseStream(stream.status, stream.headers, self._chunks(stream.chunks, self._ended))

    async def _chunks(self, chunks: AsyncIterator[bytes], ended: asyncio.Event) -> AsyncIterator[bytes]:
        over = asyncio.ensure_future(ended.wait())
        iterator = chunks.__aiter__()
        following: asyncio.Future[bytes] | None = None
        try:
            while True:
                following = asyncio.ensure_future(iterator.__anext__())
                await asyncio.wait((following, over), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    raise UnreachableError("connection reset", sent=True)
                try:
                    yield following.result()
                except StopAsyncIteration:
                    return
        finally:
            over.cancel()
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        await self.inner.close()


class ClusterFixture:
    """API server, the driver's client with its transport, and an administrator's client."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.transport = FlakyTransport(InProcessTransport(server.api.handle, ADMIN))
        self.client = Client(self.transport, attempts=1)
        self.admin = server.client()

    async def add_node(self, name: str = NODE) -> str:
        node = await self.admin.create(NODES, {"metadata": {"name": name}})
        uid: str = node["metadata"]["uid"]
        return uid

    async def slices(self) -> list[Tree]:
        listing = await self.admin.list(RESOURCE_SLICES)
        return sorted(
            (codec.decode_tree(raw) for raw in listing.items),
            key=lambda tree: (tree["spec"]["pool"]["name"], tree["metadata"]["name"]),
        )

    async def add_claim(
        self,
        name: str,
        *devices: str,
        driver: str = DRIVER,
        pool: str = NODE,
        more: Sequence[Tree] = (),
        config: Sequence[Tree] = (),
        annotations: Mapping[str, str] | None = None,
    ) -> ClaimRef:
        """Create a claim with these devices of a driver, and further results."""
        exactly = {"deviceClassName": "any"}
        spec = {"devices": {"requests": [{"name": name, "exactly": exactly} for name in ("it", "other")]}}
        made = await self.admin.create(
            RESOURCE_CLAIMS,
            {"metadata": {"name": name, "annotations": dict(annotations or {})}, "spec": spec},
            "default",
        )
        results = [{"request": "it", "driver": driver, "pool": pool, "device": each} for each in devices]
        made["status"] = {
            "allocation": {"devices": {"results": [*results, *more], "config": list(config)}},
        }
        if devices or more:
            made = await self.admin.update(RESOURCE_CLAIMS, made, "default", subresource="status")
        return ClaimRef("default", name, made["metadata"]["uid"])


@asynccontextmanager
async def cluster_fixture(gates: str = "") -> AsyncIterator[ClusterFixture]:
    server = await start_server(
        ServerSettings(controllers=False, gates=Gates.parse(gates) if gates else Gates.default())
    )
    try:
        found = ClusterFixture(server)
        await found.add_node()
        yield found
    finally:
        await server.stop()


class Widgets(Driver):
    """Driver whose attributes control its responses, and that records calls."""

    name = DRIVER

    def __init__(self, *pools: DevicePool) -> None:
        self.offer: Sequence[DevicePool] = pools or (DevicePool(NODE, [{"name": f"w{n}"} for n in range(3)]),)
        self.calls: list[tuple[str, str]] = []
        self.response: Callable[[AllocatedClaim], Prepared] | None = None
        self.refuse: ClaimError | None = None

    def pools(self) -> Sequence[DevicePool]:
        return self.offer

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        self.calls.append(("prepare", claim.ref.name))
        if self.response is not None:
            return self.response(claim)
        return [
            InjectedDevice([result.request], result.pool, result.device, env={"WIDGET": result.device})
            for result in claim.results
        ]

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        self.calls.append(("unprepare", claim.name))
        return self.refuse


def run(
    scenario: Callable[[], Coroutine[Any, Any, None]],
    execute: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> None:
    """Run a scenario that may not hang and may leave no task of the plugin framework running.

    Scenarios without gRPC can be executed in virtual time: `virtual_time.run`.
    """

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario()
        left = leaked_tasks("plimsoll/drivers/plugin")
        assert not left, left

    execute(bounded())


__all__ = ["NAMESPACES", "NODES", "RESOURCE_CLAIMS", "RESOURCE_SLICES"]


def devices(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"w{number}", **more} for number in range(count)]


def publisher(cluster: ClusterFixture, **options: Any) -> SlicePublisher:
    options = {"settle": 0.01, "backoff": Backoff(first=0.02, most=0.1), **options}
    return SlicePublisher(cluster.client, DRIVER, NODE, **options)


@asynccontextmanager
async def running(publisher: SlicePublisher) -> AsyncIterator[SlicePublisher]:
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
