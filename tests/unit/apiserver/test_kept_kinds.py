"""Kinds without a controller of ours, over the API."""

from __future__ import annotations

from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@run_by(run)
async def test_creation_in_a_terminating_namespace_fails_with_its_cause(harness: ApiHarness) -> None:
    held = {"metadata": {"name": "going", "finalizers": ["example.com/hold"]}}
    assert (await harness.request("POST", "/api/v1/namespaces", held))[0] == 201
    assert (await harness.request("DELETE", "/api/v1/namespaces/going"))[0] in (200, 202)
    code, status = await harness.request(
        "POST", "/api/v1/namespaces/going/configmaps", {"metadata": {"name": "c"}}
    )
    assert code == 403
    assert status["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace going is being terminated",
            "field": "metadata.namespace",
        }
    ]


@run_by(run)
async def test_a_workload_is_scaled_and_keeps_its_defaults(harness: ApiHarness) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    code, made = await harness.request("POST", _DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    assert (code, made["spec"]["replicas"]) == (201, 1)
    code, scale = await harness.request("GET", f"{_DEPLOYMENTS}/web/scale")
    assert (code, scale["spec"], scale["status"]["selector"]) == (200, {"replicas": 1}, "app=web")
    scale["spec"]["replicas"] = 4
    assert (await harness.request("PUT", f"{_DEPLOYMENTS}/web/scale", scale))[0] == 200
    code, after = await harness.request("GET", f"{_DEPLOYMENTS}/web")
    assert after["spec"] == {**made["spec"], "replicas": 4}
    assert after["metadata"]["generation"] == 2
