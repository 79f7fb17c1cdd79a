"""NodeVolumeLimits: number of volumes that a node can attach per driver.

Volumes that are already on the node do not count (`attached_volumes`). Missing claims are reported by other
rules.
"""

from __future__ import annotations

from typing import Self

from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import EventKind, NodeUpdate
from plimsoll.scheduler.filters.attached_volumes import (
    AttachedVolumes,
    Volume,
    attachable_volumes,
    has_attachable_volumes,
)
from plimsoll.scheduler.filters.filter import SingleReasonFilter
from plimsoll.scheduler.filters.volumes import STORAGE_EVENTS, VolumeQueueingHint
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeVolumeLimitsMessage(ReasonMessage):
    """Message of NodeVolumeLimits."""

    TOO_MANY_VOLUMES = "node(s) exceed max volume count"


class NodeVolumeLimitsFilter(VolumeQueueingHint, SingleReasonFilter):
    """Filter by the volumes a node can still attach."""

    rule = Rule.VOLUME_LIMITS
    reason = NodeReason(rule, NodeVolumeLimitsMessage.TOO_MANY_VOLUMES, VerdictCode.UNSCHEDULABLE)
    depends_on_pods = True
    events = STORAGE_EVENTS | {
        EventKind.NODE_ADDED,
        NodeUpdate.ALLOCATABLE,
        EventKind.POD_DELETED,
        EventKind.VOLUME_DETACHED,
    }

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, wanted: frozenset[Volume]) -> None:
        super().__init__(pod_info, snapshot)
        self._wanted = wanted

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        if not pod_info.pod.spec.volumes or not has_attachable_volumes(pod_info.pod):
            return None
        index = snapshot.index(AttachedVolumes)
        found = frozenset(map(index.volume_of, attachable_volumes(pod_info.pod)))
        wanted = frozenset(volume for volume in found if volume is not None)
        return cls(pod_info, snapshot, wanted) if wanted else None

    def filter(self) -> Mask:
        return self.snapshot.index(AttachedVolumes).nodes_that_can_attach(self._wanted)

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        fits = self.snapshot.index(AttachedVolumes).can_attach(self._wanted, row)
        return () if fits else (self.reason,)
