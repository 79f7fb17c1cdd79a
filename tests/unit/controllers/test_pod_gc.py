"""Pod garbage collector: plan and controller."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Node
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.controllers import ControllerSettings
from plimsoll.controllers.actions import DeleteAction, PatchAction
from plimsoll.controllers.pod_gc import plan_pod_garbage
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import metadata, pod, view

ONLY = ["pod-garbage-collector-controller"]
DELETED: dict[str, Any] = {"deletionTimestamp": "2025-01-01T00:00:00Z"}


def node(ready: str = "True", taint: str = "") -> Node:
    return view(
        {
            "metadata": metadata("w", ""),
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}] if taint else []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def removed(*pods: Any, nodes: Any = None, gone: Any = (), kept: int = 0) -> list[str]:
    plans = plan_pod_garbage(pods, {"w": node()} if nodes is None else nodes, gone, kept, 0.0)
    return [action.name for plan in plans for action in plan if isinstance(action, DeleteAction)]


# -- plans


def test_a_pod_of_a_node_that_is_gone_is_marked_failed_and_deleted() -> None:
    ((mark, delete),) = plan_pod_garbage(
        [pod("p", node="lost", phase="Running", generation=3)], {}, {"lost"}, 0, 0.0
    )
    assert isinstance(mark, PatchAction)
    assert (mark.type, mark.subresource) == ("strategic", "status")
    assert mark.patch == {
        "metadata": {"uid": "uid-p"},
        "status": {
            "$setElementOrder/conditions": [{"type": "DisruptionTarget"}],
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                    "observedGeneration": 3,
                }
            ],
            "phase": "Failed",
            "observedGeneration": 3,
        },
    }
    assert delete == DeleteAction(PODS, "p", "n", uid="uid-p", grace=0)


def test_a_finished_pod_is_deleted_as_it_is() -> None:
    ((delete,),) = plan_pod_garbage([pod("p", node="lost", phase="Succeeded")], {}, {"lost"}, 0, 0.0)
    assert isinstance(delete, DeleteAction)


def test_deleted_unscheduled_pods_are_removed() -> None:
    assert removed(pod("p", **DELETED), pod("q"), pod("r", node="w", **DELETED)) == ["p"]


def test_terminating_pods_of_an_out_of_service_node_are_removed() -> None:
    out = node("False", "node.kubernetes.io/out-of-service")
    ending, staying = pod("p", node="w", **DELETED), pod("q", node="w")
    assert removed(ending, staying, nodes={"w": out}) == ["p"]
    still_ready = node("True", "node.kubernetes.io/out-of-service")
    assert removed(ending, nodes={"w": still_ready}) == []
    assert removed(ending, nodes={"w": node("False")}) == []


def test_the_oldest_finished_pods_above_the_limit_are_deleted() -> None:
    def ended(name: str, age: int, **fields: Any) -> Any:
        created = f"2025-01-{30 - age:02d}T00:00:00Z"
        return pod(name, node="w", phase="Failed", creationTimestamp=created, **fields)

    pods = [
        ended("young", 1),
        ended("old", 9),
        ended("evicted", 0, status={"reason": "Evicted"}),
        ended("twin-b", 5),
        ended("twin-a", 5),
        pod("running", node="w", phase="Running"),
    ]
    assert removed(*pods, kept=5) == []
    assert removed(*pods, kept=4) == ["evicted"]
    assert removed(*pods, kept=2) == ["evicted", "old", "twin-a"]
    assert removed(*pods, kept=0) == [], "none are deleted at all"


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "w", "lost"]), st.sampled_from(["Running", "Failed"]), st.booleans()),
        max_size=6,
    ),
    st.integers(0, 3),
)
def test_eviction_order_agrees_with_the_rules(shapes: list[tuple[str, str, bool]], kept: int) -> None:
    pods = [
        pod(f"p{number}", node=where, phase=phase, **(DELETED if deleted else {}))
        for number, (where, phase, deleted) in enumerate(shapes)
    ]
    gone = {
        item.metadata.name
        for item in pods
        if item.spec.node_name == "lost" or (item.metadata.deletion_timestamp and not item.spec.node_name)
    }
    if kept:
        ended = sorted(item.metadata.name for item in pods if item.status.phase == "Failed")
        gone |= set(ended[: max(0, len(ended) - kept)])
    found = removed(*pods, gone={"lost"}, kept=kept)
    assert set(found) == gone
    assert len(found) == len(gone)


# -- controller


def tree(name: str, where: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": where},
    }


@run_by(run_scenario, only=ONLY)
async def test_a_missing_node_gets_a_quarantine_period(cluster: Cluster) -> None:
    await cluster.client.create(NODES, {"metadata": {"name": "w"}})
    for name in ("p", "q"):
        await cluster.client.create(PODS, tree(name, "w"), "n")
    await cluster.settle()
    await cluster.client.delete(NODES, "w")
    await cluster.advance(25)
    await cluster.client.create(NODES, {"metadata": {"name": "w"}})
    await cluster.advance(100)
    assert await cluster.names(PODS) == ["p", "q"]
    await cluster.client.delete(NODES, "w")
    await cluster.advance(39)
    assert await cluster.names(PODS) == ["p", "q"]
    await cluster.advance(25)
    assert await cluster.names(PODS) == []


def test_finished_pods_are_kept_up_to_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(NODES, {"metadata": {"name": "w"}})
        for name in ("p", "q", "r"):
            await cluster.client.create(PODS, tree(name, "w"), "n")
            await cluster.finish(name)
            cluster.clock.advance(1)
        await cluster.advance(21)
        assert await cluster.names(PODS) == ["q", "r"]

    run_scenario(scenario, only=ONLY, settings=ControllerSettings(finished_pods_kept=2))


@run_by(run_scenario, only=ONLY)
async def test_a_terminating_pod_of_a_missing_node_is_removed(cluster: Cluster) -> None:
    await cluster.client.create(NODES, {"metadata": {"name": "w"}})
    await cluster.client.create(PODS, tree("p", "w"), "n")
    await cluster.client.delete(PODS, "p", "n")
    await cluster.settle()
    await cluster.client.delete(NODES, "w")
    await cluster.advance(70)
    assert await cluster.names(PODS) == []
