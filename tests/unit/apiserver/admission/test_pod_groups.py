"""Admission of PodGroups: priority, protection, and the Workload they refer to."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.gates import Gates
from plimsoll.api.scheduling import POD_GROUP_FINALIZER
from plimsoll.apiserver.admission.pod_groups import admit_pod_group
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

Tree = dict[str, Any]
CLASSES: list[Tree] = [
    {"metadata": {"name": "high"}, "value": 7},
    {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True},
]
WORKLOAD: Tree = {"metadata": {"name": "job"}, "spec": {"podGroupTemplates": [{"name": "workers"}]}}
GATES = Gates.default()


def group(**spec: Any) -> Tree:
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}, **spec}}


def admit(tree: Tree, gates: Gates = GATES, workload: Tree | None = WORKLOAD) -> Any:
    return admit_pod_group(tree, gates, CLASSES, lambda name: workload if name == "job" else None)


def test_a_group_is_protected_once() -> None:
    assert admit(group()).tree["metadata"]["finalizers"] == [POD_GROUP_FINALIZER]
    given = group()
    given["metadata"]["finalizers"] = [POD_GROUP_FINALIZER]
    assert admit(given).tree["metadata"]["finalizers"] == [POD_GROUP_FINALIZER]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("usual", 3)),
        ({"priorityClassName": "high"}, ("high", 7)),
        ({"priorityClassName": "high", "priority": 7}, ("high", 7)),
        ({"priorityClassName": "system-cluster-critical"}, ("system-cluster-critical", 2_000_000_000)),
    ],
)
def test_the_priority_follows_the_class(spec: Tree, expected: tuple[str, int]) -> None:
    admitted = admit(group(**spec)).tree["spec"]
    assert (admitted["priorityClassName"], admitted["priority"]) == expected


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 4},
            "priority set in the pod group (4) must match the priority computed (3) based on the "
            "priority class set in the spec",
        ),
        (
            {"podGroupTemplateRef": {"workload": {"workloadName": "x", "podGroupTemplateName": "workers"}}},
            'PodGroup rejected: Workload "x" not found',
        ),
        (
            {"podGroupTemplateRef": {"workload": {"workloadName": "job", "podGroupTemplateName": "y"}}},
            'PodGroup rejected: PodGroupTemplate "y" not found in Workload "job"',
        ),
    ],
)
def test_refusals(spec: Tree, refusal: str) -> None:
    assert admit(group(**spec)).refusal == refusal


def test_a_workload_that_is_being_deleted_is_refused() -> None:
    deleted = {**WORKLOAD, "metadata": {"name": "job", "deletionTimestamp": "2025-01-01T00:00:00Z"}}
    reference = {"workload": {"workloadName": "job", "podGroupTemplateName": "workers"}}
    assert admit(group(podGroupTemplateRef=reference)).refusal == ""
    refused = admit(group(podGroupTemplateRef=reference), workload=deleted).refusal
    assert refused == 'PodGroup rejected: Workload "job" is being deleted'


def test_plugins_follow_their_gates() -> None:
    tree = group(priorityClassName="none")
    assert admit(tree, Gates.of({"WorkloadAwarePreemption": False})).refusal == ""
    assert admit(tree, Gates.of({"GenericWorkload": False})).tree is tree


@run_by(run)
async def test_groups_over_http(harness: ApiHarness) -> None:
    root = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"
    reference = {"workload": {"workloadName": "job", "podGroupTemplateName": "workers"}}
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        **group(podGroupTemplateRef=reference, schedulingPolicy={"gang": {"minCount": 2}}),
    }
    code, answer = await harness.request("POST", f"{root}/podgroups", body)
    assert (code, answer["reason"]) == (403, "Forbidden")
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": "job"},
        "spec": {"podGroupTemplates": [template]},
    }
    assert (await harness.request("POST", f"{root}/workloads", workload))[0] == 201
    code, made = await harness.request("POST", f"{root}/podgroups", body)
    assert code == 201
    assert made["metadata"]["finalizers"] == [POD_GROUP_FINALIZER]
    assert (made["spec"]["priority"], made["spec"]["disruptionMode"]) == (0, "Pod")
    code, served = await harness.request("GET", "/apis/scheduling.k8s.io/v1alpha2")
    names = {each["name"] for each in served["resources"]}
    assert names == {"podgroups", "podgroups/status", "workloads"}
