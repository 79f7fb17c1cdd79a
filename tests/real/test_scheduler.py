"""A real kube-scheduler with its default settings (protobuf, leader election) against our server.

Claims come from templates by our controllers, the scheduler allocates devices and binds the pods; then the
server is killed under it and comes back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.manifests import (
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
from tests.real.programs import Program, missing
from tests.smoke.process import ServerProcess
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(bool(missing("kube-scheduler")), reason=missing("kube-scheduler"))
T = TypeVar("T")
NS = "default"


async def bound(client: Client, *names: str) -> dict[str, str]:
    """Wait until pods are bound and return their nodes."""

    async def look() -> dict[str, str]:
        pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    return await until(look, lambda found: all(found.get(name) for name in names))


async def claim_of(client: Client, name: str) -> Tree:
    statuses = (await client.get(PODS, name, NS))["status"]["resourceClaimStatuses"]
    return await client.get(RESOURCE_CLAIMS, statuses[0]["resourceClaimName"], NS)


def mapped_slice(name: str, machine: str, devices: int) -> Tree:
    """Return devices that each charge two CPUs to their node."""
    tree = resource_slice(name, machine, devices)
    for device in tree["spec"]["devices"]:
        device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": "2"}}
    return tree


async def furnish(client: Client) -> None:
    """Create two nodes with two devices each."""
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in ("n1", "n2"):
        await client.create(NODES, node(name))
        await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
        await client.create(RESOURCE_SLICES, mapped_slice(f"{name}-gpu", name, 2))


async def schedule_claims(client: Client) -> None:
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
        assert charged["resourceClaimName"] == claim["metadata"]["name"]
        assert charged["resources"] == {"cpu": "2"}
    assert len(devices) == 4, "no device is given out twice"


async def find_events(client: Client) -> None:
    async def look() -> dict[str, str]:
        events = [codec.decode_tree(raw) for raw in (await client.list(EVENTS, NS)).items]
        return {
            one["involvedObject"]["name"]: one["message"] for one in events if one["reason"] == "Scheduled"
        }

    scheduled = await until(look, lambda found: {"p0", "plain"} <= found.keys())
    assert scheduled["plain"].startswith(f"Successfully assigned {NS}/plain to n")
    lease = await client.get(LEASES, "kube-scheduler", "kube-system")
    assert lease["spec"]["holderIdentity"]


async def hand_down(client: Client) -> None:
    """Check that a pending pod gets the devices that another releases."""
    await client.create(PODS, claiming_pod("late", "t"), NS)

    async def reasons() -> list[str]:
        conditions = (await client.get(PODS, "late", NS))["status"].get("conditions", ())
        return [one.get("reason", "") for one in conditions if one["type"] == "PodScheduled"]

    await until(reasons, lambda found: "Unschedulable" in found)
    await client.delete(PODS, "p0", NS, grace=0)
    await bound(client, "late")


async def outlive(client: Client, server: ServerProcess) -> None:
    """Check that pods are scheduled after the server is killed and restarted."""
    for number in range(2):
        await client.create(PODS, pod(f"before-{number}"), NS)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await client.create(PODS, pod(f"after-{number}"), NS)
        await bound(client, f"before-{number}", f"after-{number}")
    lease = await client.get(LEASES, "kube-scheduler", "kube-system")
    assert lease["spec"]["leaseTransitions"] <= 1


def test_pods_are_scheduled_through_kills(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    scheduler = Program("kube-scheduler", server, "--feature-gates=DRANodeAllocatableResources=true")

    async def scenario() -> None:
        async with asyncio.timeout(3 * DEADLINE), Client.connect(server.config()) as client:
            await furnish(client)
            await schedule_claims(client)
            await find_events(client)
            await hand_down(client)
            assert scheduler.complaints() == []
            await outlive(client, server)

    try:
        asyncio.run(scenario())
        assert scheduler.alive
        assert scheduler.complaints(away=True) == []
        assert "too old resource version" not in scheduler.text(), "the history outlives the process"
    finally:
        scheduler.stop()
        server.stop()
    assert "Traceback" not in server.complaints()
