"""Namespaces, nodes, leases, priority classes and quotas."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.objects import Tree, edit, field_errors, run, stored


def _make(kind: str, namespaced: bool, **fields: Any) -> Tree:
    meta = {"name": "a", "namespace": "d"} if namespaced else {"name": "a"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}


# -- namespaces


def test_a_new_namespace() -> None:
    tree = run(_make("Namespace", False, status={"phase": "Odd"})).tree
    assert tree["spec"] == {"finalizers": ["kubernetes"]}
    assert tree["status"] == {"phase": "Active"}
    assert tree["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert field_errors(edit(tree, {"metadata.name": "a.b"})) == ["metadata.name Invalid"]
    assert field_errors(_make("Namespace", False, spec={"finalizers": ["x", "y/z", "y z"]})) == [
        "spec.finalizers Invalid",
        "spec.finalizers Invalid",
        "spec.finalizers Invalid",
    ]


def test_namespace_finalizers_change_only_through_finalize() -> None:
    old = stored(run(_make("Namespace", False)).tree)
    assert run(edit(old, {"spec.finalizers": []}), old).tree["spec"] == {"finalizers": ["kubernetes"]}
    finalized = run(edit(old, {"spec.finalizers": [], "status.phase": "X"}), old, "finalize")
    assert finalized.errors == ()
    assert finalized.tree["spec"] == {"finalizers": []}
    assert finalized.tree["status"] == {"phase": "Active"}
    assert field_errors(edit(old, {"spec.finalizers": ["x"]}), old, "finalize") == [
        "spec.finalizers[0] Invalid"
    ]


def test_the_phase_of_a_namespace_follows_its_deletion() -> None:
    old = stored(run(_make("Namespace", False)).tree)
    assert field_errors(edit(old, {"status.phase": "Terminating"}), old, "status") == ["status.Phase Invalid"]
    ending = edit(old, {"metadata.deletionTimestamp": "2025-01-01T00:00:00Z"})
    assert field_errors(ending, ending, "status") == ["status.Phase Invalid"]
    assert field_errors(edit(ending, {"status.phase": "Terminating"}), ending, "status") == []


# -- nodes


def _node(**changes: Any) -> Tree:
    tree = _make("Node", False, spec={}, status={"capacity": {"cpu": "4", "pods": "110"}})
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def test_a_node_can_allocate_its_capacity() -> None:
    tree = run(_node(status__capacity={"cpu": "4.0001"}, spec__podCIDR="10.0.0.0/24")).tree
    assert tree["status"]["capacity"] == tree["status"]["allocatable"] == {"cpu": "4001m"}
    assert tree["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    tree = run(_node(spec__podCIDRs=["10.0.0.0/24", "fd00::/64"])).tree
    assert tree["spec"]["podCIDR"] == "10.0.0.0/24"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        (
            {"status__capacity": {"cpu": "-1"}},
            ["status.allocatable.cpu Invalid", "status.capacity.cpu Invalid"],
        ),
        ({"status__allocatable": {"pods": "1.5"}}, ["status.allocatable.pods Invalid"]),
        ({"status__allocatable": {"example.com/x": "500m"}}, ["status.allocatable.example.com/x Invalid"]),
        ({"spec__taints": [{"key": "a", "effect": "Odd"}]}, ["metadata.taints[0].effect NotSupported"]),
        ({"spec__taints": [{"key": "a"}]}, ["metadata.taints[0].effect Required"]),
        (
            {"spec__taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]},
            ["metadata.taints[1] Duplicate"],
        ),
        ({"spec__podCIDRs": ["10.0.0.1/24"]}, ["spec.podCIDRs[0] Invalid"]),
        ({"spec__podCIDRs": ["010.0.0.0/24"]}, ["spec.podCIDRs[0] Invalid"]),
        ({"spec__podCIDRs": ["::ffff:10.0.0.0/120"]}, ["spec.podCIDRs[0] Invalid"]),
        ({"spec__podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}, ["spec.podCIDRs Invalid"]),
        (
            {"spec__podCIDRs": ["10.0.0.0/24", "x"]},
            ["spec.podCIDRs InternalError", "spec.podCIDRs Invalid", "spec.podCIDRs[1] Invalid"],
        ),
        ({"status__declaredFeatures": ["B", "A"]}, ["status.declaredFeatures[1] Invalid"]),
        ({"status__declaredFeatures": ["A", "A"]}, ["status.declaredFeatures[1] Duplicate"]),
        ({"status__declaredFeatures": ["a"]}, ["status.declaredFeatures[0] Invalid"]),
        ({"status__nodeInfo": {"swap": {"capacity": 0}}}, ["metadata.nodeSwapStatus.capacity Invalid"]),
    ],
)
def test_rules_of_nodes(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(_node(**changes)) == errors


def test_immutable_node_fields() -> None:
    old = stored(run(_node(spec__podCIDR="10.0.0.0/24", spec__providerID="x://1")).tree)
    assert field_errors(edit(old, {"spec.unschedulable": True}), old) == []
    assert field_errors(edit(old, {"spec.podCIDR": "10.0.1.0/24"}), old) == ["spec.podCIDRs Forbidden"]
    assert field_errors(edit(old, {"spec.providerID": "x://2"}), old) == ["spec.providerID Forbidden"]
    assert run(edit(old, {"status": {}}), old).tree["status"] == old["status"]
    status = run(edit(old, {"spec": {}, "status.phase": "x", "metadata.labels": {"a": "b"}}), old, "status")
    assert status.tree["spec"] == old["spec"]
    assert status.tree["metadata"]["labels"] == {"a": "b"}
    twice = [{"type": "Hostname", "address": "h"}, {"type": "Hostname", "address": "h"}]
    assert field_errors(edit(old, {"status.addresses": twice}), old, "status") == [
        "status.addresses[1] Duplicate"
    ]


def test_new_nodes_are_not_tainted() -> None:
    assert "taints" not in run(_node()).tree["spec"]


def test_dynamic_kubelet_configuration_is_dropped() -> None:
    source = {"configMap": {"name": "x"}}
    tree = run(_node(spec__configSource=source, status__config={"error": "x"})).tree
    assert "configSource" not in tree["spec"]
    assert "config" not in tree["status"]
    old = edit(stored(tree), {"spec.configSource": source})
    kept = run(old, old)
    assert kept.tree["spec"]["configSource"] == source
    assert kept.warnings == ("spec.configSource: the feature is removed",)


# -- leases


def test_leases() -> None:
    lease = _make("Lease", True, spec={"renewTime": "2025-01-01T01:00:00.123456+01:00", "strategy": "X"})
    tree = run(lease).tree
    assert tree["spec"] == {"renewTime": "2025-01-01T00:00:00.123456Z"}
    bad = edit(lease, {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})
    assert field_errors(bad) == ["spec.leaseDurationSeconds Invalid", "spec.leaseTransitions Invalid"]
    for text in ("2025-01-01T00:00:00Z", "2025-01-01T00:00:00.1234567Z", "now"):
        with pytest.raises(DecodeError):
            run(edit(lease, {"spec.renewTime": text}))
    with pytest.raises(DecodeError, match="2147483647"):
        run(edit(lease, {"spec.leaseTransitions": 2**31}))
    strategic = edit(lease, {"spec": {"strategy": "X", "preferredHolder": "h"}})
    old = stored(strategic)
    assert field_errors(old, old) == ["spec.strategy.strategy NotSupported"]


# -- priority classes


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"value": 1_000_000_000}, []),
        ({"value": 1_000_000_001}, ["value Forbidden"]),
        ({"metadata.name": "system-x"}, ["metadata.name Forbidden"]),
        ({"metadata.name": "system-node-critical"}, ["metadata.name Forbidden"]),
        ({"metadata.name": "system-node-critical", "value": 2_000_001_000}, []),
        (
            {"metadata.name": "system-node-critical", "value": 2_000_001_000, "globalDefault": True},
            ["metadata.name Forbidden"],
        ),
        ({"preemptionPolicy": "Maybe"}, ["preemptionPolicy NotSupported"]),
        ({"preemptionPolicy": ""}, ["preemptionPolicy Required"]),
    ],
)
def test_priority_classes(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(_make("PriorityClass", False, value=5), changes)) == errors


def test_a_priority_class_keeps_its_value() -> None:
    old = stored(run(_make("PriorityClass", False, value=5)).tree)
    assert old["preemptionPolicy"] == "PreemptLowerPriority"
    assert field_errors(edit(old, {"description": "x", "globalDefault": True}), old) == []
    assert field_errors(edit(old, {"value": 6, "preemptionPolicy": "Never"}), old) == [
        "preemptionPolicy Invalid",
        "value Forbidden",
    ]


# -- quotas


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, []),
        ({"hard": {"pods": "1", "count/pods": "1", "requests.example.com/x": "1"}}, []),
        ({"hard": {"foo": "1"}}, ["spec.hard[foo] Invalid"] * 2),
        ({"hard": {"storage": "1"}}, ["spec.hard[storage] Invalid"]),
        ({"hard": {"a b": "1"}}, ["spec.hard[a b] Invalid"] * 2),
        ({"hard": {"pods": "1.5"}}, ["spec.hard[pods] Invalid"]),
        ({"hard": {"cpu": "-1"}}, ["spec.hard[cpu] Invalid"]),
        ({"scopes": ["Odd"]}, ["spec.scopes Invalid"]),
        ({"hard": {"cpu": "1", "pods": "1"}, "scopes": ["BestEffort"]}, ["spec.scopes Invalid"]),
        ({"scopes": ["BestEffort", "NotBestEffort"]}, ["spec.scopes Invalid"]),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
            ["spec.scopeSelector.matchExpressions.values Required"],
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "Terminating", "operator": "Odd"}]}},
            ["spec.scopeSelector.matchExpressions.operator Invalid"] * 2,
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "Odd", "operator": "Exists", "values": ["x"]},
                        {"scopeName": "Terminating", "operator": "Exists"},
                        {"scopeName": "NotTerminating", "operator": "Exists"},
                    ]
                }
            },
            [
                "spec.scopeSelector.matchExpressions Invalid",
                "spec.scopeSelector.matchExpressions.scopeName Invalid",
                "spec.scopeSelector.matchExpressions.values Invalid",
            ],
        ),
    ],
)
def test_quotas(spec: Any, errors: list[str]) -> None:
    assert field_errors(_make("ResourceQuota", True, spec=spec)) == errors


def test_a_quota_keeps_its_scopes() -> None:
    old = stored(_make("ResourceQuota", True, spec={"scopes": ["Terminating"]}))
    assert field_errors(edit(old, {"spec.scopes": []}), old) == ["spec.scopes Invalid"]
    status = edit(old, {"status": {"hard": {"pods": "1"}, "used": {"foo": "-1"}}, "spec": {}})
    prepared = run(status, old, "status")
    assert prepared.tree["spec"] == old["spec"]
    assert [error.field for error in prepared.errors] == ["status.used[foo]"] * 3
    new = run(_make("ResourceQuota", True, status={"used": {"pods": "5"}})).tree
    assert new["status"] == {}


def test_a_quota_of_more_requests_than_limits_warns() -> None:
    quota = _make("ResourceQuota", True, spec={"hard": {"cpu": "3", "limits.cpu": "2"}})
    assert run(quota).warnings == ("ResourceQuota cpu (3) should be less than limits.cpu (2)",)
