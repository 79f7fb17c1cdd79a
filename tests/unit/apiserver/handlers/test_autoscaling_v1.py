"""autoscaling/v1: the utilization of CPU in a field, everything else in annotations."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.handlers.autoscaling_v1 import to_v1, to_v2
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

OLD = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
NEW = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
TARGET = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
METRICS: list[dict[str, Any]] = [
    {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    },
    {
        "type": "Pods",
        "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}},
    },
    {
        "type": "Object",
        "object": {
            "describedObject": TARGET,
            "metric": {"name": "o", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "7"},
        },
    },
    {
        "type": "External",
        "external": {
            "metric": {"name": "e", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "7"},
        },
    },
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "x",
            "target": {"type": "Utilization", "averageUtilization": 60},
        },
    },
    {"type": "Resource", "resource": CPU},
]
CURRENT = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "1"}},
    },
    {"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "2"}}},
]
FULL = {
    "metadata": {"name": "a", "annotations": {"own": "x"}},
    "spec": {
        "scaleTargetRef": TARGET,
        "maxReplicas": 3,
        "metrics": METRICS,
        "behavior": {
            "scaleDown": {"stabilizationWindowSeconds": 10, "policies": [{"type": "Pods", "value": 1}]}
        },
    },
    "status": {
        "currentReplicas": 1,
        "desiredReplicas": 2,
        "currentMetrics": CURRENT,
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    },
}


def test_nothing_is_lost_by_conversion() -> None:
    old = to_v1(FULL)
    assert old["spec"] == {
        "scaleTargetRef": TARGET,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 70,
    }
    assert old["status"] == {
        "currentReplicas": 1,
        "desiredReplicas": 2,
        "currentCPUUtilizationPercentage": 40,
    }
    assert to_v2(old) == FULL


@pytest.mark.parametrize("text", ["", "nothing", "{}", "[1]", "null"])
def test_annotations_of_any_content_are_read(text: str) -> None:
    names = ("metrics", "behavior", "current-metrics", "conditions")
    annotations = {f"autoscaling.alpha.kubernetes.io/{name}": text for name in names}
    tree = to_v2({"metadata": {"annotations": annotations}, "spec": {"maxReplicas": 1}})
    assert "metrics" not in tree["spec"]
    assert "annotations" not in tree["metadata"]


@run_by(run)
async def test_both_versions_show_the_same_autoscaler(harness: ApiHarness) -> None:
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    code, made = await harness.request("POST", OLD, {"metadata": {"name": "a"}, "spec": spec})
    assert (code, made["spec"]) == (201, {**spec, "minReplicas": 1})
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    _, seen = await harness.request("GET", f"{NEW}/a")
    target = {"type": "Utilization", "averageUtilization": 50}
    assert seen["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    tree = {"metadata": {"name": "b"}, "spec": FULL["spec"]}
    _, made = await harness.request("POST", NEW, tree)
    media = "application/merge-patch+json"
    _, old = await harness.request(
        "PATCH", f"{OLD}/b", {"metadata": {"labels": {"x": "y"}}}, content_type=media
    )
    assert old["apiVersion"] == "autoscaling/v1"
    _, seen = await harness.request("GET", f"{NEW}/b")
    assert seen["spec"] == made["spec"]
    assert "annotations" not in seen["metadata"]
