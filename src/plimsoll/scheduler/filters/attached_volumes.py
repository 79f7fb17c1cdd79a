"""Index of the volumes of nodes and of their limits (CSINode).

A volume counts once per node, whether pods use it or it is attached. A claim without a volume counts as a
volume of its class's provisioner; in-tree volumes count for the CSI driver that replaces them. Objects arrive
in any order, so columns are computed on demand for the nodes that changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_volumes import nested_object, nested_text, volume_claims
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.volumes import count, has_any
from plimsoll.scheduler.snapshot.index import SnapshotIndex

#: Volume: driver and volume handle.
Volume: TypeAlias = tuple[str, str]
#: Claim: namespace and name.
Claim: TypeAlias = tuple[str, str]
#: Volume of a pod: a claim, or an inline volume.
Use: TypeAlias = tuple[Claim, None] | tuple[None, Volume]

T = TypeVar("T")
UNLIMITED = 2**62

#: In-tree volume kind -> CSI driver, field with the disk's name, in-tree provisioner.
_IN_TREE = {
    "gcePersistentDisk": ("pd.csi.storage.gke.io", "pdName", "kubernetes.io/gce-pd"),
    "awsElasticBlockStore": ("ebs.csi.aws.com", "volumeID", "kubernetes.io/aws-ebs"),
    "azureDisk": ("disk.csi.azure.com", "diskURI", "kubernetes.io/azure-disk"),
    "cinder": ("cinder.csi.openstack.org", "volumeID", "kubernetes.io/cinder"),
    "portworxVolume": ("pxd.portworx.com", "volumeID", "kubernetes.io/portworx-volume"),
}
_PROVISIONERS = {old: driver for driver, _, old in _IN_TREE.values()}
_RELEVANT_KINDS = frozenset({"persistentVolumeClaim", "ephemeral", *_IN_TREE})


def has_attachable_volumes(pod: Pod) -> bool:
    """Return whether a pod has a volume that may need to be attached."""
    return has_any(pod, _RELEVANT_KINDS)


def attachable_volumes(pod: Pod) -> Iterator[Use]:
    """Return the volumes of a pod that may need to be attached."""
    for volume in pod.spec.volumes:
        for kind, (driver, field, _) in _IN_TREE.items():
            source = nested_object(volume, kind)
            if source is not None:
                yield None, (driver, f"{kind}/{nested_text(source, field)}")
    for used in volume_claims(pod):
        yield (pod.metadata.namespace, used.name), None


def _attachable_source(volume: PersistentVolume) -> Volume | None:
    """Return the attachable source of a PersistentVolume, or None if its kind is not attached."""
    spec = volume.spec
    if spec.csi is not None:
        return (spec.csi.driver, spec.csi.volume_handle) if spec.csi.volume_handle else None
    old = {
        "gcePersistentDisk": spec.gce_persistent_disk,
        "awsElasticBlockStore": spec.aws_elastic_block_store,
        "azureDisk": spec.azure_disk,
        "cinder": spec.cinder,
        "portworxVolume": spec.portworx_volume,
    }
    for kind, source in old.items():
        if source is not None:
            driver, field, _ = _IN_TREE[kind]
            return driver, f"{kind}/{nested_text(source, field)}"
    return None


class AttachedVolumes(SnapshotIndex):
    """Volumes of every node, and the number of volumes it can still attach."""

    kinds = (PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode, VolumeAttachment)

    def __init__(self) -> None:
        # -- observed objects
        self._nodes: dict[int, str] = {}
        self._rows: dict[str, int] = {}
        self._uses: dict[int, Counter[Use]] = {}
        self._users: dict[Claim, Counter[int]] = {}
        self._claims: dict[Claim, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._bound: dict[str, Counter[Claim]] = {}  # volume -> claims bound to it
        self._classes: dict[str, StorageClass] = {}
        self._limits: dict[str, Mapping[str, int]] = {}
        self._attached: dict[str, dict[str, VolumeAttachment]] = {}  # by node
        # -- derived columns, as of the last query
        self._size = 0
        self._stale: set[int] = set()
        self._volumes_by_row: dict[int, frozenset[Volume]] = {}
        self._rows_by_volume: dict[Volume, set[int]] = {}
        self._count_columns: dict[str, Column] = {}
        self._limit_columns: dict[str, Column] = {}

    # -- queries

    def volume_of(self, use: Use) -> Volume | None:
        """Return the volume behind a pod's volume, or None if it is unknown or not attached."""
        name, own = use
        if name is None:
            return own
        claim = self._claims.get(name)
        if claim is None:
            return None
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            return _attachable_source(volume)
        found = self._classes.get(claim.storage_class)
        if found is None or not found.provisioner:
            return None
        driver = _PROVISIONERS.get(found.provisioner, found.provisioner)
        return driver, f"claim {name[0]}/{name[1]}"

    def volumes_at(self, row: int) -> frozenset[Volume]:
        """Return the volumes of a node."""
        found = {self.volume_of(use) for use in self._uses.get(row, ())}
        for each in self._attached.get(self._nodes.get(row, ""), {}).values():
            volume = self._volumes.get(each.spec.source.persistent_volume_name or "")
            if volume is not None and volume.spec.csi is not None and each.spec.attacher:
                found.add((each.spec.attacher, volume.spec.csi.volume_handle))
        return frozenset(each for each in found if each is not None)

    def limits_at(self, row: int) -> Mapping[str, int]:
        """Return the volume limits of a node by driver; drivers without an entry are unlimited."""
        return self._limits.get(self._nodes.get(row, ""), {})

    def can_attach(self, wanted: Iterable[Volume], row: int) -> bool:
        """Return whether a node can attach these volumes in addition to its own."""
        here, limits = self.volumes_at(row), self.limits_at(row)
        taken = Counter(driver for driver, _ in here)
        new = Counter(volume[0] for volume in set(wanted) - here)
        return all(taken[driver] + more <= limits.get(driver, UNLIMITED) for driver, more in new.items())

    def nodes_that_can_attach(self, wanted: Iterable[Volume]) -> Mask:
        """Return the nodes that can attach these volumes."""
        self._update_columns()
        mask = np.ones(self._size, dtype=np.bool_)
        by_driver: dict[str, set[Volume]] = {}
        for volume in wanted:
            by_driver.setdefault(volume[0], set()).add(volume)
        for driver, volumes in by_driver.items():
            lines = self._limit_columns.get(driver)
            if lines is None:
                continue
            new = np.full(self._size, len(volumes), dtype=np.int64)
            for volume in volumes:
                new[list(self._rows_by_volume.get(volume, ()))] -= 1
            counts = self._count_columns.get(driver)
            mask &= (new == 0) | ((new if counts is None else new + counts) <= lines)
        return mask

    def _update_columns(self) -> None:
        """Update the columns for the nodes that changed."""
        for row in self._stale:
            before, now = self._volumes_by_row.pop(row, frozenset()), self.volumes_at(row)
            if now:
                self._volumes_by_row[row] = now
            for volume in before - now:
                self._rows_by_volume[volume].discard(row)
                if not self._rows_by_volume[volume]:
                    del self._rows_by_volume[volume]
                self._count_columns[volume[0]][row] -= 1
            for volume in now - before:
                self._rows_by_volume.setdefault(volume, set()).add(row)
                self._column(self._count_columns, volume[0], 0)[row] += 1
            limits = self.limits_at(row)
            for driver, lines in self._limit_columns.items():
                lines[row] = limits.get(driver, UNLIMITED)
            for driver, limit in limits.items():
                self._column(self._limit_columns, driver, UNLIMITED)[row] = limit
        self._stale.clear()

    def _column(self, columns: dict[str, Column], driver: str, fill: int) -> Column:
        column = columns.get(driver)
        if column is None:
            column = columns[driver] = np.full(self._size, fill, dtype=np.int64)
        return column

    # -- changes of nodes and pods

    def resized(self, size: int) -> None:
        more = size - self._size
        for columns, fill in ((self._count_columns, 0), (self._limit_columns, UNLIMITED)):
            for driver, column in columns.items():
                columns[driver] = np.concatenate([column, np.full(more, fill, dtype=np.int64)])
        self._size = size

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        if old is None:
            self._nodes[row] = node.metadata.name
            self._rows[node.metadata.name] = row
            self._stale.add(row)

    def node_removed(self, row: int, node: Node) -> None:
        del self._nodes[row], self._rows[node.metadata.name]
        self._stale.add(row)

    def pod_added(self, row: int, pod: Pod) -> None:
        self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> None:
        self._count(row, pod, -1)

    def _count(self, row: int, pod: Pod, by: int) -> None:
        if not pod.spec.volumes or not has_attachable_volumes(pod):
            return
        for use in attachable_volumes(pod):
            count(self._uses, row, use, by)
            if use[0] is not None:
                count(self._users, use[0], row, by)
        self._stale.add(row)

    # -- changes of volumes

    def object_changed(self, old: Any, new: Any) -> None:
        changed = old if new is None else new
        name = changed.metadata.name
        match changed:
            case PersistentVolumeClaim():
                self._set_claim(changed.metadata.key, new)
            case PersistentVolume():
                _set(self._volumes, name, new)
                if old is None or new is None or _attachable_source(old) != _attachable_source(new):
                    self._volume_changed(name)
            case StorageClass():
                _set(self._classes, name, new)
                if old is None or new is None or old.provisioner != new.provisioner:
                    self._stale.update(self._nodes)
            case CSINode():
                _set(self._limits, name, None if new is None else _volume_limits(new))
                self._node_changed(name)
            case VolumeAttachment():
                if old is not None:
                    self._set_attachment(old.spec.node_name, name, None)
                if new is not None:
                    self._set_attachment(new.spec.node_name, name, new)

    def _set_attachment(self, node: str, name: str, new: VolumeAttachment | None) -> None:
        attached = self._attached.setdefault(node, {})
        _set(attached, name, new)
        if not attached:
            del self._attached[node]
        self._node_changed(node)

    def _set_claim(self, key: Claim, new: PersistentVolumeClaim | None) -> None:
        old = self._claims.pop(key, None)
        if old is not None:
            count(self._bound, old.spec.volume_name, key, -1)
        if new is not None:
            self._claims[key] = new
            count(self._bound, new.spec.volume_name, key, 1)
        self._stale.update(self._users.get(key, ()))

    def _volume_changed(self, name: str) -> None:
        for key in self._bound.get(name, ()):
            self._stale.update(self._users.get(key, ()))
        for node, attached in self._attached.items():
            if any(each.spec.source.persistent_volume_name == name for each in attached.values()):
                self._node_changed(node)

    def _node_changed(self, name: str) -> None:
        row = self._rows.get(name)
        if row is not None:
            self._stale.add(row)


def _volume_limits(node: CSINode) -> dict[str, int]:
    """Return the number of volumes that each driver of a node can attach, if it is limited."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _set(table: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
