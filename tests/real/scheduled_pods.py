"""Cluster of two nodes with devices, and pods that our scheduler has to place on them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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
from plimsoll.ledger.placeholders import NAMESPACE
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.manifests import (
    DRIVER,
    NODE_STATUS,
    claim_template,
    claiming_pod,
    device_class,
    pod,
    resource_slice,
)
from tests.real.programs import minor_version
from tests.real.simulated_kubelets import SimulatedKubelets
from tests.real.stock_plane import StockPlane
from tests.waiting import until

NS = "default"


#: Each device takes two CPUs of its node.
MAPPING = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}


MAPPING_1_37 = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}


@asynccontextmanager
async def furnished(client: Client, *, stock: bool) -> AsyncIterator[None]:
    """Run two nodes of eight CPUs with two devices each, with charges where the server keeps them.

    A stock server keeps none: simulated kubelets admit the placeholders.
    """
    kind = device_class(DRIVER)
    if stock:
        kind["metadata"]["annotations"] = {CLASS_KEY: json.dumps(MAPPING)}
        await StockPlane.prepare(client)
    await client.create(DEVICE_CLASSES, kind)
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    kubelets = SimulatedKubelets(client)
    for name in ("n1", "n2"):
        await kubelets.add(name, NODE_STATUS["allocatable"], {})
        features = {"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}
        await client.patch(NODES, name, features, subresource="status")
        slice = resource_slice(f"{name}-gpu", name, 2)
        if not stock:
            for device in slice["spec"]["devices"]:
                device |= MAPPING if minor_version() < 37 else MAPPING_1_37
        await client.create(RESOURCE_SLICES, slice)
    async with kubelets.running():
        yield


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
    pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NAMESPACE)).items]
    requests = [one["spec"]["containers"][0]["resources"]["requests"] for one in pods]
    assert requests == [{"cpu": "2"}] * (4 if stock else 0), "placeholders"
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
