"""Disruption budgets: plan and controller."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS
from plimsoll.controllers.actions import PatchAction
from plimsoll.controllers.disruption import plan_budget
from plimsoll.controllers.workload_views import DisruptionBudgetView
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.controllers.cluster import START, Cluster, Tree, run_scenario
from tests.unit.controllers.makers import metadata, view
from tests.unit.controllers.workloads.makers import LABELS, owned_pod, run_pods, workload

ONLY = ["disruption-controller", "replicaset-controller", "deployment-controller"]


def plan(pods: Any, sizes: Any = None, disrupted: Any = None, **spec: Any) -> Tree:
    status = {"disruptedPods": disrupted or {}}
    tree = {
        "metadata": metadata("b"),
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
        "status": status,
    }
    planned = plan_budget(view(tree, DisruptionBudgetView), pods, sizes or {"uid-w": 4}, START)
    (patch,) = [action for action in planned.actions if isinstance(action, PatchAction)]
    found: Tree = patch.patch["status"]
    return found


PODS_OF_FOUR = [owned_pod("a"), owned_pod("b"), owned_pod("c"), owned_pod("d", ready=False)]


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 2, 1),
        ({"minAvailable": "50%"}, 2, 1),
        ({"minAvailable": 5}, 5, 0),
        ({"maxUnavailable": 1}, 3, 0),
        ({"maxUnavailable": 2}, 2, 1),
        ({"maxUnavailable": "30%"}, 2, 1),
        ({"maxUnavailable": "100%"}, 0, 3),
    ],
)
def test_healthy_pods_beyond_the_wanted_ones_may_be_evicted(spec: Tree, desired: int, allowed: int) -> None:
    status = plan(PODS_OF_FOUR, **spec)
    assert status["currentHealthy"] == 3
    assert status["expectedPods"] == 4
    assert (status.get("desiredHealthy", 0), status.get("disruptionsAllowed", 0)) == (desired, allowed)
    (condition,) = status["conditions"]
    assert condition["status"] == ("True" if allowed else "False")


def test_pods_of_unknown_controllers_forbid_evictions() -> None:
    status = plan(PODS_OF_FOUR, {"uid-other": 4}, maxUnavailable=4)
    assert status.get("disruptionsAllowed", 0) == 0
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert condition["message"] == 'found no controllers for pod "a"'
    # A number of available pods needs no controller.
    assert plan(PODS_OF_FOUR, {"uid-other": 4}, minAvailable=2)["disruptionsAllowed"] == 1


def test_granted_evictions_count_until_they_are_too_old() -> None:
    disrupted = {
        "a": format_time(START - 10),
        "b": format_time(START - 200),
        "x": format_time(START),
    }
    status = plan(PODS_OF_FOUR, disrupted=disrupted, minAvailable=2)
    assert status["disruptedPods"] == {"a": disrupted["a"]}
    assert status["currentHealthy"] == 2


@run_by(run_scenario, only=ONLY)
async def test_evictions_are_granted_up_to_the_budget(cluster: Cluster) -> None:
    spec = {"selector": {"matchLabels": LABELS}, "maxUnavailable": 1}
    await cluster.client.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "n")
    await cluster.client.create(DEPLOYMENTS, workload("Deployment", replicas=2), "n")
    await cluster.settle()
    await run_pods(cluster)
    await cluster.settle()
    found = await cluster.get(POD_DISRUPTION_BUDGETS, "b")
    assert found is not None
    assert found["status"]["disruptionsAllowed"] == 1
    names = await cluster.names(PODS)
    for name in names:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if name == names[0]:
            await cluster.client.post(PODS, name, "eviction", eviction, "n")
            continue
        with pytest.raises(ApiError) as refused:
            await cluster.client.post(PODS, name, "eviction", eviction, "n")
        assert refused.value.code == 429
