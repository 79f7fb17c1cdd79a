"""Binding of pods to nodes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plimsoll.apiserver.validation import bind_pod
from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.objects import NOW, NOW_TEXT, Tree, edit


def _pod(**changes: Any) -> Tree:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "uid": "u1", "resourceVersion": "7", "generation": 1},
        "spec": {"containers": [{"name": "a", "image": "i"}]},
        "status": {"phase": "Pending", "nominatedNodeName": "n0"},
    }
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def _binding(**changes: Any) -> Tree:
    tree: Tree = {"metadata": {"name": "p", "namespace": "d"}, "target": {"kind": "Node", "name": "n1"}}
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def test_a_bound_pod_has_node_name_and_condition() -> None:
    pod, binding = _pod(metadata__labels={"a": "1"}), _binding(metadata__annotations={"x": "y"})
    before = copy.deepcopy((pod, binding))
    bound = bind_pod(pod, binding, NOW, {"topology.kubernetes.io/zone": "z", "other": "o"})
    assert not bound.errors
    assert not bound.conflict
    assert bound.tree["spec"]["nodeName"] == "n1"
    assert bound.tree["metadata"]["annotations"] == {"x": "y"}
    assert bound.tree["metadata"]["labels"] == {"a": "1", "topology.kubernetes.io/zone": "z"}
    assert bound.tree["metadata"]["generation"] == 1
    assert "nominatedNodeName" not in bound.tree["status"]
    (condition,) = bound.tree["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": NOW_TEXT,
    }
    assert (pod, binding) == before


def test_an_earlier_refusal_to_schedule_is_replaced() -> None:
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    other = {"type": "Other", "status": "True"}
    bound = bind_pod(_pod(status__conditions=[refusal, other]), _binding(), NOW)
    first, second = bound.tree["status"]["conditions"]
    assert first["status"] == "True"
    assert "reason" not in first
    assert second == other


@pytest.mark.parametrize(
    ("pod", "binding", "conflict"),
    [
        (_pod(spec__nodeName="n2"), _binding(), 'pod p is already assigned to node "n2"'),
        (_pod(metadata__deletionTimestamp=NOW_TEXT), _binding(), "pod p is being deleted"),
        (_pod(spec__schedulingGates=[{"name": "g"}]), _binding(), "non-empty .spec.schedulingGates"),
        (_pod(), _binding(metadata__uid="u2"), "UID in precondition: u2, UID in object meta: u1"),
        (_pod(), _binding(metadata__resourceVersion="6"), "ResourceVersion in precondition: 6"),
    ],
)
def test_binding_conflicts(pod: Tree, binding: Tree, conflict: str) -> None:
    bound = bind_pod(pod, binding, NOW)
    assert conflict in bound.conflict
    assert bound.tree == pod


def test_a_binding_needs_a_node() -> None:
    bound = bind_pod(_pod(), {"metadata": {"name": "p"}, "target": {"kind": "Pod"}}, NOW)
    assert [error.field for error in bound.errors] == ["target.kind", "target.name"]
    with pytest.raises(DecodeError):
        bind_pod(_pod(), {"target": {"name": 1}}, NOW)
    with pytest.raises(DecodeError):
        bind_pod(_pod(), [], NOW)
