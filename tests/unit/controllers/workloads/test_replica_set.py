"""ReplicaSets and ReplicationControllers: plans and controllers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.endpoints import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS
from plimsoll.controllers.actions import CreateAction, DeleteAction
from plimsoll.controllers.replica_set import plan_replicas, plan_status
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.controllers.cluster import START, Cluster, run_scenario
from tests.unit.controllers.workloads.makers import LABELS, owned_pod, replica_set, run_pods, workload

ONLY = ["replicaset-controller", "replicationcontroller-controller"]
DELETED = "2026-01-01T00:00:00Z"


def plan(replicas: int, *pods: Any, neighbors: dict[str, int] | None = None) -> Any:
    return plan_replicas(REPLICA_SETS, replica_set(replicas), pods, neighbors or {}, START)


def deleted_names(actions: Any) -> list[str]:
    return [action.name for action in actions if isinstance(action, DeleteAction)]


# -- plans


@given(
    st.integers(0, 8),
    st.lists(st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "deleted"]), max_size=8),
)
def test_active_pods_become_as_many_as_wanted(replicas: int, phases: list[str]) -> None:
    pods = [
        owned_pod(f"p{number}", deletionTimestamp=DELETED)
        if phase == "deleted"
        else owned_pod(f"p{number}", phase=phase)
        for number, phase in enumerate(phases)
    ]
    active = sum(phase in ("Pending", "Running") for phase in phases)
    actions = plan(replicas, *pods)
    creates = sum(isinstance(action, CreateAction) for action in actions)
    names = deleted_names(actions)
    assert active + creates - len(names) == replicas
    assert not creates or not names
    assert len(set(names)) == len(names)
    assert all(phases[int(name[1:])] in ("Pending", "Running") for name in names)


@pytest.mark.parametrize(
    ("goes", "stays"),
    [
        ({"node": ""}, {}),
        ({"phase": "Pending"}, {}),
        ({"ready": False}, {}),
        ({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}, {}),
        ({}, {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "10"}}),
        ({"node": "crowded"}, {}),
        ({"since": START - 10}, {"since": START - 1000}),
        ({"status": {"containerStatuses": [{"name": "c", "restartCount": 3}]}}, {}),
        ({}, {"creationTimestamp": "2025-01-01T00:00:00Z"}),
    ],
)
def test_pods_that_matter_less_are_deleted_first(goes: dict[str, Any], stays: dict[str, Any]) -> None:
    for names in (("a", "b"), ("b", "a")):
        less, more = owned_pod(names[0], **goes), owned_pod(names[1], **stays)
        for order in ((less, more), (more, less)):
            assert deleted_names(plan(1, *order, neighbors={"crowded": 2, "n1": 1})) == [names[0]]


def test_a_deleted_replica_set_does_nothing() -> None:
    meta = {"name": "w", "namespace": "n", "uid": "uid-w", "deletionTimestamp": DELETED}
    assert plan_replicas(REPLICA_SETS, replica_set(3, metadata=meta), (), {}, START) == ()


def test_the_status_counts_pods_by_their_state() -> None:
    pods = [
        owned_pod("a", since=START - 60),
        owned_pod("b", since=START - 5),
        owned_pod("c", phase="Pending", labels={**LABELS, "x": "y"}),
        owned_pod("d", deletionTimestamp=DELETED),
        owned_pod("e", phase="Failed"),
    ]
    tree = {"replicas": 3, "minReadySeconds": 30, "selector": {"matchLabels": LABELS}}
    tree["template"] = {"metadata": {"labels": {**LABELS, "x": "y"}}, "spec": {}}
    patch = plan_status(REPLICA_SETS, replica_set(spec=tree), pods, None, START)
    assert patch is not None
    assert patch.patch["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "terminatingReplicas": 1,
        "observedGeneration": 1,
    }


def test_an_unchanged_status_is_not_written() -> None:
    status = {"terminatingReplicas": 0, "observedGeneration": 1}
    assert plan_status(REPLICA_SETS, replica_set(0, status=status), [], None, START) is None


# -- controllers


@run_by(run_scenario, only=ONLY)
async def test_pods_are_created_replaced_and_deleted(cluster: Cluster) -> None:
    await cluster.client.create(REPLICA_SETS, workload("ReplicaSet", replicas=3), "n")
    await cluster.settle()
    names = await cluster.names(PODS)
    assert len(names) == 3
    await run_pods(cluster)
    await cluster.settle()
    found = await cluster.get(REPLICA_SETS, "w")
    assert found is not None
    assert (found["status"]["readyReplicas"], found["status"]["availableReplicas"]) == (3, 3)
    await cluster.client.delete(PODS, names[0], "n", grace=0)
    await cluster.settle()
    assert len(await cluster.names(PODS)) == 3
    await cluster.client.patch(REPLICA_SETS, "w", {"spec": {"replicas": 1}}, "n")
    await cluster.settle()
    alive = [tree for tree in await cluster.trees(PODS) if "deletionTimestamp" not in tree["metadata"]]
    assert len(alive) == 1
    reasons = {reason for _, reason, _ in await cluster.events()}
    assert reasons == {"SuccessfulCreate", "SuccessfulDelete"}


@run_by(run_scenario, only=ONLY)
async def test_replication_controllers_work_alike(cluster: Cluster) -> None:
    tree = workload("ReplicationController", api="v1", replicas=2, selector=LABELS)
    await cluster.client.create(REPLICATION_CONTROLLERS, tree, "n")
    await cluster.settle()
    assert len(await cluster.names(PODS)) == 2
    found = await cluster.get(REPLICATION_CONTROLLERS, "w")
    assert found is not None
    assert found["status"]["observedGeneration"] == 1


@run_by(run_scenario, only=ONLY)
async def test_a_lost_response_does_not_lead_to_two_pods(cluster: Cluster) -> None:
    send = cluster.transport.send
    lost = 1

    async def lose_first(request: Any) -> Any:
        nonlocal lost
        reply = await send(request)
        if request.method == "POST" and request.path.endswith("/pods") and lost:
            lost -= 1
            raise ApiError(0, "Closed", "connection lost")
        return reply

    cluster.transport.send = lose_first  # type: ignore[method-assign]
    await cluster.client.create(REPLICA_SETS, workload("ReplicaSet", replicas=3), "n")
    await cluster.settle()
    assert not lost
    assert len(await cluster.names(PODS)) == 3


@run_by(run_scenario, only=ONLY)
async def test_a_quota_is_reported_and_retried(cluster: Cluster) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await cluster.client.create(RESOURCE_QUOTAS, quota, "n")
    await cluster.client.patch(
        RESOURCE_QUOTAS, "q", {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}, "n",
        subresource="status",
    )  # fmt: skip
    await cluster.client.create(REPLICA_SETS, workload("ReplicaSet", replicas=3), "n")
    await cluster.settle(max_wait=0.1)
    assert len(await cluster.names(PODS)) == 1
    found = await cluster.get(REPLICA_SETS, "w")
    assert found is not None
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    await cluster.client.delete(RESOURCE_QUOTAS, "q", "n")
    await cluster.advance(2000)
    assert len(await cluster.names(PODS)) == 3
    found = await cluster.get(REPLICA_SETS, "w")
    assert found is not None
    assert "conditions" not in found["status"]


@run_by(run_scenario, only=ONLY)
async def test_orphans_are_adopted_and_relabeled_pods_released(cluster: Cluster) -> None:
    orphan = {
        "metadata": {"name": "o", "labels": LABELS},
        "spec": workload("")["spec"]["template"]["spec"],
    }
    await cluster.client.create(PODS, orphan, "n")
    await cluster.client.create(REPLICA_SETS, workload("ReplicaSet", replicas=1), "n")
    await cluster.settle()
    assert await cluster.names(PODS) == ["o"]
    await cluster.client.patch(PODS, "o", {"metadata": {"labels": {"app": "x"}}}, "n")
    await cluster.settle()
    assert len(await cluster.names(PODS)) == 2
    released = await cluster.get(PODS, "o")
    assert released is not None
    assert "ownerReferences" not in released["metadata"]
