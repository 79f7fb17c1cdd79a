"""PersistentVolumes, their claims, and storage classes and drivers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.generic_objects import created, edit, field_errors, minimal, write
from tests.unit.apiserver.validation.objects import NOW_TEXT

_SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"}
_CLAIM = {"kind": "PersistentVolumeClaim", "name": "a"}
_OTHER = {"apiGroup": "example.com", "kind": "Thing", "name": "a"}


def test_a_claim_gets_its_defaults() -> None:
    claim = created("PersistentVolumeClaim", {"spec.resources.requests.storage": "1024Mi"})
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
def test_data_source_and_data_source_ref_are_copied(given: Any, source: Any, reference: Any) -> None:
    spec = created("PersistentVolumeClaim", {f"spec.{name}": value for name, value in given.items()})["spec"]
    assert (spec.get("dataSource"), spec.get("dataSourceRef")) == (source, reference)


def test_immutable_volume_claim_fields() -> None:
    old = created("PersistentVolumeClaim")
    for changes in (
        {"spec.volumeName": "v"},
        {"spec.storageClassName": "s"},
        {"metadata.labels": {"a": "b"}},
    ):
        assert field_errors(edit(old, changes), old) == []
    bound = edit(
        old, {"spec.volumeName": "v", "status.phase": "Bound", "status.capacity": {"storage": "1Gi"}}
    )
    assert field_errors(edit(bound, {"spec.volumeName": "w"}), bound) == ["spec Forbidden"]
    assert field_errors(edit(old, {"spec.accessModes": ["ReadWriteMany"]}), old) == ["spec Forbidden"]


def test_a_bound_claim_can_grow_and_shrink_to_what_it_has() -> None:
    old = created("PersistentVolumeClaim", {"spec.resources.requests.storage": "5Gi"})
    bound = edit(old, {"status.phase": "Bound", "status.capacity": {"storage": "3Gi"}})
    assert field_errors(edit(old, {"spec.resources.requests.storage": "6Gi"}), old) == ["spec Forbidden"]
    for size, errors in (
        ("6Gi", []),
        ("4Gi", []),
        ("3Gi", ["spec.resources.requests.storage Forbidden"]),
        ("1Gi", ["spec.resources.requests.storage Forbidden"]),
    ):
        assert field_errors(edit(bound, {"spec.resources.requests.storage": size}), bound) == errors


def test_a_claim_must_ask_for_something() -> None:
    assert field_errors(minimal("PersistentVolumeClaim", {"spec": {}})) == [
        "spec.accessModes Required",
        "spec.resources[storage] Required",
    ]


def test_a_volume_gets_its_defaults() -> None:
    volume = created("PersistentVolume", {"status": {"phase": "Bound"}})
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
    old = edit(created("PersistentVolume"), {"status.lastPhaseTransitionTime": "2020-01-01T00:00:00Z"})
    status = {"phase": phase} | ({"lastPhaseTransitionTime": time} if time else {})
    after = write(edit(old, {"status": status}), old, "status").tree["status"]
    assert after == {"phase": phase, "lastPhaseTransitionTime": expected}


def test_immutable_volume_fields() -> None:
    old = created("PersistentVolume")
    assert field_errors(edit(old, {"spec.claimRef": {"name": "a"}}), old) == []
    assert field_errors(edit(old, {"spec.hostPath.path": "/y"}), old) == [
        "spec.persistentvolumesource Forbidden"
    ]
    assert field_errors(edit(old, {"spec.volumeMode": "Block"}), old) == ["volumeMode Invalid"]
    assert field_errors(minimal("PersistentVolume", {"spec": {}})) == [
        "spec Required",
        "spec.accessModes Required",
        "spec.capacity Required",
    ]


def test_classes_and_drivers() -> None:
    made_class = created("StorageClass")
    assert (made_class["reclaimPolicy"], made_class["volumeBindingMode"]) == ("Delete", "Immediate")
    assert field_errors(edit(made_class, {"provisioner": "q", "parameters": {"a": "b"}}), made_class) == [
        "parameters Invalid",
        "provisioner Invalid",
    ]
    assert field_errors(minimal("StorageClass", {"provisioner": ""})) == ["provisioner Required"]
    assert created("CSIDriver")["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "volumeLifecycleModes": ["Persistent"],
    }
    assert created("CSIStorageCapacity", {"capacity": "1024Mi"})["capacity"] == "1Gi"


def test_immutable_attachment_fields() -> None:
    old = created("VolumeAttachment")
    assert old["status"] == {"attached": False}
    assert field_errors(edit(old, {"spec.nodeName": "m"}), old) == ["spec Invalid"]
