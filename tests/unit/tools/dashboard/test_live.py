"""Dashboard of a changing cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yarl import URL

from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client import endpoints as at
from plimsoll.errors import InputError, UnreachableError
from plimsoll.tools.dashboard import Dashboard
from plimsoll.tools.dashboard.changes import ChangeScope
from plimsoll.tools.dashboard.event_stream import MOST_NODES, EventStream, change_event
from tests.coroutines import run_by
from tests.dumps import big_cluster
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer
from tests.unit.tools.dashboard.pages import DashboardClient, Tree, visiting
from tests.waiting import DEADLINE, until

NODE: Tree = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a"},
    "status": {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    },
}


def pod(name: str, cpu: str = "1", node: str = "a") -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec: Tree = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def live(scenario: Callable[[DashboardClient, Client], Awaitable[None]], **options: Any) -> None:
    """Run a scenario with the dashboard of an embedded server, in one process as in `plimsoll up`."""

    async def run() -> None:
        server = await start_server(ServerSettings())
        try:
            client = server.client()
            await client.create(at.NODES, NODE)
            async with visiting(client, origin="here", **options) as visitor:
                await scenario(visitor, client)
        finally:
            await server.stop()

    asyncio.run(run())


class EventStreamClient:
    """Client of the dashboard's event stream."""

    def __init__(self, content: Any) -> None:
        self.content = content

    async def next(self, seconds: float = 10.0) -> tuple[str, Tree]:
        async with asyncio.timeout(seconds):
            name = ""
            while True:
                line = (await self.content.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return name, json.loads(line.removeprefix("data: "))

    async def change(self) -> Tree:
        """Return the next event with changes."""
        while True:
            name, tree = await self.next()
            if name == "change" and tree["kinds"] and tree["kinds"] != ["Finding"]:
                return tree


@asynccontextmanager
async def listening(visitor: DashboardClient) -> AsyncIterator[EventStreamClient]:
    async with visitor.session.get(visitor.at("/api/events")) as response:
        assert response.status == 200
        yield EventStreamClient(response.content)


@run_by(live)
async def test_changes_are_shown_and_announced(visitor: DashboardClient, client: Client) -> None:
    before = await visitor.get("/api/overview")
    assert (before["live"], before["origin"]) == (True, "here")
    async with listening(visitor) as stream:
        name, first = await stream.next()
        assert (name, first["nodes"], first["kinds"]) == ("change", [], [])
        assert first["revision"] == before["revision"]
        await client.create(at.PODS, pod("p", "2"))
        changed = await stream.change()
        assert changed["nodes"] == ["a"]
        assert changed["kinds"] == ["Pod"]
        assert changed["revision"] > before["revision"]
        found = await visitor.get("/api/nodes/a")
        assert found["revision"] >= changed["revision"]
        assert found["rows"][0]["requests"] == 2000
        assert (await visitor.get("/api/nodes"))["columns"]["cpu"]["requests"] == [2000]
        await client.delete(at.PODS, "p", "default", grace=0)
        while (await visitor.get("/api/nodes"))["pods"] != [0]:
            assert (await stream.change())["nodes"] == ["a"]


@run_by(live)
async def test_heartbeats_are_not_announced(visitor: DashboardClient, client: Client) -> None:
    before = await visitor.get("/api/nodes")
    node = await client.get(at.NODES, "a")
    node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:01:00Z"
    node = await client.update(at.NODES, node, subresource="status")
    async with listening(visitor) as stream:
        await stream.next()
        node["status"]["conditions"][0]["status"] = "False"
        await client.update(at.NODES, node, subresource="status")
        changed = await stream.change()
        assert changed["revision"] == before["revision"] + 1
    assert (await visitor.get("/api/nodes"))["ready"] == [False]


@run_by(live)
async def test_long_queries_see_one_state(visitor: DashboardClient, client: Client) -> None:
    assert (await visitor.get("/api/pods?state=pending"))["total"] == 0  # the second worker is there now
    await client.create(at.PODS, pod("big", "9", ""))
    found = await visitor.until("/api/pods?state=pending", lambda tree: tree["total"])
    assert "Insufficient cpu" in found["items"][0]["why"]
    changed = await visitor.get("/api/explain/pod/default/big")
    assert changed["subject"].endswith("default/big")
    status, text = await visitor.ask("/api/whatif", "POST", json={"remove": ["Pod/default/big"]})
    assert status == 200, text
    await client.delete(at.PODS, "big", "default", grace=0)
    await visitor.until("/api/pods?state=pending", lambda tree: not tree["total"])


@run_by(live)
async def test_bursts_are_reported_together(visitor: DashboardClient, client: Client) -> None:
    async with listening(visitor) as stream:
        await stream.next()
        for number in range(50):
            await client.create(at.PODS, pod(f"p{number}", "10m"))
        events = 0
        while (await visitor.get("/api/nodes"))["pods"] != [50]:
            await stream.change()
            events += 1
        assert events < 10


@run_by(live)
async def test_a_disconnected_page_is_removed(visitor: DashboardClient, client: Client) -> None:
    notices = visitor.dashboard.service.events
    async with listening(visitor) as stream:
        await stream.next()
        assert len(notices) == 1
    async with asyncio.timeout(DEADLINE):
        while len(notices):
            await client.create(
                at.PODS, {**pod("x"), "metadata": {"generateName": "x-", "namespace": "default"}}
            )
            await asyncio.sleep(0.05)


@run_by(live)
async def test_the_server_stops_while_pages_listen(visitor: DashboardClient, client: Client) -> None:
    async with listening(visitor) as stream:
        await stream.next()
        async with asyncio.timeout(DEADLINE):
            await visitor.dashboard.stop()
            assert (await stream.content.read()).strip() == b""


@run_by(live)
async def test_idle_streams_get_pings(visitor: DashboardClient, client: Client) -> None:
    visitor.dashboard.service.events.ping = 0.05
    async with listening(visitor) as stream:
        seen = [await stream.next() for _ in range(3)]
    assert ("ping", {}) in seen


def test_events_name_nodes_or_all_of_them() -> None:
    def read(event: bytes) -> Tree:
        found: Tree = json.loads(event.split(b"data: ")[1])
        return found

    assert read(change_event(3, 1, ChangeScope({"b", "a"}, False, {"Pod"}))) == {
        "revision": 3,
        "status": 1,
        "nodes": ["a", "b"],
        "kinds": ["Pod"],
    }
    assert read(change_event(3, 1, ChangeScope(set(), True, {"Node"})))["nodes"] is None
    many = {str(number) for number in range(MOST_NODES + 1)}
    assert read(change_event(3, 1, ChangeScope(many, False, {"Pod"})))["nodes"] is None
    assert not len(EventStream())


# -- a cluster that is not well


async def test_a_lost_cluster_is_reported_and_retried() -> None:
    api_server = FakeApiServer(big_cluster(2, pending=1))
    async with visiting(api_server.client()) as visitor:
        assert (await visitor.get("/api/overview"))["counts"]["nodes"] == 2
        api_server.dead = True
        api_server.cut()
        found = await visitor.until("/api/overview", lambda tree: tree["troubles"])
        assert found["counts"]["nodes"] == 2  # what is known stays
        api_server.dead = False
        await visitor.until("/api/overview", lambda tree: not tree["troubles"])


async def test_forbidden_kinds_are_gaps() -> None:
    api_server = FakeApiServer(big_cluster(2, pending=1))
    api_server.refused["/apis/resource.k8s.io/v1/resourceclaims"] = 403
    async with visiting(api_server.client()) as visitor:
        found = await visitor.get("/api/overview")
        assert any(gap.startswith("resourceclaims") for gap in found["gaps"])
        assert found["counts"]["claims"] == 0


@pytest.mark.parametrize("how", ["forbidden", "dead"])
async def test_a_cluster_that_cannot_be_read_at_all_is_an_error(how: str) -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.dead = how == "dead"
    if how == "forbidden":
        api_server.refused["/api/v1/nodes"] = 403
    dashboard = Dashboard(api_server.client())
    with pytest.raises(UnreachableError if how == "dead" else InputError):
        await dashboard.start()
    await dashboard.stop()


@run_by(live)
async def test_a_page_that_does_not_read_is_disconnected(visitor: DashboardClient, client: Client) -> None:
    notices = visitor.dashboard.service.events
    notices.apart, notices.slow = 0.0, 0.1
    url = URL(visitor.dashboard.url)
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readline()
    names = {f"node-{number:060d}" for number in range(MOST_NODES)}
    async with asyncio.timeout(DEADLINE):
        await until(lambda: len(notices))
        while len(notices):
            notices.publish(2, ChangeScope(set(names), False, {"Pod"}))
            await asyncio.sleep(0.001)
    writer.transport.abort()
    assert (await visitor.get("/api/overview"))["counts"]["nodes"] == 1
