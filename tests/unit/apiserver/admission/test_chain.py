"""Tests of the admission chain."""

from __future__ import annotations

from typing import Any

from tests.coroutines import run_by
from tests.unit.apiserver.build import PODS, ApiHarness, pod, run

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
MERGE = "application/merge-patch+json"


def asking(name: str, cpu: str) -> dict[str, Any]:
    tree = pod(name)
    tree["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return tree


@run_by(run)
async def test_pods_get_priority_tolerations_and_an_account(harness: ApiHarness) -> None:
    await harness.request("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    code, made = await harness.request("POST", PODS, pod(priorityClassName="high"))
    assert (code, made["spec"]["priority"]) == (201, 1000)
    assert made["spec"]["serviceAccountName"] == "default"
    keys = [toleration["key"] for toleration in made["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    code, status = await harness.request("POST", PODS, pod("q", priorityClassName="none"))
    expected = 'pods "q" is forbidden: no PriorityClass with name none was found'
    assert (code, status["message"]) == (403, expected)
    _, critical = await harness.request("POST", PODS, pod("r", priorityClassName="system-node-critical"))
    assert critical["spec"]["priority"] == 2_000_001_000


@run_by(run)
async def test_one_class_is_the_default(harness: ApiHarness) -> None:
    first = {"metadata": {"name": "a"}, "value": 5, "globalDefault": True}
    assert (await harness.request("POST", CLASSES, first))[0] == 201
    second = {"metadata": {"name": "b"}, "value": 6, "globalDefault": True}
    assert (await harness.request("POST", CLASSES, second))[0] == 403
    assert (await harness.request("POST", PODS, pod()))[1]["spec"]["priorityClassName"] == "a"


@run_by(run)
async def test_quotas_are_charged_with_the_object_and_refuse_the_one_too_many(harness: ApiHarness) -> None:
    hard = {"pods": "2", "requests.cpu": "3"}
    await harness.request("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": {"pods": "0", "requests.cpu": "0"}}}
    assert (await harness.request("PATCH", f"{QUOTAS}/q/status", status, content_type=MERGE))[0] == 200
    dry = [("dryRun", "All")]
    assert (await harness.request("POST", PODS, asking("a", "2"), query=dry))[0] == 201
    assert (await harness.request("POST", PODS, asking("a", "2")))[0] == 201
    code, refused = await harness.request("POST", PODS, asking("b", "1500m"))
    assert code == 403
    expected = (
        "exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=2, limited: requests.cpu=3"
    )
    assert refused["message"].endswith(expected)
    assert (await harness.request("POST", PODS, asking("c", "1")))[0] == 201
    _, quota = await harness.request("GET", f"{QUOTAS}/q")
    assert quota["status"]["used"] == {"pods": "2", "requests.cpu": "3"}
    assert (await harness.request("POST", PODS, pod("d")))[0] == 403
