"""Namespace controller: plan and controller."""

from __future__ import annotations

from typing import Any

from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, PODS, RESOURCE_CLAIMS
from plimsoll.controllers import ControllerSettings
from plimsoll.controllers.actions import EMPTY_PLAN, CreateAction, PatchAction, UpdateAction
from plimsoll.controllers.namespace import (
    NamespaceContent,
    estimate_pod_termination,
    plan_default_namespaces,
    plan_finalization,
    plan_phase,
)
from plimsoll.controllers.object_views import NamespaceView
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import metadata, pod, view

ONLY = ["namespace-controller"]
WITH_CLAIMS = ["namespace-controller", "resourceclaim-controller", "garbage-collector-controller"]
DELETED: dict[str, Any] = {"deletionTimestamp": "2025-01-01T00:00:00Z"}


def tree(phase: str = "Terminating", conditions: Any = (), **fields: Any) -> dict[str, Any]:
    return {
        "metadata": metadata("x", "", **(DELETED | fields)),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": phase, "conditions": list(conditions)},
    }


def conditions(actions: Any) -> dict[str, tuple[str, str, str]]:
    (patch,) = [action for action in actions if isinstance(action, PatchAction)]
    return {
        condition["type"]: (condition["status"], condition["reason"], condition["message"])
        for condition in patch.patch["status"]["conditions"]
    }


# -- plans


def test_a_deleted_namespace_is_terminating() -> None:
    (patch,) = plan_phase(view(tree("Active"), NamespaceView)).actions
    assert isinstance(patch, PatchAction)
    assert patch.patch["status"] == {"phase": "Terminating"}
    assert plan_phase(view(tree(), NamespaceView)) == EMPTY_PLAN
    assert plan_phase(view(tree("Active", deletionTimestamp=None), NamespaceView)) == EMPTY_PLAN


def test_an_empty_namespace_is_finalized() -> None:
    whole = tree()
    whole["spec"]["finalizers"].append("example.com/mine")
    plan = plan_finalization(view(whole, NamespaceView), whole, NamespaceContent(), 0.0)
    reported = conditions(plan.actions)
    assert set(reported) == {
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    }
    assert {status for status, _, _ in reported.values()} == {"False"}
    final = plan.actions[-1]
    assert isinstance(final, UpdateAction)
    assert final.subresource == "finalize"
    assert final.tree["spec"] == {"finalizers": ["example.com/mine"]}
    assert final.tree["metadata"] == whole["metadata"]


def test_conditions_count_remaining_pods() -> None:
    content = NamespaceContent({"pods.": 2, "widgets.example.com": 1}, {"example.com/hold": 1}, (), 15)
    plan = plan_finalization(view(tree(), NamespaceView), tree(), content, 0.0)
    reported = conditions(plan.actions)
    assert reported["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: pods. has 2 resource instances, "
        "widgets.example.com has 1 resource instances",
    )
    assert reported["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
    )
    assert plan.requeue_after == 8
    assert not plan.error


def test_failures_are_reported_and_retried() -> None:
    content = NamespaceContent(failures=["b is broken", "a is broken"])
    plan = plan_finalization(view(tree(), NamespaceView), tree(), content, 0.0)
    assert conditions(plan.actions)["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: a is broken, b is broken",
    )
    assert plan.error


def test_a_namespace_stays_while_its_contents_are_unknown() -> None:
    plan = plan_finalization(
        view(tree(), NamespaceView), tree(), NamespaceContent(discovery_error="no answer"), 0.0
    )
    reported = conditions(plan.actions)["NamespaceDeletionDiscoveryFailure"]
    assert reported == ("True", "DiscoveryFailed", "no answer")
    assert plan.error
    assert not any(isinstance(action, UpdateAction) for action in plan.actions)


def test_unchanged_conditions_are_not_written_again() -> None:
    content = NamespaceContent({"pods.": 1}, {}, (), 30)
    first = plan_finalization(view(tree(), NamespaceView), tree(), content, 0.0)
    (patch,) = first.actions
    assert isinstance(patch, PatchAction)
    reported = patch.patch["status"]["conditions"]
    assert (
        plan_finalization(view(tree(conditions=reported), NamespaceView), tree(), content, 99.0).actions == ()
    )
    more = plan_finalization(
        view(tree(conditions=reported), NamespaceView),
        tree(),
        NamespaceContent({"pods.": 2}, {}, (), 30),
        99.0,
    )
    (patch,) = more.actions
    assert isinstance(patch, PatchAction)
    (changed,) = patch.patch["status"]["conditions"]
    assert changed["type"] == "NamespaceContentRemaining"
    assert changed["lastTransitionTime"] == "1970-01-01T00:00:00Z", "still the same status"


