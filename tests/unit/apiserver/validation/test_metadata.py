"""Metadata of every kind, on create and on update."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.registry.metadata_view import ManagedFieldsEntry
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.metadata import is_usual, validate_managed_fields
from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.objects import (
    GONE,
    claim,
    class_,
    edit,
    field_errors,
    pod,
    run,
    slice_,
    stored,
    template,
)

LONG = "a" * 254


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"name": GONE}, ["metadata.name Required"]),
        ({"name": ""}, ["metadata.name Required"]),
        ({"name": "A"}, ["metadata.name Invalid"]),
        ({"name": LONG}, ["metadata.name Invalid"]),
        ({"generateName": "x-"}, []),
        ({"generateName": "x_"}, ["metadata.generateName Invalid"]),
        ({"generateName": "-"}, ["metadata.generateName Invalid"]),
        ({"name": GONE, "generateName": "x-"}, ["metadata.name Required"]),
        ({"namespace": "lab"}, ["metadata.namespace Forbidden"]),
        ({"generation": -1}, []),  # set to 1 anyway
        ({"labels": {"a b": "c"}}, ["metadata.labels Invalid"]),
        ({"labels": {"a": "b c", "": "x"}}, ["metadata.labels Invalid"] * 3),
        ({"annotations": {"Example.com/A": "any thing"}}, []),  # case does not matter here
        ({"annotations": {"a b": ""}}, ["metadata.annotations Invalid"]),
        ({"annotations": {"a": "x" * 256 * 1024}}, ["metadata.annotations TooLong"]),
        ({"finalizers": ["example.com/x", "kubernetes", "orphan"]}, []),
        ({"finalizers": ["bad"]}, ["metadata.finalizers[0] Invalid"]),
        ({"finalizers": ["a b"]}, ["metadata.finalizers Invalid", "metadata.finalizers[0] Invalid"]),
        ({"finalizers": ["/"]}, ["metadata.finalizers Invalid"] * 3),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, ["metadata.finalizers Invalid"]),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]},
            [],
        ),
        (
            {"ownerReferences": [{}]},
            [f"metadata.ownerReferences.{name} Invalid" for name in ("apiVersion", "kind", "name", "uid")],
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "Pod", "name": "p", "uid": "1"}]},
            ["metadata.ownerReferences.apiVersion Invalid"],
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/", "kind": "Pod", "name": "p", "uid": "1"}]},
            ["metadata.ownerReferences.apiVersion Invalid"],
        ),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "1"}]},
            ["metadata.ownerReferences Invalid"],
        ),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                    for n in "abc"
                ]
            },
            ["metadata.ownerReferences Invalid"] * 2,
        ),
        ({"managedFields": [{"operation": "Apply", "fieldsType": "FieldsV1", "manager": "kubectl"}]}, []),
        ({"managedFields": [{"operation": "x"}]}, ["metadata.managedFields[0].operation Invalid"]),
        (
            {"managedFields": [{"operation": "Update", "fieldsType": "F", "subresource": "s" * 257}]},
            [
                "metadata.managedFields[0].fieldsType Invalid",
                "metadata.managedFields[0].subresource TooLong",
            ],
        ),
        (
            {"managedFields": [{"operation": "Update", "manager": "\t\u200b" + "m" * 128}]},
            ["metadata.managedFields[0].manager Invalid"] * 2 + ["metadata.managedFields[0].manager TooLong"],
        ),
    ],
)
def test_new_object(changes: dict[str, Any], errors: list[str]) -> None:
    tree = slice_()
    for name, value in changes.items():
        tree = edit(tree, {f"metadata.{name}": value})
    assert field_errors(tree) == errors


@pytest.mark.parametrize(
    ("namespace", "errors"),
    [
        ("lab", []),
        ("", ["metadata.namespace Required"]),
        ("a.b", ["metadata.namespace Invalid"]),
        ("A" * 64, ["metadata.namespace Invalid"] * 2),
    ],
)
def test_namespace_of_a_namespaced_kind(namespace: str, errors: list[str]) -> None:
    for tree in (claim(), template(), pod()):
        assert field_errors(edit(tree, {"metadata.namespace": namespace})) == errors


def test_classes_validate_only_the_generated_name() -> None:
    assert field_errors(edit(class_(), {"metadata.generateName": "X_"})) == []
    missing = field_errors(edit(class_(), {"metadata.generateName": "x-", "metadata.name": ""}))
    assert missing == ["metadata.name InternalError", "metadata.name Required"]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"generation": 7}, []),
        ({"labels": {"new": "label"}}, []),
        ({"resourceVersion": GONE}, ["metadata.resourceVersion Invalid"]),
        ({"generation": 0}, ["metadata.generation Invalid"]),
        ({"name": "other"}, ["metadata.name Invalid"]),
        ({"name": ""}, ["metadata.name Invalid"]),
        ({"namespace": "x"}, ["metadata.namespace Invalid"]),
        ({"uid": GONE}, ["metadata.uid Invalid"]),
        ({"creationTimestamp": "2025-01-01T00:00:00Z"}, ["metadata.creationTimestamp Invalid"]),
        ({"deletionTimestamp": "2025-01-01T00:00:00Z"}, ["metadata.deletionTimestamp Invalid"]),
        ({"deletionGracePeriodSeconds": 0}, ["metadata.deletionGracePeriodSeconds Invalid"]),
        ({"labels": {"a b": ""}}, ["metadata.labels Invalid"]),
        ({"annotations": {"a b": ""}}, ["metadata.annotations Invalid"]),
        ({"finalizers": ["bad"]}, ["metadata.finalizers[0] Invalid"]),
        ({"managedFields": [{}]}, ["metadata.managedFields[0].operation Invalid"]),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "P", "name": "p"}]},
            ["metadata.ownerReferences.uid Invalid"],
        ),
    ],
)
def test_update(changes: dict[str, Any], errors: list[str]) -> None:
    old = stored(slice_())
    tree = old
    for name, value in changes.items():
        tree = edit(tree, {f"metadata.{name}": value})
    assert field_errors(tree, old) == errors


def test_no_new_finalizers_while_deleting() -> None:
    old = stored(slice_(), deletionTimestamp="2025-01-01T00:00:00Z", finalizers=["a.io/x"])
    assert field_errors(edit(old, {"metadata.finalizers": []}), old) == []
    assert field_errors(edit(old, {"metadata.finalizers": ["a.io/x", "a.io/y"]}), old) == [
        "metadata.finalizers Forbidden"
    ]


def test_timestamps_are_compared_by_value() -> None:
    old = stored(slice_(), creationTimestamp="2025-01-01T00:00:00Z")
    unchanged = edit(old, {"metadata.creationTimestamp": "2025-01-01T02:00:00.25+02:00"})
    assert field_errors(unchanged, old) == []
    assert run(unchanged, old).tree["metadata"]["creationTimestamp"] == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-01-01",
        "2025-13-01T00:00:00Z",
        "2025-01-01 00:00:00Z",
        "2025-01-01T00:00:00",
        "x" * 99,
        "2025-01-01T00:00:60Z",
        "2025-01-01T00:00:00+99:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_invalid_timestamps_are_decode_errors(text: str) -> None:
    with pytest.raises(DecodeError, match="creationTimestamp"):
        run(edit(slice_(), {"metadata.creationTimestamp": text}))
    with pytest.raises(DecodeError, match="time"):
        run(edit(slice_(), {"metadata.managedFields": [{"time": text, "operation": "Update"}]}))


def test_updates_of_templates_and_classes_are_checked_like_new_objects_too() -> None:
    for tree in (template(), class_()):
        old = stored(tree)
        assert (
            field_errors(edit(old, {"metadata.labels": {"a b": ""}}), old) == ["metadata.labels Invalid"] * 2
        )


@given(
    st.builds(
        ManagedFieldsEntry,
        operation=st.sampled_from(["Apply", "Update", "", "x"]),
        fields_type=st.sampled_from(["", "FieldsV1", "x"]),
        manager=st.text(max_size=4).map(lambda text: text * 33) | st.text(),
        subresource=st.text(max_size=4).map(lambda text: text * 65) | st.text(),
    )
)
def test_entries_accepted_by_the_fast_path_are_valid(entry: ManagedFieldsEntry) -> None:
    errors = list(validate_managed_fields(entry, FieldPath("x")))
    assert not (is_usual(entry) and errors)


def test_usual_entries_take_the_fast_path() -> None:
    assert is_usual(ManagedFieldsEntry(operation="Update", manager="kubelet", subresource="status"))
