"""StatefulSets: order, revisions, volume claims, and the controller."""

from __future__ import annotations

import pytest

from plimsoll.client.endpoints import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.workloads.makers import run_pods, template
from tests.unit.controllers.workloads.stateful_sets import CLAIM, ONLY, roll, stateful_set


async def status_of(cluster: Cluster) -> Tree:
    found = await cluster.get(STATEFUL_SETS, "w")
    assert found is not None
    status: Tree = found["status"]
    return status


async def images(cluster: Cluster) -> dict[str, str]:
    return {
        tree["metadata"]["name"]: tree["spec"]["containers"][0]["image"] for tree in await cluster.trees(PODS)
    }


async def set_image(cluster: Cluster, image: str) -> None:
    await cluster.client.patch(STATEFUL_SETS, "w", {"spec": {"template": template(image)}}, "n")


@run_by(run_scenario, only=ONLY)
async def test_pods_are_created_in_order_each_when_the_last_is_ready(cluster: Cluster) -> None:
    await cluster.client.create(STATEFUL_SETS, stateful_set(), "n")
    for count in (1, 2, 3):
        await cluster.settle()
        assert await cluster.names(PODS) == [f"w-{number}" for number in range(count)]
        await run_pods(cluster)
    await cluster.settle()
    pod = await cluster.get(PODS, "w-2")
    assert pod is not None
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("w-2", "s")
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "2"
    status = await status_of(cluster)
    assert status["readyReplicas"] == status["currentReplicas"] == status["updatedReplicas"] == 3
    assert status["currentRevision"] == status["updateRevision"]


@run_by(run_scenario, only=ONLY)
async def test_pods_are_deleted_from_the_highest(cluster: Cluster) -> None:
    await cluster.client.create(STATEFUL_SETS, stateful_set(), "n")
    await roll(cluster)
    await cluster.client.patch(STATEFUL_SETS, "w", {"spec": {"replicas": 1}}, "n")
    await cluster.settle()
    deleted = [
        tree["metadata"]["name"]
        for tree in await cluster.trees(PODS)
        if "deletionTimestamp" in tree["metadata"]
    ]
    assert deleted in (["w-2"], [])
    await roll(cluster)
    assert await cluster.names(PODS) == ["w-0"]


@run_by(run_scenario, only=ONLY)
async def test_parallel_pods_are_created_at_once_from_a_start(cluster: Cluster) -> None:
    tree = stateful_set(podManagementPolicy="Parallel", ordinals={"start": 5})
    await cluster.client.create(STATEFUL_SETS, tree, "n")
    await cluster.settle()
    assert await cluster.names(PODS) == ["w-5", "w-6", "w-7"]


@run_by(run_scenario, only=ONLY)
async def test_an_update_stops_at_the_partition(cluster: Cluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await cluster.client.create(STATEFUL_SETS, stateful_set(updateStrategy=strategy), "n")
    await roll(cluster)
    await set_image(cluster, "v2")
    await roll(cluster)
    assert await images(cluster) == {"w-0": "v1", "w-1": "v1", "w-2": "v2"}
    status = await status_of(cluster)
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    await cluster.client.delete(PODS, "w-0", "n", grace=0)
    await roll(cluster)
    assert (await images(cluster))["w-0"] == "v1"
    strategy["rollingUpdate"] = {"partition": 0}
    await cluster.client.patch(STATEFUL_SETS, "w", {"spec": {"updateStrategy": strategy}}, "n")
    await roll(cluster)
    assert set((await images(cluster)).values()) == {"v2"}
    status = await status_of(cluster)
    assert status["currentRevision"] == status["updateRevision"]


@run_by(run_scenario, only=ONLY)
async def test_on_delete_updates_only_deleted_pods(cluster: Cluster) -> None:
    tree = stateful_set(updateStrategy={"type": "OnDelete"})
    await cluster.client.create(STATEFUL_SETS, tree, "n")
    await roll(cluster)
    await set_image(cluster, "v2")
    await roll(cluster, 2)
    assert set((await images(cluster)).values()) == {"v1"}
    await cluster.client.delete(PODS, "w-1", "n", grace=0)
    await roll(cluster, 2)
    assert await images(cluster) == {"w-0": "v1", "w-1": "v2", "w-2": "v1"}


@run_by(run_scenario, only=ONLY)
async def test_a_failed_pod_is_replaced(cluster: Cluster) -> None:
    await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1), "n")
    await roll(cluster, 2)
    first = await cluster.get(PODS, "w-0")
    await cluster.finish("w-0", "Failed")
    await roll(cluster, 3)
    second = await cluster.get(PODS, "w-0")
    assert first is not None
    assert second is not None
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@run_by(run_scenario, only=ONLY)
async def test_a_template_used_again_gets_a_new_number_and_old_revisions_are_deleted(
    cluster: Cluster,
) -> None:
    await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1, revisionHistoryLimit=1), "n")
    await roll(cluster, 2)
    for image in ("v2", "v1", "v3", "v4"):
        await set_image(cluster, image)
        await roll(cluster, 3)
    revisions = {
        tree["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: tree["revision"]
        for tree in await cluster.trees(CONTROLLER_REVISIONS)
    }
    assert revisions == {"v3": 4, "v4": 5}


@pytest.mark.parametrize(
    ("policy", "after_scaling", "after_deletion"),
    [
        ({}, ["data-w-0", "data-w-1"], ["data-w-0", "data-w-1"]),
        ({"whenScaled": "Delete"}, ["data-w-0"], ["data-w-0"]),
        ({"whenDeleted": "Delete"}, ["data-w-0", "data-w-1"], []),
        ({"whenDeleted": "Delete", "whenScaled": "Delete"}, ["data-w-0"], []),
    ],
)
@run_by(run_scenario, only=ONLY)
async def test_volume_claims_follow_the_retention_policy(
    cluster: Cluster, *, policy: Tree, after_scaling: list[str], after_deletion: list[str]
) -> None:
    tree = stateful_set(
        replicas=2,
        volumeClaimTemplates=[CLAIM],
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain", **policy},
    )
    await cluster.client.create(STATEFUL_SETS, tree, "n")
    await roll(cluster, 4)
    assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == ["data-w-0", "data-w-1"]
    pod = await cluster.get(PODS, "w-1")
    assert pod is not None
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-w-1"}}
    assert pod["spec"]["volumes"][0] == volume
    await cluster.client.patch(STATEFUL_SETS, "w", {"spec": {"replicas": 1}}, "n")
    await roll(cluster, 4)
    assert await _claims(cluster) == after_scaling
    await cluster.client.delete(STATEFUL_SETS, "w", "n", propagation="Background")
    await roll(cluster, 3)
    assert await _claims(cluster) == after_deletion


async def _claims(cluster: Cluster) -> list[str]:
    """Return the volume claims that are not being deleted."""
    return sorted(
        tree["metadata"]["name"]
        for tree in await cluster.trees(PERSISTENT_VOLUME_CLAIMS)
        if "deletionTimestamp" not in tree["metadata"]
    )
