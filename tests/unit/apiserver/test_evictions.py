"""Evictions: who goes, who stays, and what a disruption budget is charged."""

from __future__ import annotations

from typing import Any

from tests.unit.apiserver.build import PODS, Bench, pod, run

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"


async def running_pod(bench: Bench, *, ready: bool = True) -> None:
    assert (await bench.request("POST", PODS, pod(nodeName="n")))[0] == 201
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    assert (await bench.request("PATCH", f"{PODS}/p/status", status, content_type=MERGE))[0] == 200


async def budget(bench: Bench, name: str = "b", spec: dict[str, Any] | None = None, **status: int) -> None:
    tree = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "minAvailable": 1, **(spec or {})},
    }
    code, made = await bench.request("POST", BUDGETS, tree)
    assert code == 201, made
    observed = {"observedGeneration": made["metadata"].get("generation", 0), **status}
    patch = {"status": observed}
    assert (await bench.request("PATCH", f"{BUDGETS}/{name}/status", patch, content_type=MERGE))[0] == 200


async def evict(bench: Bench, **options: Any) -> tuple[int, Any]:
    tree = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    if options:
        tree["deleteOptions"] = options
    return await bench.request("POST", f"{PODS}/p/eviction", tree)


def test_an_evicted_pod_says_why_it_goes() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench)
        code, status = await evict(bench)
        assert (code, status["status"]) == (201, "Success")
        left = (await bench.request("GET", f"{PODS}/p"))[1]
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
        (condition,) = [c for c in left["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
        assert (await evict(bench, gracePeriodSeconds=0))[0] == 201
        assert (await bench.request("GET", f"{PODS}/p"))[0] == 404

    run(scenario)


def test_a_budget_is_charged_once_and_then_refuses() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench)
        await budget(bench, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
        assert (await evict(bench, dryRun=["All"]))[0] == 201
        assert (await bench.request("GET", f"{BUDGETS}/b"))[1]["status"]["disruptionsAllowed"] == 1
        assert (await evict(bench, gracePeriodSeconds=0))[0] == 201
        status = (await bench.request("GET", f"{BUDGETS}/b"))[1]["status"]
        assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
        await running_pod(bench)
        code, refusal = await evict(bench)
        assert code == 429
        assert "retryAfterSeconds" not in refusal["details"], "clients would ask again by themselves"
        assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"
        assert "b does not allow evicting pods currently" in refusal["details"]["causes"][0]["message"]

    run(scenario)


def test_a_budget_not_yet_looked_at_asks_to_wait() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench)
        await budget(bench, disruptionsAllowed=1, observedGeneration=-1)
        code, refusal = await evict(bench)
        assert (code, refusal["details"]["retryAfterSeconds"]) == (429, 10)

    run(scenario)


def test_pods_that_do_no_work_may_go() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench, ready=False)
        await budget(bench, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, disruptionsAllowed=0)
        assert (await evict(bench, gracePeriodSeconds=0))[0] == 201

    run(scenario)


def test_preconditions_of_an_eviction() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench)
        version = (await bench.request("GET", f"{PODS}/p"))[1]["metadata"]["resourceVersion"]
        assert (await evict(bench, preconditions={"uid": "other"}))[0] == 409
        assert (await evict(bench, preconditions={"resourceVersion": "1"}))[0] == 409
        good = {"resourceVersion": version}
        assert (await evict(bench, preconditions=good, gracePeriodSeconds=0))[0] == 201

    run(scenario)


def test_two_budgets_over_a_pod() -> None:
    async def scenario(bench: Bench) -> None:
        await running_pod(bench)
        await budget(bench, "one", disruptionsAllowed=1)
        await budget(bench, "two", disruptionsAllowed=1)
        code, refusal = await evict(bench)
        assert code == 400
        assert "more than one PodDisruptionBudget" in refusal["message"]

    run(scenario)
