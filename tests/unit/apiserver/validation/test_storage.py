"""Volumes, claims for them, and the classes and drivers behind both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.generic_objects import edit, found, made, minimal, write
from tests.unit.apiserver.validation.objects import NOW_TEXT

_SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"}
_CLAIM = {"kind": "PersistentVolumeClaim", "name": "a"}
_OTHER = {"apiGroup": "example.com", "kind": "Thing", "name": "a"}


@pytest.mark.parametrize("kind", ["PersistentVolume", "PersistentVolumeClaim"])
def test_storage_gets_no_finalizers(kind: str) -> None:
    assert "finalizers" not in made(kind)["metadata"]


def test_a_claim_gets_its_defaults() -> None:
    claim = made("PersistentVolumeClaim", {"spec.resources.requests.storage": "1024Mi"})
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("given", "source", "reference"),
    [
        ({"dataSource": _CLAIM}, _CLAIM, _CLAIM),
        ({"dataSource": _SNAPSHOT}, _SNAPSHOT, _SNAPSHOT),
        ({"dataSource": _OTHER}, None, None),
        ({"dataSourceRef": _OTHER}, _OTHER, _OTHER),
        ({"dataSourceRef": {**_CLAIM, "namespace": "b"}}, None, {**_CLAIM, "namespace": "b"}),
        ({"dataSource": _OTHER, "dataSourceRef": _OTHER}, _OTHER, _OTHER),
    ],
)
def test_where_a_volume_starts_from_is_said_twice(given: Any, source: Any, reference: Any) -> None:
    spec = made("PersistentVolumeClaim", {f"spec.{name}": value for name, value in given.items()})["spec"]
    assert (spec.get("dataSource"), spec.get("dataSourceRef")) == (source, reference)


def test_a_claim_stays_what_it_is() -> None:
    old = made("PersistentVolumeClaim")
    for changes in (
        {"spec.volumeName": "v"},
        {"spec.storageClassName": "s"},
        {"metadata.labels": {"a": "b"}},
    ):
        assert found(edit(old, changes), old) == []
    bound = edit(
        old, {"spec.volumeName": "v", "status.phase": "Bound", "status.capacity": {"storage": "1Gi"}}
    )
    assert found(edit(bound, {"spec.volumeName": "w"}), bound) == ["spec Forbidden"]
    assert found(edit(old, {"spec.accessModes": ["ReadWriteMany"]}), old) == ["spec Forbidden"]


def test_a_bound_claim_can_grow_and_shrink_to_what_it_has() -> None:
    old = made("PersistentVolumeClaim", {"spec.resources.requests.storage": "5Gi"})
    bound = edit(old, {"status.phase": "Bound", "status.capacity": {"storage": "3Gi"}})
    assert found(edit(old, {"spec.resources.requests.storage": "6Gi"}), old) == ["spec Forbidden"]
    for size, errors in (
        ("6Gi", []),
        ("4Gi", []),
        ("3Gi", ["spec.resources.requests.storage Forbidden"]),
        ("1Gi", ["spec.resources.requests.storage Forbidden"]),
    ):
        assert found(edit(bound, {"spec.resources.requests.storage": size}), bound) == errors


def test_a_claim_must_ask_for_something() -> None:
    assert found(minimal("PersistentVolumeClaim", {"spec": {}})) == [
        "spec.accessModes Required",
        "spec.resources[storage] Required",
    ]


def test_a_volume_gets_its_defaults() -> None:
    volume = made("PersistentVolume", {"status": {"phase": "Bound"}})
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["volumeMode"] == "Filesystem"
    assert volume["spec"]["hostPath"] == {"path": "/x", "type": ""}
    assert volume["status"] == {"phase": "Pending", "lastPhaseTransitionTime": NOW_TEXT}


@pytest.mark.parametrize(
    ("phase", "time", "expected"),
    [
        ("Pending", None, "2020-01-01T00:00:00Z"),
        ("Bound", None, NOW_TEXT),
        ("Bound", "2020-01-01T00:00:00Z", NOW_TEXT),
        ("Bound", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
        ("Pending", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
    ],
)
def test_changes_of_phase_are_noted(phase: str, time: str | None, expected: str) -> None:
    old = edit(made("PersistentVolume"), {"status.lastPhaseTransitionTime": "2020-01-01T00:00:00Z"})
    status = {"phase": phase} | ({"lastPhaseTransitionTime": time} if time else {})
    after = write(edit(old, {"status": status}), old, "status").tree["status"]
    assert after == {"phase": phase, "lastPhaseTransitionTime": expected}


def test_a_volume_stays_where_it_is() -> None:
    old = made("PersistentVolume")
    assert found(edit(old, {"spec.claimRef": {"name": "a"}}), old) == []
    assert found(edit(old, {"spec.hostPath.path": "/y"}), old) == ["spec.persistentvolumesource Forbidden"]
    assert found(edit(old, {"spec.volumeMode": "Block"}), old) == ["volumeMode Invalid"]
    assert found(minimal("PersistentVolume", {"spec": {}})) == [
        "spec Required",
        "spec.accessModes Required",
        "spec.capacity Required",
    ]


def test_classes_and_drivers() -> None:
    made_class = made("StorageClass")
    assert (made_class["reclaimPolicy"], made_class["volumeBindingMode"]) == ("Delete", "Immediate")
    assert found(edit(made_class, {"provisioner": "q", "parameters": {"a": "b"}}), made_class) == [
        "parameters Invalid",
        "provisioner Invalid",
    ]
    assert found(minimal("StorageClass", {"provisioner": ""})) == ["provisioner Required"]
    assert made("CSIDriver")["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "volumeLifecycleModes": ["Persistent"],
    }
    assert made("CSIStorageCapacity", {"capacity": "1024Mi"})["capacity"] == "1Gi"


def test_an_attachment_stays_what_it_is() -> None:
    old = made("VolumeAttachment")
    assert old["status"] == {"attached": False}
    assert found(edit(old, {"spec.nodeName": "m"}), old) == ["spec Invalid"]
