"""Cluster of two nodes with devices, and pods that our scheduler has to place on them."""

from __future__ import annotations

import json
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
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
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
from tests.real.programs import minor_version
from tests.waiting import until

NS = "default"


#: Each device takes two CPUs of its node.
MAPPING = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}


MAPPING_1_37 = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}


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
