"""Priority and fairness over HTTP: headers, rejections, and the seats of watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client.endpoints import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS, Endpoint
from tests.unit.apiserver.build import MAPS
from tests.unit.apiserver.flowcontrol.flow_objects import flow_schema, priority_level
from tests.waiting import DEADLINE, until

SCHEMA_UID, LEVEL_UID = "X-Kubernetes-PF-FlowSchema-UID", "X-Kubernetes-PF-PriorityLevel-UID"
EVE = {"Impersonate-User": "eve"}
RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE_BINDINGS = Endpoint(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[RunningServer, aiohttp.ClientSession]]:
    """Run a server with a level of one seat for the user eve, who may do anything."""
    running = await start_server(ServerSettings(controllers=False, limits=ServerLimits(in_flight=100)))
    try:
        client = running.client()
        await client.create(PRIORITY_LEVEL_CONFIGURATIONS, priority_level())
        await client.create(FLOW_SCHEMAS, flow_schema())
        binding = {
            "metadata": {"name": "eve"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
        }
        await client.create(CLUSTER_ROLE_BINDINGS, binding)
        headers = {"Authorization": f"Bearer {running.token}"}
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(running.url, headers=headers, connector=connector) as session:
            yield running, session
    finally:
        await running.stop()


def test_responses_name_the_flow_schema_and_the_level() -> None:
    async def play() -> None:
        async with serving() as (running, session):
            client = running.client()

            async def expected(schema: str, level: str) -> tuple[str, str]:
                first = await client.get(FLOW_SCHEMAS, schema)
                second = await client.get(PRIORITY_LEVEL_CONFIGURATIONS, level)
                return first["metadata"]["uid"], second["metadata"]["uid"]

            async def found(path: str, headers: dict[str, str]) -> tuple[str, str]:
                async with session.get(path, headers=headers) as response:
                    return response.headers[SCHEMA_UID], response.headers[LEVEL_UID]

            eve, admin = await expected("fs", "pl"), await expected("exempt", "exempt")
            for path in (MAPS, f"{MAPS}/missing", "/apis", "/no/such/path", f"{MAPS}?watch=1"):
                assert await found(path, EVE) == eve, path
                assert await found(path, {}) == admin, path

    asyncio.run(asyncio.wait_for(play(), DEADLINE))


def test_a_watch_holds_its_seat_until_its_initial_events_are_sent() -> None:
    async def play() -> None:
        async with serving() as (running, session):
            flows = running.http.flow_controller
            query = (
                "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
            )
            async with session.get(MAPS + query, headers=EVE) as watch:
                assert json.loads(await watch.content.readline())["type"] == "BOOKMARK"
                await until(lambda: flows.queue_sets["pl"].seats_in_use == 0)
                async with session.get(MAPS, headers=EVE) as response:
                    assert response.status == 200
            execution = flows.metrics.execution("pl", "fs", is_watch=True)
            assert sum(execution.counts) == 1

    asyncio.run(asyncio.wait_for(play(), DEADLINE))


def test_a_full_level_answers_429_with_a_status() -> None:
    async def play() -> None:
        async with serving() as (running, session):
            queue_set = running.http.flow_controller.queue_sets
            async with session.get(MAPS, headers=EVE):
                pass
            held = queue_set["pl"].start("fs", "eve", 1)
            assert held is not None
            async with session.get(MAPS, headers=EVE) as response:
                body = await response.json()
                assert (response.status, body["reason"], body["code"]) == (429, "TooManyRequests", 429)
                assert response.headers["Retry-After"] == "1"
                assert response.headers[LEVEL_UID]
            async with session.get(MAPS) as response:
                assert response.status == 200
            queue_set["pl"].finish(held)
            async with session.get(MAPS, headers=EVE) as response:
                assert response.status == 200
            async with session.get("/metrics") as response:
                text = await response.text()
            assert (
                'apiserver_flowcontrol_rejected_requests_total{flow_schema="fs",priority_level="pl",'
                'reason="concurrency-limit"} 1.0' in text
            )

    asyncio.run(asyncio.wait_for(play(), DEADLINE))


def test_the_condition_of_a_flow_schema_is_kept_up_to_date() -> None:
    async def play() -> None:
        async with serving() as (running, _):
            client = running.client()

            async def dangling() -> str:
                tree = await client.get(FLOW_SCHEMAS, "fs")
                return "".join(each["status"] for each in tree["status"].get("conditions", ()))

            await until(dangling, lambda status: status == "False")
            await client.delete(PRIORITY_LEVEL_CONFIGURATIONS, "pl")
            await until(dangling, lambda status: status == "True")

    asyncio.run(asyncio.wait_for(play(), DEADLINE))
