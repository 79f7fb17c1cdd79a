"""Evictions and disruption budgets."""

from __future__ import annotations

from typing import Any

from tests.coroutines import run_by
from tests.unit.apiserver.build import PODS, ApiHarness, pod, run

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"


async def running_pod(harness: ApiHarness, *, ready: bool = True) -> None:
    assert (await harness.request("POST", PODS, pod(nodeName="n")))[0] == 201
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    assert (await harness.request("PATCH", f"{PODS}/p/status", status, content_type=MERGE))[0] == 200


async def budget(
    harness: ApiHarness, name: str = "b", spec: dict[str, Any] | None = None, **status: int
) -> None:
    tree = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "minAvailable": 1, **(spec or {})},
    }
    code, made = await harness.request("POST", BUDGETS, tree)
    assert code == 201, made
    observed = {"observedGeneration": made["metadata"].get("generation", 0), **status}
    patch = {"status": observed}
    assert (await harness.request("PATCH", f"{BUDGETS}/{name}/status", patch, content_type=MERGE))[0] == 200


async def evict(harness: ApiHarness, **options: Any) -> tuple[int, Any]:
    tree = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    if options:
        tree["deleteOptions"] = options
    return await harness.request("POST", f"{PODS}/p/eviction", tree)


@run_by(run)
async def test_an_evicted_pod_carries_the_reason(harness: ApiHarness) -> None:
    await running_pod(harness)
    code, status = await evict(harness)
    assert (code, status["status"]) == (201, "Success")
    left = (await harness.request("GET", f"{PODS}/p"))[1]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    (condition,) = [c for c in left["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert (await evict(harness, gracePeriodSeconds=0))[0] == 201
    assert (await harness.request("GET", f"{PODS}/p"))[0] == 404


@run_by(run)
async def test_a_budget_is_charged_once_and_then_refuses(harness: ApiHarness) -> None:
    await running_pod(harness)
    await budget(harness, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    assert (await evict(harness, dryRun=["All"]))[0] == 201
    assert (await harness.request("GET", f"{BUDGETS}/b"))[1]["status"]["disruptionsAllowed"] == 1
    assert (await evict(harness, gracePeriodSeconds=0))[0] == 201
    status = (await harness.request("GET", f"{BUDGETS}/b"))[1]["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
    await running_pod(harness)
    code, refusal = await evict(harness)
    assert code == 429
    assert "retryAfterSeconds" not in refusal["details"], "clients would ask again by themselves"
    assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "b does not allow evicting pods currently" in refusal["details"]["causes"][0]["message"]


@run_by(run)
async def test_an_unobserved_budget_is_a_retry(harness: ApiHarness) -> None:
    await running_pod(harness)
    await budget(harness, disruptionsAllowed=1, observedGeneration=-1)
    code, refusal = await evict(harness)
    assert (code, refusal["details"]["retryAfterSeconds"]) == (429, 10)


@run_by(run)
async def test_unready_pods_are_evicted_if_the_budget_always_allows(harness: ApiHarness) -> None:
    await running_pod(harness, ready=False)
    await budget(harness, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, disruptionsAllowed=0)
    assert (await evict(harness, gracePeriodSeconds=0))[0] == 201


@run_by(run)
async def test_preconditions_of_an_eviction(harness: ApiHarness) -> None:
    await running_pod(harness)
    version = (await harness.request("GET", f"{PODS}/p"))[1]["metadata"]["resourceVersion"]
    assert (await evict(harness, preconditions={"uid": "other"}))[0] == 409
    assert (await evict(harness, preconditions={"resourceVersion": "1"}))[0] == 409
    good = {"resourceVersion": version}
    assert (await evict(harness, preconditions=good, gracePeriodSeconds=0))[0] == 201


@run_by(run)
async def test_two_budgets_over_a_pod(harness: ApiHarness) -> None:
    await running_pod(harness)
    await budget(harness, "one", disruptionsAllowed=1)
    await budget(harness, "two", disruptionsAllowed=1)
    code, refusal = await evict(harness)
    assert code == 400
    assert "more than one PodDisruptionBudget" in refusal["message"]
