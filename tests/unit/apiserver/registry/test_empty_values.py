"""Empty lists and maps are stored as kube-apiserver does: not at all, unless their field is required."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.registry.empty_values import drop_empty_values
from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, PODS, ApiHarness, config_map, pod, run


def test_empty_lists_and_maps_are_dropped_and_empty_objects_kept() -> None:
    tree: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "labels": {}},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": []},
            "template": {
                "metadata": {"annotations": {}},
                "spec": {
                    "containers": [
                        {"name": "c", "resources": {"limits": {}, "requests": {"cpu": "1"}}, "env": []}
                    ],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "nodeSelector": {},
                    "unknown": {},
                },
            },
            "strategy": {},
        },
    }
    drop_empty_values(tree, "Deployment")
    assert tree["metadata"] == {"name": "d", "labels": {}}
    assert tree["spec"] == {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "unknown": {},
            },
        },
        "strategy": {},
    }


def test_parts_of_the_stored_object_are_not_touched() -> None:
    spec: dict[str, Any] = {"nodeSelector": {}}
    status: dict[str, Any] = {"conditions": []}
    tree: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status}
    drop_empty_values(tree, "Pod", {**tree, "status": {}})
    assert tree["spec"] is spec
    assert (spec, status) == ({"nodeSelector": {}}, {})


def test_required_lists_and_kinds_without_a_schema_stay_as_they_are() -> None:
    pods: dict[str, Any] = {"apiVersion": "v1", "spec": {"containers": []}}
    drop_empty_values(pods, "Pod")
    assert pods["spec"] == {"containers": []}
    other: dict[str, Any] = {"apiVersion": "example.com/v1", "spec": {"x": []}}
    drop_empty_values(other, "Widget")
    assert other["spec"] == {"x": []}


@run_by(run)
async def test_empty_limits_are_not_stored_and_are_no_change(harness: ApiHarness) -> None:
    tree = pod("p")
    tree["spec"]["containers"][0]["resources"] = {"limits": {}, "requests": {}}
    code, stored = await harness.request("POST", PODS, tree)
    assert code == 201
    assert stored["spec"]["containers"][0]["resources"] == {}
    assert (await harness.request("POST", MAPS, {**config_map("m"), "data": {}}))[0] == 201
    code, found = await harness.request("GET", f"{MAPS}/m")
    assert "data" not in found
    template = {"metadata": {"labels": {"a": "b"}}, "spec": tree["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {"metadata": {"name": "d"}, "spec": spec}
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert (await harness.request("POST", path, deployment))[0] == 201
    code, again = await harness.request("PUT", f"{path}/d", deployment)
    assert (code, again["metadata"]["generation"]) == (200, 1)
