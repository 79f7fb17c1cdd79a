"""Scheduler process with extended resources that device classes serve."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll.api.codec import decode_tree
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS
from plimsoll.client.transport import Reply
from tests.unit.scheduler.process.scheduler_cluster import NS, SchedulerCluster, scheduler_cluster
from tests.waiting import until

GPU = "example.com/gpu"


async def serve(cluster: SchedulerCluster, *nodes: str, count: int = 1) -> None:
    """Create nodes with devices, and the class that serves them as an extended resource."""
    for name in nodes:
        await cluster.node(name)
    await cluster.devices(*nodes, count=count)
    await create_class(cluster)


async def create_class(cluster: SchedulerCluster) -> None:
    await cluster.admin.create(
        DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}
    )


async def advertise(cluster: SchedulerCluster, count: str) -> None:
    """Set what the node advertises itself, as for a device plugin."""
    status = {"allocatable": {GPU: count}, "capacity": {GPU: count}}
    await cluster.admin.patch(NODES, "n", {"status": status}, subresource="status")


async def ask(cluster: SchedulerCluster, name: str, count: int = 1, **spec: Any) -> None:
    resources = {"requests": {"cpu": "1", GPU: str(count)}, "limits": {GPU: str(count)}}
    containers = [{"name": "main", "image": "i", "resources": resources}]
    await cluster.admin.create(
        PODS, {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}, NS
    )


async def claims(cluster: SchedulerCluster) -> list[dict[str, Any]]:
    listing = await cluster.admin.list(RESOURCE_CLAIMS, NS)
    return [decode_tree(raw) for raw in listing.items]


async def test_a_pod_gets_a_claim_of_its_own() -> None:
    async with scheduler_cluster() as cluster:
        await serve(cluster, "n", count=2)
        process = await cluster.start()
        await ask(cluster, "p", 2)
        assert await cluster.bound("p") == "n"
        page = b"".join([part async for part in process.context.metrics.expose()]).decode()
        assert 'scheduler_resourceclaim_creates_total{status="success"} 1.0' in page
        pod = await cluster.admin.get(PODS, "p", NS)
        status = pod["status"]["extendedResourceClaimStatus"]
        (claim,) = await claims(cluster)
        assert claim["metadata"]["name"] == status["resourceClaimName"]
        assert [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]
        assert claim["status"]["reservedFor"][0]["uid"] == pod["metadata"]["uid"]
        await ask(cluster, "q")
        assert "cannot allocate all claims" in (await cluster.condition_of("q"))["message"]
        # The claim ends with its pod, and the next one is scheduled.
        await cluster.admin.delete(PODS, "p", NS, grace=0)
        assert await cluster.bound("q") == "n"


async def test_a_pod_waits_for_the_class() -> None:
    async with scheduler_cluster() as cluster:
        await cluster.node("n")
        await cluster.devices("n")
        await cluster.start()
        await ask(cluster, "p")
        assert f"Insufficient {GPU}" in (await cluster.condition_of("p"))["message"]
        await create_class(cluster)
        assert await cluster.bound("p") == "n"


async def test_a_pod_waits_for_the_end_of_a_device_plugin() -> None:
    """A node that no longer advertises the resource leaves it to its devices."""
    async with scheduler_cluster() as cluster:
        await serve(cluster, "n")
        await cluster.admin.patch(
            NODES,
            "n",
            {"status": {"allocatable": {GPU: "1"}, "capacity": {GPU: "1"}}},
            subresource="status",
        )
        await cluster.start()
        await ask(cluster, "p")
        await cluster.bound("p")
        assert await claims(cluster) == []
        await ask(cluster, "q")
        assert f"Insufficient {GPU}" in (await cluster.condition_of("q"))["message"]
        await cluster.admin.patch(
            NODES,
            "n",
            {"status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "0"}}},
            subresource="status",
        )
        await cluster.bound("q")
        assert len(await claims(cluster)) == 1


async def test_what_a_killed_scheduler_left_is_deleted() -> None:
    async with scheduler_cluster() as cluster:
        await serve(cluster, "n")
        first = await cluster.start()
        calls = first.writer.client.call
        reached = asyncio.Event()

        async def stop_at_binding(method: str, path: str, **named: Any) -> Reply:
            if path.endswith("/binding"):
                reached.set()
                await asyncio.Event().wait()
            return await calls(method, path, **named)

        first.writer.client.call = stop_at_binding  # type: ignore[method-assign]
        await ask(cluster, "p")
        await reached.wait()
        await cluster.kill(first)
        (left,) = await claims(cluster)
        assert left["status"]["allocation"]
        await cluster.start()
        assert await cluster.bound("p") == "n"
        (claim,) = await claims(cluster)
        assert claim["metadata"]["uid"] != left["metadata"]["uid"]
        pod = await cluster.admin.get(PODS, "p", NS)
        named = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert named == claim["metadata"]["name"]


async def test_a_claim_ends_with_a_pod_that_completes() -> None:
    async with scheduler_cluster() as cluster:
        await serve(cluster, "n")
        await cluster.start()
        await ask(cluster, "p")
        await cluster.bound("p")
        await cluster.admin.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, NS, subresource="status")
        await until(lambda: claims(cluster), lambda found: not found)
