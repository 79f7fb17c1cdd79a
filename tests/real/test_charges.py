"""Charges of claims on a real kube-apiserver, which rejects some entries and drops some fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import CLASS_KEY, read_pod, read_status
from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.cluster.kube_apiserver import run_apiserver
from tests.manifests import DRIVER, NODE_STATUS, claim, device_class, node, pod, resource_slice
from tests.real.programs import ASSETS, minor_version, missing, skip_before
from tests.waiting import DEADLINE

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS, NODE = "default", "n1"
FEATURE = "DRANodeAllocatableResources"
GATES = f"{FEATURE}=true"


@asynccontextmanager
async def scheduler(client: Client) -> AsyncIterator[SchedulerProcess]:
    process = SchedulerProcess(client, SchedulerSettings())
    task = asyncio.create_task(process.run())
    try:
        await process.ready(DEADLINE)
        yield process
    finally:
        process.stop()
        await task


async def create_cluster(client: Client, devices: dict[str, dict[str, Any]]) -> None:
    """Create a node with one device per mapping, and a class and a claim of the mapping's name for each."""
    slice = resource_slice(f"{NODE}-slice", NODE, 0)
    for name, mapping in devices.items():
        annotation = mapping.pop("annotation", None)
        slice["spec"]["devices"].append(
            {
                "name": name,
                "attributes": {"model": {"string": name}},
                "nodeAllocatableResourceMappings": mapping,
            }
        )
        kind = device_class(name)
        expression = f'device.attributes["{DRIVER}"].model == "{name}"'
        kind["spec"]["selectors"].append({"cel": {"expression": expression}})
        if annotation:
            kind["metadata"]["annotations"] = {CLASS_KEY: json.dumps(annotation)}
        await client.create(DEVICE_CLASSES, kind)
        await client.create(RESOURCE_CLAIMS, claim(name, name), NS)
    await client.create(NODES, node(NODE))
    # 1.37 refuses slices with mappings on nodes that do not declare the feature.
    status = NODE_STATUS | {"declaredFeatures": [FEATURE]}
    await client.patch(NODES, NODE, {"status": status}, subresource="status")
    await client.patch(NODES, NODE, {"spec": {"taints": None}})  # set until the node is ready
    await client.create(RESOURCE_SLICES, slice)


async def schedule(client: Client, name: str, *claims: str, containers: int = 1, refer: bool = True) -> Pod:
    tree = pod(name, schedulerName="plimsoll")
    spec = tree["spec"]
    spec["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    first = spec["containers"][0]
    if refer:
        first["resources"]["claims"] = [{"name": each} for each in claims]
    spec["containers"] = [{**first, "name": f"c{number}"} for number in range(containers)]
    await client.create(PODS, tree, NS)
    while True:  # bounded by the test
        found = codec.convert(await client.get(PODS, name, NS), Pod)
        if found.spec.node_name:
            return found
        await asyncio.sleep(0.05)


async def requested(process: SchedulerProcess) -> dict[str, int]:
    """Return the requests in the node's ledger, once no pod is only assumed."""
    while process.context.snapshot.assumed:
        await asyncio.sleep(0.05)
    assert verify(process.context.snapshot) == []
    (ledger,) = (each for each in process.context.snapshot.ledgers if each is not None)
    return dict(ledger.requested)


@pytest.mark.skipif(
    _MISSING == "" and minor_version() > 36, reason="1.37 refuses mappings to ephemeral storage"
)
def test_charges_that_a_real_server_rejects_or_drops_are_kept(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await create_cluster(
            client,
            {
                "unreferenced": {"cpu": {"allocationMultiplier": "1"}},
                "plain": {"cpu": {"allocationMultiplier": "500m"}},
                "storage": {"ephemeral-storage": {"allocationMultiplier": "1Gi"}},
                "references": {
                    "cpu": {"allocationMultiplier": "1"},
                    "annotation": {"nodeAllocatableResourceAccountingPolicies": {"cpu": "AddPerReference"}},
                },
            },
        )
        async with scheduler(client) as process:
            alone = await schedule(client, "alone", "unreferenced", refer=False)
            assert [each.claim for each in read_pod(alone)] == ["unreferenced"]
            plain = await schedule(client, "ordinary", "plain")
            assert [each.claim for each in read_status(plain.status)] == ["plain"], "the kubelet sees it"
            storage = await schedule(client, "stores", "storage")
            assert [set(each.resources) for each in read_pod(storage)] == [{"ephemeral-storage"}]
            await schedule(client, "three", "references", containers=3)
            before = await requested(process)
        # 1 CPU, 500m, three times 1 CPU, and 100m for each of six containers
        assert before["cpu"] == 1000 + 500 + 3000 + 600
        async with scheduler(client) as again:
            assert await requested(again) == before

    skip_before(36, "which has the gates")
    with run_apiserver(ASSETS, tmp_path, GATES) as config:

        async def run() -> None:
            async with asyncio.timeout(4 * DEADLINE), Client.connect(config) as client:
                await scenario(client)

        asyncio.run(run())