def test_pods_keep_their_grace_period() -> None:
    pods = [
        pod("p", spec={"terminationGracePeriodSeconds": 30}),
        pod("q", spec={"terminationGracePeriodSeconds": 90}, phase="Failed"),
    ]
    assert estimate_pod_termination(pods, 100.0, 110.0) == 30
    assert estimate_pod_termination(pods, 100.0, 130.0) == 0
    assert estimate_pod_termination([], 100.0, 100.0) == 0


def test_the_initial_namespaces_are_created() -> None:
    names = [
        action.tree["metadata"]["name"]
        for action in plan_default_namespaces(["default"]).actions
        if isinstance(action, CreateAction)
    ]
    assert names == ["kube-node-lease", "kube-public", "kube-system"]
    assert not plan_default_namespaces(["default", *names])


# -- controller


async def fill(cluster: Cluster) -> None:
    await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "n")
    tree = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "w"},
    }
    await cluster.client.create(PODS, tree, "n")


@run_by(run_scenario, only=ONLY)
async def test_default_objects_are_created_and_recreated(cluster: Cluster) -> None:
    await cluster.settle()
    defaults = ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert await cluster.names(NAMESPACES, "") == [*defaults, "n"]
    await cluster.client.delete(NAMESPACES, "kube-node-lease")
    await cluster.settle()
    assert await cluster.names(NAMESPACES, "") == [*defaults, "n"]


@run_by(run_scenario, only=ONLY)
async def test_a_namespace_is_emptied_pods_first(cluster: Cluster) -> None:
    await fill(cluster)
    await cluster.client.delete(NAMESPACES, "n")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["c"], "the pod still runs"
    namespace = await cluster.get(NAMESPACES, "n")
    assert namespace is not None
    assert namespace["status"]["phase"] == "Terminating"
    remaining = {c["type"]: c["message"] for c in namespace["status"]["conditions"] if c["status"] == "True"}
    assert remaining == {
        "NamespaceContentRemaining": "Some resources are remaining: pods. has 1 resource instances"
    }
    await cluster.client.delete(PODS, "p", "n", grace=0)
    await cluster.advance(20)
    assert await cluster.get(NAMESPACES, "n") is None
    assert await cluster.names(CONFIG_MAPS) == []


@run_by(run_scenario, only=ONLY)
async def test_a_pod_without_a_node_agent_is_waited_for(cluster: Cluster) -> None:
    """No kubelet ends the pod: after its grace period it counts as stuck, and the namespace stays."""
    await fill(cluster)
    await cluster.client.delete(NAMESPACES, "n")
    await cluster.advance(300)
    assert await cluster.get(NAMESPACES, "n") is not None


@run_by(run_scenario, only=WITH_CLAIMS)
async def test_finalizers_are_waited_for_and_noticed_at_once(cluster: Cluster) -> None:
    tree = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await cluster.client.create(CONFIG_MAPS, tree, "n")
    await cluster.client.delete(NAMESPACES, "n")
    await cluster.settle()
    assert await cluster.get(NAMESPACES, "n") is not None
    await cluster.client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, "n")
    await cluster.settle()
    assert await cluster.get(NAMESPACES, "n") is None


@run_by(run_scenario, only=WITH_CLAIMS)
async def test_claims_in_use_are_deleted_with_their_namespace(cluster: Cluster) -> None:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}
    await cluster.client.create(
        RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": devices}}, "n"
    )
    container = {"name": "c", "image": "i"}
    spec = {"containers": [container], "resourceClaims": [{"name": "a", "resourceClaimName": "c"}]}
    await cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "n")
    await cluster.allocate("c", "p")
    await cluster.settle()
    await cluster.client.delete(NAMESPACES, "n")
    await cluster.settle()
    assert await cluster.get(NAMESPACES, "n") is None


def test_grace_periods_hold_during_namespace_deletion() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "n")
        await cluster.client.delete(NAMESPACES, "n")
        await cluster.advance(4)
        assert await cluster.names(CONFIG_MAPS) == ["c"]
        await cluster.advance(2)
        assert await cluster.get(NAMESPACES, "n") is None

    run_scenario(scenario, only=ONLY, settings=ControllerSettings(namespace_grace=5.0))
