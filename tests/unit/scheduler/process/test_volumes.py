"""Scheduler process with volumes that wait for their first consumer: bound, provisioned, given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from plimsoll.api.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    STORAGE_CLASSES,
)
from plimsoll.scheduler.process.api_writer import FENCE_KEY
from plimsoll.scheduler.profile import SchedulerProfile
from tests.manifests import DRIVER, claim, device_class
from tests.unit.scheduler.process.scheduler_cluster import (
    NS,
    QUICK,
    SchedulerCluster,
    elected,
    scheduler_cluster,
)
from tests.volume_provisioner import (
    HOST,
    VolumeProvisioner,
    local_volume,
    storage_class,
    using,
    volume_claim,
    volume_provisioner,
)
from tests.waiting import until

LOCAL = "kubernetes.io/no-provisioner"


@asynccontextmanager
async def volume_cluster(*nodes: str) -> AsyncIterator[tuple[SchedulerCluster, VolumeProvisioner]]:
    async with scheduler_cluster() as cluster, volume_provisioner(cluster.admin) as provisioner:
        for name in nodes:
            await cluster.node(name, **{HOST: name})
        await cluster.admin.create(STORAGE_CLASSES, storage_class("fast"))
        await cluster.admin.create(STORAGE_CLASSES, storage_class("local", LOCAL))
        yield cluster, provisioner


async def add_volume(cluster: SchedulerCluster, name: str, host: str, size: str = "1Gi") -> None:
    admin = cluster.admin
    await admin.create(PERSISTENT_VOLUMES, local_volume(name, host, "local", size))
    available = {"status": {"phase": "Available"}}
    await admin.patch(PERSISTENT_VOLUMES, name, available, subresource="status")


async def add_claim(cluster: SchedulerCluster, name: str, group: str, **more: Any) -> None:
    await cluster.admin.create(PERSISTENT_VOLUME_CLAIMS, volume_claim(name, group, **more), NS)


async def get_claim(cluster: SchedulerCluster, name: str) -> dict[str, Any]:
    return dict(await cluster.admin.get(PERSISTENT_VOLUME_CLAIMS, name, NS))


async def message_about(cluster: SchedulerCluster, name: str, part: str) -> str:
    """Return the message of a pod once it has a part."""
    tree = await until(
        lambda: cluster.admin.get(PODS, name, NS),
        lambda one: any(part in each["message"] for each in one["status"].get("conditions", ())),
    )
    return str(tree["status"]["conditions"][0]["message"])


async def test_local_volumes_are_bound_before_the_pod() -> None:
    async with volume_cluster("a", "b") as (cluster, _):
        await add_volume(cluster, "va", "a", "1Gi")
        await add_volume(cluster, "vb", "b", "5Gi")
        await add_claim(cluster, "data", "local", size="2Gi")
        process = await cluster.start()
        await cluster.pod("p", volumes=using("data"))
        assert await cluster.bound("p") == "b"
        volume = await cluster.admin.get(PERSISTENT_VOLUMES, "vb")
        known = await get_claim(cluster, "data")
        reference = volume["spec"]["claimRef"]
        assert (reference["name"], reference["uid"]) == ("data", known["metadata"]["uid"])
        assert volume["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes"
        assert known["spec"]["volumeName"] == "vb"
        await until(lambda: len(process.context.snapshot.assumed_volumes) == 0)


async def test_a_volume_is_provisioned_on_the_node_of_the_pod() -> None:
    async with volume_cluster("a", "b") as (cluster, provisioner):
        provisioner.resumed.clear()
        await add_claim(cluster, "data", "fast")
        await add_claim(cluster, "more", "fast")
        process = await cluster.start()
        await cluster.pod("p", volumes=using("data", "more"))
        read = lambda: get_claim(cluster, "more")  # noqa: E731
        waiting = await until(read, lambda one: SELECTED_NODE in one["metadata"].get("annotations", {}))
        node = waiting["metadata"]["annotations"][SELECTED_NODE]
        await until(lambda: len(process.volume_waiters) == 1)
        assert "nodeName" not in (await cluster.admin.get(PODS, "p", NS))["spec"]
        provisioner.resumed.set()
        assert await cluster.bound("p") == node
        assert BIND_COMPLETED in (await get_claim(cluster, "data"))["metadata"]["annotations"]
        await until(lambda: len(process.context.snapshot.assumed_volumes) == 0)
        assert len(process.volume_waiters) == 0


async def test_a_pod_whose_volume_cannot_be_provisioned_is_scheduled_elsewhere() -> None:
    async with volume_cluster("a") as (cluster, provisioner):
        provisioner.full.add("a")
        await add_claim(cluster, "data", "fast", annotations={"example.com/keep": "yes"})
        process = await cluster.start()
        await cluster.pod("p", volumes=using("data"))
        assert await message_about(cluster, "p", "provisioning failed") == (
            'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
        )
        assert ("data", "a") in provisioner.refused
        await cluster.node("b", **{HOST: "b"})
        assert await cluster.bound("p") == "b"
        await until(lambda: len(process.context.snapshot.assumed_volumes) == 0)
        final = await get_claim(cluster, "data")
        assert final["metadata"]["annotations"][SELECTED_NODE] == "b"


async def test_devices_and_volumes_are_reserved_and_given_up_together() -> None:
    async with volume_cluster("a") as (cluster, provisioner):
        admin = cluster.admin
        provisioner.full.add("a")
        await cluster.devices("a", count=1)
        await admin.create(DEVICE_CLASSES, device_class(DRIVER))
        await admin.create(RESOURCE_CLAIMS, claim("gpu"), NS)
        await add_claim(cluster, "data", "fast")
        process = await cluster.start()
        uses = [{"name": "gpu", "resourceClaimName": "gpu"}]
        await cluster.pod("p", volumes=using("data"), resourceClaims=uses)
        await message_about(cluster, "p", 'provisioning failed for PVC "data"')
        released = await until(
            lambda: admin.get(RESOURCE_CLAIMS, "gpu", NS), lambda one: "allocation" not in one["status"]
        )
        assert not released["status"].get("reservedFor")
        provisioner.full.clear()
        assert await cluster.bound("p") == "a"
        final = await admin.get(RESOURCE_CLAIMS, "gpu", NS)
        assert final["status"]["reservedFor"][0]["name"] == "p"
        assert (await get_claim(cluster, "data"))["spec"]["volumeName"]
        snapshot = process.context.snapshot
        await until(lambda: len(snapshot.assumed_volumes) == 0)


async def test_a_deleted_pod_ends_the_wait_for_its_volumes() -> None:
    async with volume_cluster("a") as (cluster, provisioner):
        provisioner.resumed.clear()
        await add_claim(cluster, "data", "fast")
        process = await cluster.start()
        await cluster.pod("p", volumes=using("data"))
        await until(lambda: len(process.volume_waiters) == 1)
        await cluster.admin.delete(PODS, "p", NS)
        await until(lambda: len(process.volume_waiters) == 0)
        await until(lambda: len(process.context.snapshot.assumed_volumes) == 0)
        loop = process.loop
        assert loop is not None
        await until(lambda: loop.in_flight == 0)
        assert len(process.context.queue) == 0


async def test_volumes_that_are_not_bound_in_time_are_given_up() -> None:
    async with volume_cluster("a") as (cluster, provisioner):
        provisioner.resumed.clear()
        await add_claim(cluster, "data", "fast")
        hasty = SchedulerProfile(name="default-scheduler", volume_timeout_ms=1)
        process = await cluster.start(replace(QUICK, profiles=(hasty,)))
        await cluster.pod("p", volumes=using("data"))
        assert await message_about(cluster, "p", "deadline") == (
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        )
        provisioner.resumed.set()
        assert await cluster.bound("p") == "a"
        await until(lambda: len(process.context.snapshot.assumed_volumes) == 0)


async def test_a_new_leader_resumes_provisioning() -> None:
    async with volume_cluster("a", "b") as (cluster, provisioner):
        provisioner.resumed.clear()
        await add_claim(cluster, "data", "fast")
        await add_claim(cluster, "other", "local")
        first = await cluster.start(elected(), "first")
        await cluster.pod("p", volumes=using("data"))
        await cluster.pod("q", volumes=using("other"))  # no volume yet
        await until(lambda: len(first.volume_waiters) == 1)
        node = (await get_claim(cluster, "data"))["metadata"]["annotations"][SELECTED_NODE]
        await cluster.kill(first)
        second = await cluster.start(elected(), "second")
        await until(lambda: second.leading)
        # A request for a volume that the first one may have sent is refused, however late it arrives.
        await until(
            lambda: get_claim(cluster, "other"), lambda one: FENCE_KEY in one["metadata"]["annotations"]
        )
        provisioner.resumed.set()
        assert await cluster.bound("p") == node
        await add_volume(cluster, "va", "a")
        assert await cluster.bound("q") == "a"
        await until(lambda: len(second.context.snapshot.assumed_volumes) == 0)


async def test_pods_that_wait_for_volumes_do_not_hold_up_others() -> None:
    async with volume_cluster("a") as (cluster, provisioner):
        provisioner.resumed.clear()
        process = await cluster.start(replace(QUICK, binds=1))
        for number in range(2):
            await add_claim(cluster, f"c{number}", "fast")
            await cluster.pod(f"p{number}", volumes=using(f"c{number}"))
        await until(lambda: len(process.volume_waiters) == 2)
        await cluster.pod("plain")
        assert await cluster.bound("plain") == "a"
        provisioner.resumed.set()
        assert [await cluster.bound(f"p{number}") for number in range(2)] == ["a", "a"]
