"""Faults of the fault proxy on requests and watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.chaos.scheduler_faults.faults import CallKind, Fault, classify_call
from tests.chaos.scheduler_faults.proxy import FaultProxy
from tests.coroutines import run_by
from tests.simulation.faults import FaultKind
from tests.waiting import DEADLINE, until

CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status"
_BROKEN = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError)


class Upstream:
    """Server that records requests and sends `events` on every watch."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.events: asyncio.Queue[str] = asyncio.Queue()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("watch"):
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while event := await self.events.get():
                await response.write(event.encode() + b"\n")
            return response
        self.reached.append((await request.read()).decode())
        return web.json_response({"got": self.reached[-1]})


Scenario = Callable[[FaultProxy, Upstream, aiohttp.ClientSession, str], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def all_of_it() -> None:
        async with asyncio.timeout(DEADLINE), serve() as (proxy, upstream, session, address):
            await scenario(proxy, upstream, session, address)

    asyncio.run(all_of_it())


@asynccontextmanager
async def serve() -> AsyncIterator[tuple[FaultProxy, Upstream, aiohttp.ClientSession, str]]:
    upstream = Upstream()
    runner = web.ServerRunner(web.Server(upstream.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with FaultProxy(address) as proxy, aiohttp.ClientSession() as session:
        yield proxy, upstream, session, await proxy.listen("a")
    await runner.cleanup()


async def send(session: aiohttp.ClientSession, address: str, body: str = "x") -> int:
    """Return the status of the response, or 0 if the connection broke."""
    try:
        async with session.patch(address + CLAIM, data=body) as answer:
            await answer.read()
            return answer.status
    except _BROKEN:
        return 0


@pytest.mark.parametrize(
    ("fault", "status", "reached"),
    [
        (Fault(FaultKind.DELAY_REQUEST, 0.05), 200, 1),
        (Fault(FaultKind.DELAY_ANSWER, 0.05), 200, 1),
        (Fault(FaultKind.LOSE_REQUEST), 0, 0),
        (Fault(FaultKind.LOSE_ANSWER), 0, 1),
        (Fault(FaultKind.LATE_REQUEST, 0.05), 0, 1),
        (Fault(FaultKind.DUPLICATE, 0.05), 200, 2),
        (Fault(FaultKind.REFUSE), 429, 0),
        (Fault(FaultKind.ERROR_BEFORE, status=504), 504, 0),
        (Fault(FaultKind.ERROR_AFTER, status=502), 502, 1),
        (Fault(FaultKind.CONFLICT), 409, 0),
        (None, 200, 1),
    ],
    ids=lambda each: each.kind.name if isinstance(each, Fault) else None,
)
@run_by(run)
async def test_faults_of_a_request(
    proxy: FaultProxy,
    upstream: Upstream,
    session: aiohttp.ClientSession,
    address: str,
    *,
    fault: Fault | None,
    status: int,
    reached: int,
) -> None:
    proxy.choose = lambda call: fault
    assert await send(session, address) == status
    await proxy.drained(30)
    assert upstream.reached == ["x"] * reached
    assert proxy.counts.total() == (1 if fault else 0)


@run_by(run)
async def test_a_delayed_request_outlives_its_sender(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession, address: str
) -> None:
    gate = asyncio.Event()
    proxy.choose = lambda call: Fault(FaultKind.DELAY_REQUEST, until=gate)
    task = asyncio.create_task(send(session, address, "late"))
    await until(lambda: proxy.pending)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    proxy.choose = lambda call: None
    assert await send(session, address, "next") == 200
    gate.set()
    await proxy.drained(30)
    assert upstream.reached == ["next", "late"]


@run_by(run)
async def test_faults_of_a_watch(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession, address: str
) -> None:
    url = f"{address}/api/v1/pods?watch=true"
    async with session.get(url) as watch:
        upstream.events.put_nowait("one")
        assert await watch.content.readline() == b"one\n"
        assert proxy.watches.resources("a") == ["pods"]
        resumed = asyncio.Event()
        proxy.watches.stall("a", "pods", resumed)
        upstream.events.put_nowait("two")
        reading = asyncio.create_task(watch.content.readline())
        await asyncio.sleep(0.2)
        assert not reading.done()
        resumed.set()
        assert await reading == b"two\n"
        proxy.watches.expire("a", "pods")
        event = json.loads(await watch.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await watch.content.readline() == b""
    async with session.get(url) as watch:
        upstream.events.put_nowait("")  # for the handler of the first watch, which still waits
        upstream.events.put_nowait("three")
        assert await watch.content.readline() == b"three\n"
        proxy.watches.cut("a")
        with pytest.raises(_BROKEN):
            await watch.content.readline()
    proxy.choose = lambda call: Fault(FaultKind.WATCH_REFUSED)
    async with session.get(url) as watch:
        assert watch.status == 410
    proxy.choose = lambda call: Fault(FaultKind.WATCH_CUT, 0.05)
    async with session.get(url) as watch:
        with pytest.raises(_BROKEN):
            await watch.content.readline()
    proxy.choose = lambda call: Fault(FaultKind.WATCH_HELD, 0.05)
    for _ in range(2):
        upstream.events.put_nowait("")  # for the handlers of the watches that were cut
    upstream.events.put_nowait("four")
    async with session.get(url) as watch:
        assert await watch.content.readline() == b"four\n"
    upstream.events.put_nowait("")
    counts = proxy.counts
    assert (counts[FaultKind.WATCH_HELD], counts[FaultKind.WATCH_CUT]) == (2, 2)
    assert counts[FaultKind.WATCH_REFUSED] == 2


def test_calls_are_distinguished() -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims"
    for method, path, kind in (
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", CallKind.LEASE),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", CallKind.LEASE),
        ("PATCH", f"{claims}/c/status", CallKind.CLAIM),
        ("PATCH", f"{claims}/c", CallKind.CLAIM),
        ("GET", f"{claims}/c", CallKind.READ),
        ("POST", "/api/v1/namespaces/n/pods/p/binding", CallKind.BINDING),
        ("PATCH", "/api/v1/namespaces/n/pods/p/status", CallKind.POD_STATUS),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", CallKind.EVENT),
        ("DELETE", "/api/v1/namespaces/n/pods/p", CallKind.OTHER),
    ):
        assert classify_call(method, path, False) is kind
    assert classify_call("GET", "/api/v1/pods", True) is CallKind.WATCH
