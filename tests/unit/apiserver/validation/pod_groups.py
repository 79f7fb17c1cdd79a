"""PodGroups and Workloads of tests, and errors of their common fields."""

from __future__ import annotations

from typing import Any

from tests.unit.apiserver.validation.objects import GONE

Tree = dict[str, Any]


API = "scheduling.k8s.io/v1alpha2"


def pod_group() -> Tree:
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": "trainer", "namespace": "lab"},
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": "job", "podGroupTemplateName": "workers"}},
            "schedulingPolicy": {"gang": {"minCount": 4}},
            "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/rack"}]},
            "resourceClaims": [{"name": "net", "resourceClaimTemplateName": "net"}],
            "disruptionMode": "PodGroup",
            "priorityClassName": "high",
            "priority": 7,
        },
    }


def workload() -> Tree:
    template = {**pod_group()["spec"], "name": "workers"}
    del template["podGroupTemplateRef"]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": "job", "namespace": "lab"},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "job"},
            "podGroupTemplates": [template],
        },
    }


SHARED: list[tuple[Tree, list[str]]] = [
    ({}, []),
    ({"schedulingPolicy": GONE}, ["schedulingPolicy Invalid"]),
    ({"schedulingPolicy": {}}, ["schedulingPolicy Invalid"]),
    ({"schedulingPolicy": {"basic": {}}}, []),
    ({"schedulingPolicy.basic": {}}, ["schedulingPolicy Invalid"]),
    ({"schedulingPolicy.gang": {}}, ["schedulingPolicy.gang.minCount Required"]),
    ({"schedulingPolicy.gang.minCount": 0}, ["schedulingPolicy.gang.minCount Required"]),
    ({"schedulingPolicy.gang.minCount": -1}, ["schedulingPolicy.gang.minCount Invalid"]),
    ({"schedulingConstraints": GONE}, []),
    ({"schedulingConstraints": {}}, []),
    ({"schedulingConstraints.topology.0.key": ""}, ["schedulingConstraints.topology[0].key Required"]),
    ({"schedulingConstraints.topology.0.key": "a b"}, ["schedulingConstraints.topology[0].key Invalid"]),
    ({"schedulingConstraints.topology": [{"key": "a"}] * 2}, ["schedulingConstraints.topology TooMany"]),
    ({"resourceClaims.0.name": ""}, ["resourceClaims[0].name Required"]),
    ({"resourceClaims.0.name": "a.b"}, ["resourceClaims[0].name Invalid"]),
    ({"resourceClaims.0.resourceClaimName": "c"}, ["resourceClaims[0] Invalid"]),
    ({"resourceClaims.0.resourceClaimTemplateName": GONE}, ["resourceClaims[0] Invalid"]),
    (
        {"resourceClaims.0.resourceClaimTemplateName": "A"},
        ["resourceClaims[0].resourceClaimTemplateName Invalid"],
    ),
    ({"resourceClaims": [{"name": "a", "resourceClaimName": "c"}] * 2}, ["resourceClaims[1] Duplicate"]),
    ({"resourceClaims": [{}] * 5}, ["resourceClaims TooMany"]),
    ({"disruptionMode": "Node"}, ["disruptionMode NotSupported"]),
    ({"disruptionMode": GONE}, []),
    ({"priorityClassName": "A"}, ["priorityClassName Invalid"]),
    ({"priority": 1_000_000_001}, ["priority Invalid"]),
    ({"priority": -(2**31)}, []),
]
