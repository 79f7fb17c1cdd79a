"""Kinds with the generic strategy."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.validation import KindTraits, PreparedObject, Write, prepare, prepare_generic
from tests.unit.apiserver.validation.objects import NOW, Tree, edit


def _object(kind: str, **fields: Any) -> Tree:
    meta = {"name": "a", "namespace": "d", "resourceVersion": "1", "uid": "u"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}


def _write(kind: str, tree: Tree, old: Tree | None = None, subresource: str = "") -> PreparedObject:
    operation: Any = "create" if old is None else "update"
    write = Write(kind, operation, tree, NOW, old, subresource)
    return prepare_generic(write, namespaced=True, has_status=kind != "ControllerRevision")


def test_kinds_without_rules_are_stored_unchanged() -> None:
    given = _object("ControllerRevision", data={"k": "v", "n": 1}, odd=[None, {"x": 1.5}])
    prepared = _write("ControllerRevision", given)
    assert prepared.errors == ()
    assert prepared.tree == given


def test_the_generation_counts_changes_outside_of_status() -> None:
    first = _write(
        "CustomResourceDefinition",
        _object("CustomResourceDefinition", spec={"replicas": 1}, status={"replicas": 9}),
    ).tree
    assert first["metadata"]["generation"] == 1
    assert first["status"] == {}
    second = _write(
        "CustomResourceDefinition", edit(first, {"spec.replicas": 2, "status.replicas": 9}), first
    ).tree
    assert second["metadata"]["generation"] == 2
    assert second["status"] == {}
    changed = edit(second, {"spec.replicas": 3, "status.replicas": 2, "metadata.labels": {"a": "b"}})
    third = _write("CustomResourceDefinition", changed, second, "status").tree
    assert third["metadata"] == second["metadata"]
    assert (third["spec"], third["status"]) == ({"replicas": 2}, {"replicas": 2})
    labelled = edit(third, {"metadata.labels": {"a": "b"}, "metadata.generation": 7})
    assert _write("CustomResourceDefinition", labelled, third).tree["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("ReplicaSet", {"a": "b"}),
        ("Job", {"a": "b"}),
        ("Deployment", None),
        ("CustomResourceDefinition", None),
    ],
)
def test_some_kinds_take_metadata_with_the_status(kind: str, labels: Tree | None) -> None:
    """Status writes update the metadata of some kinds; of a Deployment everything but labels."""
    first = _write(kind, _object(kind, spec={})).tree
    first["metadata"].pop("labels", None)
    changed = edit(first, {"metadata.labels": {"a": "b"}, "metadata.annotations": {"c": "d"}})
    metadata = _write(kind, changed, first, "status").tree["metadata"]
    assert metadata.get("labels") == labels
    assert metadata.get("annotations", {}).get("c") == (None if kind == "CustomResourceDefinition" else "d")


def test_annotations_of_a_deployment_count() -> None:
    first = _write("Deployment", _object("Deployment", spec={})).tree
    second = _write("Deployment", edit(first, {"metadata.annotations": {"a": "b"}}), first).tree
    assert second["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("kind", "name", "fine"),
    [
        ("ClusterRole", "system:node", True),
        ("ClusterRole", "a/b", False),
        ("ClusterRole", "..", False),
        ("ConfigMap", "system:node", False),
        ("Service", "a.b", False),
        ("Service", "1a", True),
        ("StatefulSet", "a.b", False),
        ("CronJob", "a" * 53, False),
        ("CronJob", "a" * 52, True),
    ],
)
def test_names_by_kind(kind: str, name: str, fine: bool) -> None:
    write = Write(
        kind, "create", {"kind": kind, "metadata": {"name": name}}, NOW, traits=KindTraits(False, False)
    )
    found = [error for error in prepare(write).errors if error.field == "metadata.name"]
    assert (not found) is fine


def test_scope() -> None:
    write = Write("X", "create", {"metadata": {"name": "a", "namespace": "b"}}, NOW)
    assert not prepare_generic(write, namespaced=True, has_status=False).errors
    (error,) = prepare_generic(write, namespaced=False, has_status=False).errors
    assert error.field == "metadata.namespace"
