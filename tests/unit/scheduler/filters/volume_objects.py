"""Builders of volume claims, volumes, classes and volume limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.storage import (
    BIND_COMPLETED,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.build import NAMESPACE

DRIVER = "disk.example.com"


def claim(
    name: str,
    volume: str = "",
    *,
    storage_class: str | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "",
    completed: bool = True,
    namespace: str = NAMESPACE,
    metadata: Mapping[str, Any] | None = None,
) -> PersistentVolumeClaim:
    """Return a claim, bound if there is a volume (and the binding is `completed`)."""
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    if volume and completed:
        meta["annotations"] = {BIND_COMPLETED: "yes"}
    spec = {"volumeName": volume, "accessModes": list(modes)}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    tree = {"metadata": {**meta, **(metadata or {})}, "spec": spec, "status": {"phase": phase}}
    return convert(tree, PersistentVolumeClaim)


def volume(
    name: str,
    *,
    driver: str = DRIVER,
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    affinity: Mapping[str, Any] | None = None,
    **source: Any,
) -> PersistentVolume:
    """Return a volume of a CSI driver (or another `source`), reachable only from nodes in a zone."""
    spec: dict[str, Any] = source or {"csi": {"driver": driver, "volumeHandle": f"handle-{name}"}}
    if zone:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if affinity is not None:
        spec = spec | {"nodeAffinity": dict(affinity)}
    return convert({"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}, PersistentVolume)


def storage_class(name: str, mode: str | None = "Immediate", provisioner: str = DRIVER) -> StorageClass:
    return convert(
        {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}, StorageClass
    )


def csi_node(name: str, **limits: int | None) -> CSINode:
    """Return the volume limits of a node; keywords are drivers with `_` for dots."""
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name, "allocatable": {"count": count}}
        if count is not None
        else {"name": driver.replace("_", "."), "nodeID": name}
        for driver, count in limits.items()
    ]
    return convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)


def attachment(name: str, node: str, volume: str, attacher: str = DRIVER) -> VolumeAttachment:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return convert({"metadata": {"name": name}, "spec": spec}, VolumeAttachment)


def using(*claims: str) -> list[dict[str, Any]]:
    """Return pod volumes that use claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": each}}
        for number, each in enumerate(claims)
    ]


def made(name: str = "scratch") -> list[dict[str, Any]]:
    """Return a pod volume with a generated claim."""
    return [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
