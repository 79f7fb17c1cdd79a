"""A real kube-scheduler with its default settings (protobuf, leader election) against our server.

Claims come from templates by our controllers, the scheduler allocates devices and binds the pods; then the
server is killed under it and comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.cluster.client import Client
from plimsoll.cluster.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.real.programs import Program, missing
from tests.smoke.objects import (
    DRIVER,
    NODE_STATUS,
    Tree,
    claim_template,
    claiming_pod,
    device_class,
    node,
    pod,
    resource_slice,
)
from tests.smoke.process import ServerProcess

pytestmark = pytest.mark.skipif(bool(missing("kube-scheduler")), reason=missing("kube-scheduler"))
NS = "default"
SECONDS = 40.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("scheduled"))
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in process.complaints()


@pytest.fixture(scope="module")
def scheduler(server: ServerProcess) -> Iterator[Program]:
    program = Program("kube-scheduler", server, "--feature-gates=DRANodeAllocatableResources=true")
    yield program
    program.stop()


def tell(server: ServerProcess, story: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(2 * SECONDS), Client.connect(server.config()) as client:
            await story(client)

    asyncio.run(run())


async def bound(client: Client, *names: str) -> dict[str, str]:
    """Wait until pods have their nodes; which ones."""

    async def look() -> dict[str, str]:
        pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        found = await look()
        if all(found.get(name) for name in names):
            return {name: found[name] for name in names}
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.05)


async def claim_of(client: Client, name: str) -> Tree:
    statuses = (await client.get(PODS, name, NS))["status"]["resourceClaimStatuses"]
    return await client.get(RESOURCE_CLAIMS, statuses[0]["resourceClaimName"], NS)


def mapped_slice(name: str, machine: str, devices: int) -> Tree:
    """Devices of which each takes two CPUs of its node."""
    tree = resource_slice(name, machine, devices)
    for device in tree["spec"]["devices"]:
        device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": "2"}}
    return tree


async def furnish(client: Client) -> None:
    """Two nodes with two devices each."""
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in ("n1", "n2"):
        await client.create(NODES, node(name))
        await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
        await client.create(RESOURCE_SLICES, mapped_slice(f"{name}-gpu", name, 2))


def test_pods_with_claims_are_scheduled(server: ServerProcess, scheduler: Program) -> None:
    async def story(client: Client) -> None:
        await furnish(client)
        names = [f"p{number}" for number in range(4)]
        for name in names:
            await client.create(PODS, claiming_pod(name, "t"), NS)
        await client.create(PODS, pod("plain"), NS)
        places = await bound(client, *names, "plain")
        assert sorted(places[name] for name in names) == ["n1", "n1", "n2", "n2"]
        devices = set()
        for name in names:
            claim = await claim_of(client, name)
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            assert result["pool"] == places[name]
            assert [user["name"] for user in claim["status"]["reservedFor"]] == [name]
            devices.add((result["pool"], result["device"]))
            (charged,) = (await client.get(PODS, name, NS))["status"]["nodeAllocatableResourceClaimStatuses"]
            assert (charged["resourceClaimName"], charged["resources"]) == (
                claim["metadata"]["name"],
                {"cpu": "2"},
            )
        assert len(devices) == 4, "no device is given out twice"

    tell(server, story)


def test_events_and_leases_are_written(server: ServerProcess, scheduler: Program) -> None:
    async def story(client: Client) -> None:
        lease = await client.get(LEASES, "kube-scheduler", "kube-system")
        assert lease["spec"]["holderIdentity"]
        deadline = asyncio.get_running_loop().time() + SECONDS
        while True:
            events = [codec.decode_tree(raw) for raw in (await client.list(EVENTS, NS)).items]
            scheduled = {
                one["involvedObject"]["name"]: one["message"]
                for one in events
                if one["reason"] == "Scheduled"
            }
            if {"p0", "plain"} <= scheduled.keys():
                break
            assert asyncio.get_running_loop().time() < deadline, events
            await asyncio.sleep(0.05)
        assert scheduled["plain"].startswith(f"Successfully assigned {NS}/plain to n")

    tell(server, story)


def test_a_waiting_pod_gets_what_another_leaves(server: ServerProcess, scheduler: Program) -> None:
    async def story(client: Client) -> None:
        await client.create(PODS, claiming_pod("late", "t"), NS)
        deadline = asyncio.get_running_loop().time() + SECONDS
        while not any(
            condition["type"] == "PodScheduled" and condition["reason"] == "Unschedulable"
            for condition in (await client.get(PODS, "late", NS))["status"].get("conditions", ())
        ):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        await client.delete(PODS, "p0", NS, grace=0)
        await bound(client, "late")

    tell(server, story)


def test_it_had_nothing_to_complain_about(server: ServerProcess, scheduler: Program) -> None:
    assert scheduler.alive
    assert scheduler.complaints() == []


def test_it_goes_on_after_the_server_was_killed(server: ServerProcess, scheduler: Program) -> None:
    async def story(client: Client) -> None:
        for number in range(2):
            await client.create(PODS, pod(f"before-{number}"), NS)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await client.create(PODS, pod(f"after-{number}"), NS)
            await bound(client, f"before-{number}", f"after-{number}")
        held: Any = await client.get(LEASES, "kube-scheduler", "kube-system")
        assert held["spec"]["leaseTransitions"] <= 1

    tell(server, story)
    assert scheduler.alive
    assert scheduler.complaints(away=True) == []
    assert "too old resource version" not in scheduler.text(), "the history of events outlives the process"
