"""Tests of the admission plugins for pods and namespaces."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plimsoll.apiserver.admission.plugins import (
    admit_pod,
    admit_priority,
    admit_runtime_class,
    admit_tolerations,
    check_namespace,
    check_namespace_deletion,
    check_single_default,
)
from tests.unit.apiserver.validation.objects import Tree


def _pod(**spec: Any) -> Tree:
    return {"metadata": {"name": "p"}, "spec": {"containers": [], **spec}}


def _class(name: str, value: int, **fields: Any) -> Tree:
    return {"metadata": {"name": name}, "value": value, **fields}


CLASSES = [
    _class("low", -5, preemptionPolicy="Never"),
    _class("high", 100, globalDefault=True),
    _class("mid", 50, globalDefault=True),
]


def test_priority() -> None:
    pod = _pod(priorityClassName="low")
    before = copy.deepcopy(pod)
    spec = admit_priority(pod, None, CLASSES).tree["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (-5, "Never")
    assert pod == before
    spec = admit_priority(_pod(), None, CLASSES).tree["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("mid", 50)
    spec = admit_priority(_pod(), None, []).tree["spec"]
    assert (spec.get("priorityClassName"), spec["priority"]) == (None, 0)
    spec = admit_priority(_pod(priorityClassName="system-node-critical"), None, []).tree["spec"]
    assert spec["priority"] == 2_000_001_000


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (_pod(priorityClassName="x"), "no PriorityClass with name x was found"),
        (_pod(priority=7), "the integer value of priority (7) must not be provided in pod spec; "),
        (_pod(preemptionPolicy="Never"), "the string value of PreemptionPolicy (Never) must not be provided"),
    ],
)
def test_priorities_that_are_refused(pod: Tree, text: str) -> None:
    admitted = admit_priority(pod, None, [])
    assert admitted.refusal.startswith(text)
    assert admitted.tree is pod


def test_an_update_keeps_the_priority() -> None:
    old = _pod(priority=5, preemptionPolicy="Never")
    assert admit_priority(_pod(), old, []).tree["spec"]["priority"] == 5
    assert admit_priority(_pod(priority=6), old, []).tree["spec"]["priority"] == 6


def test_one_class_is_the_default() -> None:
    new = _class("new", 1, globalDefault=True)
    assert check_single_default(new, None, CLASSES).startswith("PriorityClass mid is already marked")
    assert check_single_default(_class("new", 1), None, CLASSES) == ""
    assert check_single_default(new, None, CLASSES[:1]) == ""
    assert check_single_default(CLASSES[2], CLASSES[2], CLASSES) == ""


def test_tolerations() -> None:
    tolerations = admit_tolerations(_pod()).tree["spec"]["tolerations"]
    assert [toleration["key"] for toleration in tolerations] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert {toleration["tolerationSeconds"] for toleration in tolerations} == {300}
    everything = _pod(tolerations=[{"operator": "Exists"}])
    assert admit_tolerations(everything).tree is everything
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    tolerations = admit_tolerations(_pod(tolerations=[own]), seconds=5).tree["spec"]["tolerations"]
    assert tolerations[0] == own
    assert (tolerations[1]["key"], tolerations[1]["tolerationSeconds"]) == (
        "node.kubernetes.io/unreachable",
        5,
    )


RUNTIME: Tree = {
    "metadata": {"name": "vm"},
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
}


def test_runtime_classes() -> None:
    spec = admit_runtime_class(_pod(runtimeClassName="vm", nodeSelector={"a": "b"}), RUNTIME).tree["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"a": "b", "vm": "yes"}
    assert spec["tolerations"] == RUNTIME["scheduling"]["tolerations"]
    same = admit_runtime_class(_pod(runtimeClassName="vm", overhead={"cpu": 0.25}), RUNTIME)
    assert same.refusal == ""
    plain = _pod()
    assert admit_runtime_class(plain, None).tree is plain


@pytest.mark.parametrize(
    ("pod", "runtime", "text"),
    [
        (_pod(runtimeClassName="x"), None, 'pod rejected: RuntimeClass "x" not found'),
        (_pod(overhead={"cpu": "1"}), None, "pod rejected: Pod Overhead set without"),
        (_pod(runtimeClassName="x", overhead={"cpu": "1"}), {}, "pod rejected: Pod Overhead set without"),
        (_pod(runtimeClassName="x", overhead={"cpu": "1"}), RUNTIME, "pod rejected: Pod's Overhead doesn't"),
        (_pod(runtimeClassName="x", overhead={"cpu": "?"}), RUNTIME, "pod rejected: Pod's Overhead doesn't"),
        (_pod(runtimeClassName="x", nodeSelector={"vm": "no"}), RUNTIME, "conflict: runtimeClass.scheduling"),
    ],
)
def test_runtime_classes_that_are_refused(pod: Tree, runtime: Tree | None, text: str) -> None:
    assert admit_runtime_class(pod, runtime).refusal.startswith(text)


@pytest.mark.parametrize("tree", [{}, {"spec": None}, {"spec": []}, {"spec": "x"}, []])
def test_other_kinds_are_not_changed(tree: Any) -> None:
    assert admit_priority(tree, None, CLASSES).tree is tree
    assert admit_tolerations(tree).tree is tree
    assert admit_runtime_class(tree, RUNTIME).tree is tree


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": 5},
        {"tolerations": [None]},
        {"priorityClassName": 5},
        {"priorityClassName": []},
        {"overhead": 5, "runtimeClassName": "x"},
        {"nodeSelector": [], "runtimeClassName": "x"},
    ],
)
def test_malformed_pods_cause_no_errors(spec: Tree) -> None:
    for admit in (
        lambda pod: admit_priority(pod, None, CLASSES),
        lambda pod: admit_priority(pod, pod, CLASSES),
        admit_tolerations,
        lambda pod: admit_runtime_class(pod, RUNTIME),
    ):
        admit(_pod(**spec))


def test_all_together() -> None:
    pod = _pod(runtimeClassName="vm", priorityClassName="low")
    spec = admit_pod(pod, None, iter(CLASSES), RUNTIME).tree["spec"]
    assert (spec["priority"], spec["overhead"]) == (-5, {"cpu": "250m"})
    assert [toleration["key"] for toleration in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "vm",
    ]
    assert admit_pod(_pod(priorityClassName="x"), None, [], None).refusal
    assert admit_pod(_pod(runtimeClassName="x"), None, [], None).refusal
    updated = admit_pod(_pod(runtimeClassName="x"), _pod(priority=3), [], None)
    assert updated.tree["spec"]["priority"] == 3


def test_namespaces() -> None:
    assert check_namespace("d", {"metadata": {"name": "d"}}) is None
    assert check_namespace("d", None) == (404, 'namespaces "d" not found')
    ending = {"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}}
    assert check_namespace("d", ending) == (
        403,
        "unable to create new content in namespace d because it is being terminated",
    )
    assert check_namespace_deletion("kube-system")
    assert not check_namespace_deletion("mine")
