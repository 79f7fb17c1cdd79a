"""Admission of storage objects: finalizers and the default class. Expansion: the tests of the controllers."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.storage import CLAIM_PROTECTION, DEFAULT_CLASS, VOLUME_PROTECTION, StorageClass
from plimsoll.apiserver.admission.storage import CLAIMS, VOLUMES, admit_storage
from plimsoll.client.endpoints import Endpoint
from tests.unit.controllers.cluster import Cluster, run_scenario


def storage_class(name: str, created: str, default: str = "true") -> StorageClass:
    annotations = {DEFAULT_CLASS: default}
    metadata = {"name": name, "creationTimestamp": created, "annotations": annotations}
    return codec.convert({"metadata": metadata}, StorageClass)


CLASSES = [
    storage_class("old", "2025-01-01T00:00:00Z"),
    storage_class("new-b", "2026-01-01T00:00:00Z"),
    storage_class("new-a", "2026-01-01T00:00:00Z"),
    storage_class("other", "2027-01-01T00:00:00Z", "false"),
]


def admit(resource: str, tree: Any) -> Any:
    return admit_storage(resource, tree, None, lambda: CLASSES).tree


def test_claims_and_volumes_get_their_finalizers() -> None:
    given: Any = {
        "metadata": {"name": "a", "finalizers": ["example.com/x"]},
        "spec": {"storageClassName": ""},
    }
    assert admit(CLAIMS, given)["metadata"]["finalizers"] == ["example.com/x", CLAIM_PROTECTION]
    assert admit(VOLUMES, {"metadata": {"name": "a"}})["metadata"]["finalizers"] == [VOLUME_PROTECTION]
    assert given["metadata"]["finalizers"] == ["example.com/x"]


@pytest.mark.parametrize(
    ("spec", "annotations", "wanted"),
    [
        ({}, {}, "new-a"),
        ({"storageClassName": ""}, {}, ""),
        ({"storageClassName": "mine"}, {}, "mine"),
        ({}, {"volume.beta.kubernetes.io/storage-class": "mine"}, None),
    ],
)
def test_a_claim_without_a_class_gets_the_newest_default_class(
    spec: Any, annotations: Any, wanted: str | None
) -> None:
    tree = admit(CLAIMS, {"metadata": {"name": "a", "annotations": annotations}, "spec": spec})
    assert tree["spec"].get("storageClassName") == wanted


def test_attributes_classes_get_no_finalizer() -> None:
    async def scenario(cluster: Cluster) -> None:
        endpoint = Endpoint("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False)
        tree = {"metadata": {"name": "gold"}, "driverName": "d.example.com", "parameters": {"iops": "9"}}
        made = await cluster.client.create(endpoint, tree)
        assert "finalizers" not in made["metadata"]

    run_scenario(scenario, only=[])
