"""VolumeRestrictions: volumes that only one pod may use.

A ReadWriteOncePod claim must not be in use on any node. An in-tree disk in a pod's spec must not be mounted
twice on a node unless all mounts are read-only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TypeAlias

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import nested_object, nested_text, volume_claims
from plimsoll.api.storage import READ_WRITE_ONCE_POD
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import EventKind
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.volumes import (
    STORAGE_EVENTS,
    VolumeMessage,
    VolumeQueueingHint,
    count,
    find_claim,
    has_any,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeRestrictionsMessage(ReasonMessage):
    """Messages of VolumeRestrictions."""

    DISK_IN_USE = "node(s) had no available disk"
    VOLUME_IN_USE = (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use "
        "by another pod"
    )


#: Identity of a disk, and whether it is mounted read-only.
Disk: TypeAlias = tuple[tuple[str, ...], bool]

_GCE, _AWS, _ISCSI, _RBD = "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"
_KINDS = frozenset({_GCE, _AWS, _ISCSI, _RBD})
_RELEVANT_KINDS = _KINDS | {"persistentVolumeClaim"}
_RULE = Rule.VOLUME_RESTRICTIONS
_DISK_IN_USE = NodeReason(_RULE, VolumeRestrictionsMessage.DISK_IN_USE, VerdictCode.UNSCHEDULABLE)
_IN_USE_HERE = NodeReason(_RULE, VolumeRestrictionsMessage.VOLUME_IN_USE, VerdictCode.UNSCHEDULABLE)
_IN_USE_ELSEWHERE = NodeReason(_RULE, VolumeRestrictionsMessage.VOLUME_IN_USE, VerdictCode.UNRESOLVABLE)


def disks(pod: Pod) -> Iterator[Disk]:
    """Return the in-tree disks of a pod; an RBD image with several monitors counts once per monitor."""
    for volume in pod.spec.volumes:
        if _KINDS.isdisjoint(volume):
            continue
        if (disk := nested_object(volume, _GCE)) is not None:
            yield (_GCE, nested_text(disk, "pdName")), disk.get("readOnly") is True
        if (disk := nested_object(volume, _AWS)) is not None:
            yield (_AWS, nested_text(disk, "volumeID")), False  # conflicts even if read-only
        if (disk := nested_object(volume, _ISCSI)) is not None:
            yield (_ISCSI, nested_text(disk, "iqn")), disk.get("readOnly") is True
        if (disk := nested_object(volume, _RBD)) is not None:
            monitors = disk.get("monitors")
            for monitor in monitors if isinstance(monitors, list) else ():
                if isinstance(monitor, str):
                    key = (_RBD, monitor, nested_text(disk, "pool"), nested_text(disk, "image"))
                    yield key, disk.get("readOnly") is True


def conflicts(one: Disk, other: Disk) -> bool:
    """Return whether two disk mounts cannot be on one node."""
    return one[0] == other[0] and not (one[1] and other[1])


class VolumeUsers(SnapshotIndex):
    """Index of the nodes whose pods use a claim or a disk."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Counter[int]] = {}
        self._disks: dict[Disk, Counter[int]] = {}

    def pod_added(self, row: int, pod: Pod) -> None:
        self._count(row, pod, 1)

    def pod_removed(self, row: int, pod: Pod) -> None:
        self._count(row, pod, -1)

    def _count(self, row: int, pod: Pod, by: int) -> None:
        if not pod.spec.volumes or not has_any(pod, _RELEVANT_KINDS):
            return
        for used in volume_claims(pod):
            if not used.generated:
                count(self._claims, (pod.metadata.namespace, used.name), row, by)
        for disk in disks(pod):
            count(self._disks, disk, row, by)

    def users(self, namespace: str, claim: str) -> Iterable[int]:
        """Return the rows of the pods that use a claim."""
        return self._claims.get((namespace, claim), {}).keys()

    def mounts(self, disk: Disk) -> Iterable[int]:
        """Return the rows where a disk is mounted in a conflicting mode."""
        key, read_only = disk
        yield from self._disks.get((key, False), ())
        if not read_only:
            yield from self._disks.get((key, True), ())


class VolumeRestrictionsFilter(VolumeQueueingHint, Filter):
    """Filter by conflicting disks and by users of ReadWriteOncePod claims."""

    rule = _RULE
    depends_on_pods = True
    is_node_local = False
    events = STORAGE_EVENTS | {EventKind.NODE_ADDED, EventKind.POD_DELETED}

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, own: Sequence[Disk], users: Sequence[frozenset[int]]
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._own = own
        self._users = users

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        pod = pod_info.pod
        if not pod.spec.volumes or not has_any(pod, _RELEVANT_KINDS):
            return None
        users: list[frozenset[int]] = []
        for used in volume_claims(pod):
            if used.generated:
                continue
            claim = find_claim(pod, used, snapshot)
            if claim is None:
                return NodeReason.unresolvable(_RULE, VolumeMessage.CLAIM_MISSING, claim=used.name)
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                index = snapshot.index(VolumeUsers)
                users.append(frozenset(index.users(pod.metadata.namespace, used.name)))
        own = tuple(disks(pod))
        return cls(pod_info, snapshot, own, [each for each in users if each]) if own or any(users) else None

    def filter(self) -> Mask:
        if self._users:
            return np.zeros(self.snapshot.size, dtype=np.bool_)
        mask = np.ones(self.snapshot.size, dtype=np.bool_)
        index = self.snapshot.index(VolumeUsers)
        for disk in self._own:
            mask[list(index.mounts(disk))] = False
        return mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        here = [disk for pod in self.snapshot.pods_at(row) for disk in disks(pod)] if self._own else []
        if any(conflicts(own, disk) for own in self._own for disk in here):
            return (_DISK_IN_USE,)
        if self._users:
            return (_IN_USE_HERE if self._are_all_on(row) else _IN_USE_ELSEWHERE,)
        return ()

    def _are_all_on(self, row: int) -> bool:
        """Return whether all users of the claims are on one node, so that preemption there helps."""
        return all(users == {row} for users in self._users)

    def resolvable_nodes(self, removed: Mask) -> Mask:
        if not self._users:
            return removed.copy()
        mask = np.zeros_like(removed)
        for row in {row for users in self._users for row in users}:
            mask[row] = removed[row] and self._are_all_on(row)
        if self._own:  # a disk conflict is reported first, and is resolvable
            index = self.snapshot.index(VolumeUsers)
            for disk in self._own:
                for row in index.mounts(disk):
                    mask[row] = removed[row]
        return mask
