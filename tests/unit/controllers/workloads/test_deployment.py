"""Deployments: plans, rolling updates against a naive simulation, and the controller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.client.endpoints import DEPLOYMENTS, PODS, REPLICA_SETS
from plimsoll.controllers.deployment import replica_sets as sizes
from plimsoll.controllers.workload_views import DeploymentView, ReplicaSetView
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.makers import metadata, view
from tests.unit.controllers.workloads.makers import (
    LABELS,
    end_deleted_pods,
    run_pods,
    template,
    workload,
)

ONLY = ["replicaset-controller", "deployment-controller"]


def deployment(replicas: int, surge: Any = "25%", unavailable: Any = "25%", **fields: Any) -> DeploymentView:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    spec = {"replicas": replicas, "strategy": strategy, "template": template(), **fields}
    return view({"metadata": metadata("d"), "spec": spec}, DeploymentView)


def replica_set(name: str, replicas: int, available: int = 0, maximum: int = 0) -> ReplicaSetView:
    annotations = {"deployment.kubernetes.io/max-replicas": str(maximum)}
    tree = {
        "metadata": metadata(
            name, annotations=annotations, creationTimestamp=f"2026-01-01T00:00:0{name[-1]}Z"
        ),
        "spec": {"replicas": replicas, "template": template(name)},
        "status": {"replicas": replicas, "availableReplicas": available},
    }
    return view(tree, ReplicaSetView)


# -- sizes


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "resolved"),
    [
        (10, "25%", "25%", (3, 2)),
        (3, "25%", "25%", (1, 0)),
        (1, 0, "25%", (0, 1)),
        (4, 2, 1, (2, 1)),
        (0, "25%", "25%", (0, 1)),
    ],
)
def test_percentages_are_rounded_so_that_an_update_can_proceed(
    replicas: int, surge: Any, unavailable: Any, resolved: tuple[int, int]
) -> None:
    assert sizes.resolve_steps(deployment(replicas, surge, unavailable)) == resolved


STEPS = st.one_of(st.integers(0, 4), st.integers(0, 100).map(lambda number: f"{number}%"))


@given(st.integers(0, 12), STEPS, STEPS, st.lists(st.integers(0, 12), max_size=3), st.randoms())
@settings(max_examples=examples(150))
def test_a_rolling_update_keeps_its_limits_and_ends(
    replicas: int, surge: Any, unavailable: Any, old: list[int], dice: Any
) -> None:
    """Each step is applied to ReplicaSets whose pods become available in any order."""
    wanted = deployment(replicas, surge, unavailable)
    most, least = replicas + sizes.max_surge(wanted), replicas - sizes.max_unavailable(wanted)
    start = [min(number, replicas) for number in old][:1]
    counts = {f"old{place}": number for place, number in enumerate(start)} | {"new9": 0}
    available = dict(counts)
    for _ in range(200):
        sets = {name: replica_set(name, size, available[name]) for name, size in counts.items()}
        new, others = sets["new9"], [each for name, each in sets.items() if name != "new9"]
        before = sum(counts.values())
        size = sizes.new_size(wanted, sets.values(), new)
        if size != counts["new9"]:
            counts["new9"] = size
        else:
            planned = sizes.plan_old_sizes(wanted, new, others)
            # Pods that are not available are deleted first.
            for name, smaller in planned.items():
                assert smaller < counts[name]
                counts[name] = smaller
                available[name] = min(available[name], smaller)
            if not planned and all(available[name] == counts[name] for name in counts):
                break
        assert sum(counts.values()) <= max(most, before)
        if sum(start) >= least:
            assert sum(available.values()) >= least
        name = dice.choice(sorted(counts))
        available[name] = dice.randint(available[name], counts[name])
    assert counts["new9"] == replicas
    assert sum(counts.values()) == replicas


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 10), st.integers(1, 10))
def test_scaling_in_a_rollout_keeps_proportions(replicas: int, before: int, one: int, two: int) -> None:
    total = one + two
    sets = [replica_set("old1", one, maximum=total), replica_set("new2", two, maximum=total)]
    wanted = deployment(replicas, 0, 1)
    planned = sizes.plan_scaled_sizes(wanted, sets[1], sets[:1])
    assert sum(planned.values()) == replicas
    for each in sets:
        exact = each.replicas * replicas / total
        assert abs(planned[each.metadata.name] - exact) <= 1


def test_old_replica_sets_shrink_in_one_write() -> None:
    # One of three old pods is not available, and one more may go.
    old, new = replica_set("old1", 3, available=2), replica_set("new2", 2, available=2)
    assert sizes.plan_old_sizes(deployment(4, 0, 1), new, [old]) == {"old1": 1}


def test_scaling_to_zero_shrinks_all() -> None:
    sets = [replica_set("old1", 3, maximum=5), replica_set("new2", 2, maximum=5)]
    assert sizes.plan_scaled_sizes(deployment(0), sets[1], sets[:1]) == {"old1": 0, "new2": 0}


def test_equal_templates_are_found_although_empty_fields_differ() -> None:
    wanted = deployment(1)
    tree = {
        "metadata": {"labels": {**LABELS, "pod-template-hash": "x"}},
        "spec": {**template()["spec"], "x": {}},
    }
    same = view({"metadata": metadata("a"), "spec": {"template": tree}}, ReplicaSetView)
    other = view({"metadata": metadata("b"), "spec": {"template": template("other")}}, ReplicaSetView)
    assert sizes.find_new(wanted, [other, same]) is same
    assert sizes.find_new(wanted, [other]) is None


# -- controller


async def roll(cluster: Cluster, rounds: int = 12) -> None:
    """Let nodes run new pods and end deleted ones until nothing changes."""
    for _ in range(rounds):
        await cluster.settle(max_wait=0.1)
        await run_pods(cluster)
        await end_deleted_pods(cluster)
    await cluster.settle(max_wait=0.1)


async def read(cluster: Cluster) -> Tree:
    found = await cluster.get(DEPLOYMENTS, "w")
    assert found is not None
    return found


def condition(tree: Tree, type: str) -> Tree:
    return next(each for each in tree["status"]["conditions"] if each["type"] == type)


async def images(cluster: Cluster) -> list[str]:
    return sorted(tree["spec"]["containers"][0]["image"] for tree in await cluster.trees(PODS))


async def set_image(cluster: Cluster, image: str) -> None:
    await cluster.client.patch(DEPLOYMENTS, "w", {"spec": {"template": template(image)}}, "n")


@run_by(run_scenario, only=ONLY)
async def test_a_deployment_rolls_out_and_back(cluster: Cluster) -> None:
    await cluster.client.create(DEPLOYMENTS, workload("Deployment", replicas=3, image="v1"), "n")
    await roll(cluster)
    found = await read(cluster)
    assert found["status"]["availableReplicas"] == found["status"]["updatedReplicas"] == 3
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert condition(found, "Available")["status"] == "True"
    assert condition(found, "Progressing")["reason"] == "NewReplicaSetAvailable"
    await set_image(cluster, "v2")
    await roll(cluster)
    assert await images(cluster) == ["v2"] * 3
    assert (await read(cluster))["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    await set_image(cluster, "v1")  # as `kubectl rollout undo` does
    await roll(cluster)
    assert await images(cluster) == ["v1"] * 3
    sets = await cluster.trees(REPLICA_SETS)
    assert len(sets) == 2
    revisions = {
        tree["spec"]["template"]["spec"]["containers"][0]["image"]: tree["metadata"]["annotations"]
        for tree in sets
    }
    assert revisions["v1"]["deployment.kubernetes.io/revision"] == "3"
    assert revisions["v1"]["deployment.kubernetes.io/revision-history"] == "1"
    assert revisions["v2"]["deployment.kubernetes.io/revision"] == "2"
    texts = [message for _, reason, message in await cluster.events() if reason == "ScalingReplicaSet"]
    assert any(text.endswith("from 0 to 3") for text in texts)


@run_by(run_scenario, only=ONLY)
async def test_recreate_waits_for_the_old_pods(cluster: Cluster) -> None:
    tree = workload("Deployment", replicas=2, image="v1", strategy={"type": "Recreate"})
    await cluster.client.create(DEPLOYMENTS, tree, "n")
    await roll(cluster, 3)
    pods = await cluster.names(PODS)
    for name in pods:
        await cluster.client.patch(PODS, name, {"metadata": {"finalizers": ["example.com/x"]}}, "n")
    await set_image(cluster, "v2")
    await roll(cluster, 3)
    assert await images(cluster) == ["v1", "v1"]
    for name in pods:
        await cluster.client.patch(PODS, name, {"metadata": {"finalizers": None}}, "n")
    await roll(cluster, 3)
    assert await images(cluster) == ["v2", "v2"]


@run_by(run_scenario, only=ONLY)
async def test_a_paused_deployment_is_scaled_and_not_rolled_out(cluster: Cluster) -> None:
    await cluster.client.create(DEPLOYMENTS, workload("Deployment", replicas=1, image="v1"), "n")
    await roll(cluster, 3)
    await cluster.client.patch(DEPLOYMENTS, "w", {"spec": {"paused": True, "replicas": 2}}, "n")
    await set_image(cluster, "v2")
    await roll(cluster, 3)
    assert await images(cluster) == ["v1", "v1"]
    assert condition(await read(cluster), "Progressing")["reason"] == "DeploymentPaused"
    await cluster.client.patch(DEPLOYMENTS, "w", {"spec": {"paused": False}}, "n")
    await roll(cluster)
    assert await images(cluster) == ["v2", "v2"]


@run_by(run_scenario, only=ONLY)
async def test_a_rollout_without_progress_times_out(cluster: Cluster) -> None:
    tree = workload("Deployment", replicas=1, progressDeadlineSeconds=30)
    await cluster.client.create(DEPLOYMENTS, tree, "n")
    await cluster.settle()
    await cluster.advance(40)
    progress = condition(await read(cluster), "Progressing")
    assert (progress["status"], progress["reason"]) == ("False", "ProgressDeadlineExceeded")
    await roll(cluster, 2)
    assert condition(await read(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"


@run_by(run_scenario, only=ONLY)
async def test_old_replica_sets_are_deleted_beyond_the_limit(cluster: Cluster) -> None:
    tree = workload("Deployment", replicas=1, image="v1", revisionHistoryLimit=1)
    await cluster.client.create(DEPLOYMENTS, tree, "n")
    for image in ("v1", "v2", "v3"):
        await set_image(cluster, image)
        await roll(cluster)
    kept = {
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in await cluster.trees(REPLICA_SETS)
    }
    assert kept == {"v2", "v3"}


@run_by(run_scenario, only=ONLY)
async def test_a_taken_name_is_replaced_by_another(cluster: Cluster) -> None:
    tree = workload("Deployment", replicas=1)
    await cluster.client.create(DEPLOYMENTS, tree, "n")
    await roll(cluster, 2)
    (first,) = await cluster.names(REPLICA_SETS)
    await cluster.client.delete(DEPLOYMENTS, "w", "n", propagation="Background")
    await cluster.client.delete(REPLICA_SETS, first, "n")
    other = workload("ReplicaSet", first, selector={"matchLabels": {"x": "y"}})
    other["spec"]["template"]["metadata"]["labels"] = {"x": "y"}
    await cluster.client.create(REPLICA_SETS, other, "n")
    await cluster.client.create(DEPLOYMENTS, tree, "n")
    await roll(cluster, 3)
    found = await read(cluster)
    assert found["status"]["collisionCount"] == 1
    assert found["status"]["availableReplicas"] == 1
