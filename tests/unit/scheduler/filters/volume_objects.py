"""Builders of volume claims, volumes, classes and volume limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import NAMESPACE
from tests.unit.scheduler.snapshots import pod_info_of

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
    size: str = "",
    selected_node: str = "",
    **more: Any,
) -> PersistentVolumeClaim:
    """Return a claim, bound if there is a volume (and the binding is `completed`)."""
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    if volume and completed:
        meta["annotations"] = {BIND_COMPLETED: "yes"}
    if selected_node:
        meta["annotations"] = {SELECTED_NODE: selected_node}
    spec: dict[str, Any] = {"volumeName": volume, "accessModes": list(modes), **more}
    if size:
        spec["resources"] = {"requests": {"storage": size}}
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


def static_volume(
    name: str,
    size: str = "10Gi",
    storage_class: str = "local",
    *,
    host: str = "",
    claimed_by: PersistentVolumeClaim | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    labels: Mapping[str, str] | None = None,
    phase: str = "Available",
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> PersistentVolume:
    """Return a volume that can be bound, reachable from one host or from all nodes."""
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        **more,
    }
    if host:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if claimed_by is not None:
        meta = claimed_by.metadata
        spec["claimRef"] = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    own = {"name": name, "uid": f"uid-{name}", "labels": dict(labels or {}), **(metadata or {})}
    return convert({"metadata": own, "spec": spec, "status": {"phase": phase}}, PersistentVolume)


def storage_class(
    name: str, mode: str | None = "Immediate", provisioner: str = DRIVER, **topology: Sequence[str]
) -> StorageClass:
    """Return a class; keywords are the allowed values of labels."""
    tree: dict[str, Any] = {
        "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode
    }  # fmt: skip
    if topology:
        labels = [{"key": key, "values": list(values)} for key, values in topology.items()]
        tree["allowedTopologies"] = [{"matchLabelExpressions": labels}]
    return convert(tree, StorageClass)


def waiting_class(name: str = "local", provisioner: str = "kubernetes.io/no-provisioner") -> StorageClass:
    return storage_class(name, "WaitForFirstConsumer", provisioner)


def csi_driver(name: str = DRIVER, capacity: bool | None = True) -> CSIDriver:
    return convert({"metadata": {"name": name}, "spec": {"storageCapacity": capacity}}, CSIDriver)


def storage_capacity(
    name: str,
    storage_class: str,
    capacity: str | None,
    *,
    largest: str | None = None,
    topology: Mapping[str, str] | None = None,
) -> CSIStorageCapacity:
    """Return the capacity of a class on the nodes with these labels (None: nowhere)."""
    tree: dict[str, Any] = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "storageClassName": storage_class,
        "capacity": capacity,
        "maximumVolumeSize": largest,
    }
    if topology is not None:
        tree["nodeTopology"] = {"matchLabels": dict(topology)}
    return convert(tree, CSIStorageCapacity)


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


def open_places(kind: type[Filter], one: Any, snapshot: Snapshot) -> set[str]:
    """Return the nodes that pass, in bulk and pointwise."""
    found = kind.pre_filter(pod_info_of(one, snapshot), snapshot)
    names = {snapshot.node(row).metadata.name for row in snapshot.rows()}
    if found is None:
        return names
    assert isinstance(found, Filter), found
    mask = found.filter()
    open_ = {snapshot.node(row).metadata.name for row in snapshot.rows() if mask[row]}
    assert open_ == {snapshot.node(at).metadata.name for at in snapshot.rows() if not found.filter_node(at)}
    return open_
