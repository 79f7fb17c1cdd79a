"""Status of new objects: present if it is a struct in Go, absent if it is a pointer."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.registry.status_shape import complete_status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Pod", {}),
        ("ResourceClaim", {}),
        ("DeviceTaintRule", {}),
        ("ReplicaSet", {"replicas": 0}),
        ("StatefulSet", {"replicas": 0, "availableReplicas": 0}),
        ("Service", {"loadBalancer": {}}),
        ("VolumeAttachment", {"attached": False}),
        (
            "PodDisruptionBudget",
            {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
        ),
    ],
)
def test_a_struct_is_always_present(kind: str, status: dict[str, Any]) -> None:
    tree: dict[str, Any] = {"metadata": {"name": "x"}}
    complete_status(kind, tree)
    assert tree["status"] == status


@pytest.mark.parametrize("kind", ["ResourcePoolStatusRequest", "ConfigMap", "ResourceSlice", "Unknown"])
def test_a_pointer_and_a_kind_without_status_stay_absent(kind: str) -> None:
    tree: dict[str, Any] = {"metadata": {"name": "x"}}
    complete_status(kind, tree)
    assert "status" not in tree


def test_written_fields_are_kept() -> None:
    written = {"replicas": 3, "conditions": [{"type": "T"}], "nodeInfo": {"machineID": "m"}}
    tree: dict[str, Any] = {"status": dict(written)}
    complete_status("ReplicaSet", tree)
    assert tree["status"] == written
    node: dict[str, Any] = {"status": {"nodeInfo": {"machineID": "m"}}}
    complete_status("Node", node)
    info = node["status"]["nodeInfo"]
    assert (info["machineID"], info["kubeletVersion"]) == ("m", "")
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
