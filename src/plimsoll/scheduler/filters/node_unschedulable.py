"""NodeUnschedulable: cordoned nodes (`spec.unschedulable`).

A pod that tolerates the corresponding taint, such as a DaemonSet's, may use them.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.tolerations import is_tolerated
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import EventKind, NodeCapacity, NodeUpdate
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.filters.static import StaticFilter
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeUnschedulableMessage(ReasonMessage):
    """Message of NodeUnschedulable."""

    UNSCHEDULABLE = "node(s) were unschedulable"


class SchedulableNodes(SnapshotIndex):
    """Mask of nodes that are not cordoned, and the number of those that are."""

    def __init__(self) -> None:
        self.mask: Mask = np.ones(0, dtype=np.bool_)
        self.cordoned = 0

    def resized(self, size: int) -> None:
        self.mask = np.concatenate([self.mask, np.ones(size - len(self.mask), dtype=np.bool_)])

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        self._set(row, not node.spec.unschedulable)

    def node_removed(self, row: int, node: Node) -> None:
        self._set(row, True)

    def _set(self, row: int, schedulable: bool) -> None:
        self.cordoned += int(self.mask[row]) - int(schedulable)
        self.mask[row] = schedulable


class NodeUnschedulableFilter(StaticFilter):
    """Filter out cordoned nodes."""

    rule = Rule.UNSCHEDULABLE
    reason = NodeReason(rule, NodeUnschedulableMessage.UNSCHEDULABLE, VerdictCode.UNRESOLVABLE)
    events = frozenset({EventKind.NODE_ADDED, NodeUpdate.SCHEDULABLE})
    pod_fields = frozenset({"tolerations"})

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        index = snapshot.index(SchedulableNodes)
        if not index.cordoned or is_tolerated(pod_info.pod.spec.tolerations, UNSCHEDULABLE):
            return None
        return cls(pod_info, snapshot, index.mask)

    def passes(self, node: Node) -> bool:
        return not node.spec.unschedulable or is_tolerated(self.pod_info.pod.spec.tolerations, UNSCHEDULABLE)

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        return node.spec.unschedulable and not is_tolerated(waiting_pod.pod.spec.tolerations, UNSCHEDULABLE)
