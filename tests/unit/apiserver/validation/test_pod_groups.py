"""Workload and PodGroup: spec, immutability, status, gated fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, NOW_TEXT, edit, field_errors, run, stored
from tests.unit.apiserver.validation.pod_groups import SHARED, Tree, pod_group, workload


@pytest.mark.parametrize(("changes", "errors"), SHARED)
def test_new_group(changes: Tree, errors: list[str]) -> None:
    at = {f"spec.{path}": value for path, value in changes.items()}
    assert field_errors(edit(pod_group(), at)) == [f"spec.{error}" for error in errors]


@pytest.mark.parametrize(("changes", "errors"), SHARED)
def test_new_template(changes: Tree, errors: list[str]) -> None:
    at = {f"spec.podGroupTemplates.0.{path}": value for path, value in changes.items()}
    assert field_errors(edit(workload(), at)) == [f"spec.podGroupTemplates[0].{error}" for error in errors]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.podGroupTemplateRef": GONE}, []),
        ({"spec.podGroupTemplateRef": {}}, ["spec.podGroupTemplateRef Invalid"]),
        (
            {"spec.podGroupTemplateRef.workload": {}},
            [
                "spec.podGroupTemplateRef.workload.podGroupTemplateName Required",
                "spec.podGroupTemplateRef.workload.workloadName Required",
            ],
        ),
        (
            {"spec.podGroupTemplateRef.workload.podGroupTemplateName": "a.b"},
            ["spec.podGroupTemplateRef.workload.podGroupTemplateName Invalid"],
        ),
        ({"metadata.name": "A"}, ["metadata.name Invalid"]),
        ({"spec": GONE}, ["spec.schedulingPolicy Invalid"]),
    ],
)
def test_reference_of_a_group(changes: Tree, errors: list[str]) -> None:
    assert field_errors(edit(pod_group(), changes)) == errors


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.controllerRef": GONE}, []),
        ({"spec.controllerRef.apiGroup": ""}, []),
        ({"spec.controllerRef.kind": ""}, ["spec.controllerRef.kind Required"]),
        ({"spec.controllerRef.name": "a/b"}, ["spec.controllerRef.name Invalid"]),
        ({"spec.podGroupTemplates": []}, ["spec.podGroupTemplates Required"]),
        ({"spec.podGroupTemplates": [{}] * 9}, ["spec.podGroupTemplates TooMany"]),
        ({"spec.podGroupTemplates.0.name": ""}, ["spec.podGroupTemplates[0].name Required"]),
    ],
)
def test_new_workload(changes: Tree, errors: list[str]) -> None:
    assert field_errors(edit(workload(), changes)) == errors


def test_templates_have_distinct_names() -> None:
    tree = workload()
    tree["spec"]["podGroupTemplates"] *= 2
    assert field_errors(tree) == ["spec.podGroupTemplates[1] Duplicate"]


@pytest.mark.parametrize(
    "changes",
    [
        {"podGroupTemplateRef": GONE},
        {"schedulingPolicy": {"basic": {}}},
        {"schedulingPolicy.gang.minCount": 5},
        {"schedulingConstraints.topology.0.key": "zone"},
        {"resourceClaims": []},
        {"disruptionMode": "Pod"},
        {"priorityClassName": "low"},
        {"priority": 8},
    ],
)
def test_the_spec_of_a_group_is_immutable(changes: Tree) -> None:
    old = stored(pod_group())
    new = edit(old, {f"spec.{path}": value for path, value in changes.items()})
    (error,) = run(new, old).errors
    field = next(iter(changes)).partition(".")[0]
    assert (error.field, error.detail) == (f"spec.{field}", "field is immutable")


def test_the_spec_of_a_workload_is_immutable() -> None:
    old = stored(workload())
    assert field_errors(edit(old, {"spec.controllerRef.name": "b"}), old) == ["spec.controllerRef Invalid"]
    grown = edit(old, {"spec.podGroupTemplates.0.schedulingPolicy.gang.minCount": 5})
    assert field_errors(grown, old) == ["spec.podGroupTemplates Invalid"]
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []


def test_a_group_is_created_with_an_empty_status_and_with_the_default_mode() -> None:
    tree = run(edit(pod_group(), {"spec.disruptionMode": GONE, "status": {"conditions": []}})).tree
    assert tree["spec"]["disruptionMode"] == "Pod"
    assert tree["status"] == {}


CONDITION = {
    "type": "PodGroupScheduled",
    "status": "True",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": NOW_TEXT,
}


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({"conditions": [CONDITION]}, []),
        ({"conditions": [{**CONDITION, "status": "Yes"}]}, ["status.conditions[0].status NotSupported"]),
        ({"resourceClaimStatuses": [{"name": "net", "resourceClaimName": "x"}]}, []),
        ({"resourceClaimStatuses": [{"name": "other"}]}, ["status.resourceClaimStatuses[0].name Invalid"]),
        (
            {"resourceClaimStatuses": [{"name": "net", "resourceClaimName": "A"}]},
            ["status.resourceClaimStatuses[0].resourceClaimName Invalid"],
        ),
        (
            {"resourceClaimStatuses": [{"name": "net"}] * 2},
            ["status.resourceClaimStatuses[1] Duplicate"],
        ),
        ({"resourceClaimStatuses": [{"name": "net"}] * 5}, ["status.resourceClaimStatuses TooMany"]),
    ],
)
def test_status_of_a_group(status: Tree, errors: list[str]) -> None:
    old = stored(pod_group())
    assert field_errors({**old, "status": status}, old, "status") == errors


def test_a_status_write_changes_the_status_only() -> None:
    old = stored(pod_group())
    new = edit(old, {"spec.priority": 9, "status": {"conditions": [CONDITION]}})
    tree = run(new, old, "status").tree
    assert tree["spec"]["priority"] == 7
    assert tree["status"]["conditions"] == [CONDITION]
    assert run(edit(old, {"status": {"conditions": [CONDITION]}}), old).tree["status"] == {}


@pytest.mark.parametrize(
    ("gate", "fields"),
    [
        ("TopologyAwareWorkloadScheduling", {"schedulingConstraints"}),
        ("DRAWorkloadResourceClaims", {"resourceClaims"}),
        ("WorkloadAwarePreemption", {"disruptionMode", "priorityClassName", "priority"}),
    ],
)
def test_fields_follow_their_gates(gate: str, fields: set[str]) -> None:
    off = {gate: False}
    kept = run(pod_group(), gates=off).tree["spec"]
    assert kept.keys() == pod_group()["spec"].keys() - fields
    template = run(workload(), gates=off).tree["spec"]["podGroupTemplates"][0]
    assert not fields & template.keys()
    old = stored(pod_group())
    assert run(old, old, gates=off).tree["spec"] == old["spec"]


@pytest.mark.parametrize("tree", [workload(), pod_group()])
def test_workloads_need_their_gate(tree: Tree) -> None:
    off = {"GenericWorkload": False}
    assert field_errors(tree, gates=off) == ["[] Forbidden"]
    old = stored(tree)
    assert field_errors(old, old, gates=off) == []


def member(group: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "lab"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": group},
    }


@pytest.mark.parametrize(
    ("group", "errors"),
    [
        ({"podGroupName": "trainer"}, []),
        ({}, ["spec.schedulingGroup.podGroupName Invalid"]),
        ({"podGroupName": "A"}, ["spec.schedulingGroup.podGroupName Invalid"]),
    ],
)
def test_scheduling_group_of_a_pod(group: Any, errors: list[str]) -> None:
    assert field_errors(member(group)) == errors


def test_the_scheduling_group_of_a_pod_follows_its_gate_and_is_immutable() -> None:
    off = {"GenericWorkload": False}
    new = member({"podGroupName": "trainer"})
    assert "schedulingGroup" not in run(new, gates=off).tree["spec"]
    old = stored(run(new).tree)
    assert run(old, old, gates=off).tree["spec"]["schedulingGroup"] == {"podGroupName": "trainer"}
    assert field_errors(edit(old, {"spec.schedulingGroup.podGroupName": "b"}), old) == ["spec Forbidden"]
