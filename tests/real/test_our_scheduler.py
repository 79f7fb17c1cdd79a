"""Our scheduler on a real kube-apiserver: with the alpha gates, and with default gates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.forms import CLASS_KEY, POD_KEY
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS_V1,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from plimsoll.controllers import ControllerManager
from plimsoll.controllers.resource_claim.controller import ResourceClaimController
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.cluster.kube_apiserver import run_apiserver
from tests.manifests import (
    DRIVER,
    NODE_STATUS,
    claim_template,
    claiming_pod,
    device_class,
    node,
    pod,
    resource_slice,
)
from tests.real.programs import ASSETS, minor_version, missing
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS = "default"
#: Each device takes two CPUs of its node.
MAPPING = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
MAPPING_1_37 = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}
ON = "DRANodeAllocatableResources=true,DRADeviceTaintRules=true"


async def furnish(client: Client, *, stock: bool) -> None:
    """Create two nodes of eight CPUs with two devices each, with charges where the server keeps them."""
    kind = device_class(DRIVER)
    if stock:
        kind["metadata"]["annotations"] = {CLASS_KEY: json.dumps(MAPPING)}
    await client.create(DEVICE_CLASSES, kind)
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in ("n1", "n2"):
        await client.create(NODES, node(name))
        status = NODE_STATUS | {"declaredFeatures": ["DRANodeAllocatableResources"]}
        await client.patch(NODES, name, {"status": status}, subresource="status")
        # the API server taints nodes that are not ready yet
        await client.patch(NODES, name, {"spec": {"taints": None}})
        slice = resource_slice(f"{name}-gpu", name, 2)
        if not stock:
            for device in slice["spec"]["devices"]:
                device |= MAPPING if minor_version() < 37 else MAPPING_1_37
        await client.create(RESOURCE_SLICES, slice)


async def bound(client: Client, *names: str) -> dict[str, str]:
    async def look() -> dict[str, str]:
        pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    return await until(look, lambda found: all(found.get(name) for name in names))


def large(name: str, cpu: str) -> dict[str, Any]:
    tree = pod(name, schedulerName="plimsoll")
    tree["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return tree


async def schedule(client: Client, process: SchedulerProcess, *, stock: bool) -> None:
    names = [f"g{number}" for number in range(4)]
    for name in names:
        tree = claiming_pod(name, "t")
        tree["spec"]["schedulerName"] = "plimsoll"
        await client.create(PODS, tree, NS)
    found = await bound(client, *names)
    assert sorted(found.values()) == ["n1", "n1", "n2", "n2"]
    devices = set()
    for name in names:
        one = await client.get(PODS, name, NS)
        (status,) = one["status"]["resourceClaimStatuses"]
        claim = await client.get(RESOURCE_CLAIMS, status["resourceClaimName"], NS)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == found[name]
        assert [user["name"] for user in claim["status"]["reservedFor"]] == [name]
        devices.add((result["pool"], result["device"]))
        charged = {"resourceClaimName": claim["metadata"]["name"], "containers": ["main"]}
        if stock or minor_version() < 37:
            charged["resources"] = {"cpu": "2"}
        else:
            charged["mapping"] = [{"name": "cpu", "quantity": "2"}]
        if stock:
            assert json.loads(one["metadata"]["annotations"][POD_KEY]) == [charged]
        else:
            assert one["status"]["nodeAllocatableResourceClaimStatuses"] == [charged]
    assert len(devices) == 4
    # 8 CPUs a node, of which claims take four and containers 200m
    await client.create(PODS, large("too-large", "4"), NS)
    waiting = await until(
        lambda: client.get(PODS, "too-large", NS), lambda one: one["status"].get("conditions")
    )
    assert waiting["status"]["conditions"][0]["message"].startswith(
        "0/2 nodes are available: 2 Insufficient cpu."
    )
    await client.create(PODS, large("fits", "3800m"), NS)
    await bound(client, "fits")
    events = await until(lambda: client.list(EVENTS_V1, NS), lambda all: len(all.items) >= 6)
    assert any(b"FailedScheduling" in raw for raw in events.items)
    assert verify(process.context.snapshot) == []


async def recover(client: Client) -> None:
    """Check that another scheduler started on the same objects has the same ledgers and continues."""
    again = SchedulerProcess(client, SchedulerSettings())
    task = asyncio.create_task(again.run())
    try:
        await again.ready(DEADLINE)
        found = await bound(client, "fits")
        leaves = next(name for name in ("g0", "g1", "g2", "g3") if found[name] != found["fits"])
        await client.delete(PODS, leaves, NS, grace=0)
        assert await bound(client, "too-large")
        snapshot = again.context.snapshot
        await until(_now(lambda: snapshot.assumed), lambda assumed: not assumed)
        used = sorted(ledger.requested["cpu"] for ledger in snapshot.ledgers if ledger is not None)
        assert used == [6100, 8000]
    finally:
        again.stop()
        await task


def _now(look: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def answer() -> Any:
        return look()

    return answer


@pytest.mark.parametrize("gates", [ON, ""], ids=["alpha", "stock"])
def test_pods_and_claims_on_one_ledger(tmp_path: Path, gates: str) -> None:
    async def scenario(client: Client) -> None:
        await furnish(client, stock=not gates)
        controllers = asyncio.create_task(
            ControllerManager(client, only=[ResourceClaimController.name]).run()
        )
        process = SchedulerProcess(client, SchedulerSettings())
        scheduling = asyncio.create_task(process.run())
        try:
            await process.ready(DEADLINE)
            await schedule(client, process, stock=not gates)
            process.stop()
            await scheduling
            await recover(client)
        finally:
            for task in (scheduling, controllers):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    with run_apiserver(ASSETS, tmp_path, gates) as config:

        async def run() -> None:
            async with asyncio.timeout(4 * DEADLINE), Client.connect(config) as client:
                await scenario(client)

        asyncio.run(run())
