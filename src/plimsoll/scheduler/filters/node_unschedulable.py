"""Nodes that are closed to new pods (`spec.unschedulable`, `kubectl cordon`).

A pod that tolerates the taint that goes with the field may go there all the same, as a DaemonSet's does.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.tolerations import tolerated
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.static import StaticFilter
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class SchedulableNodes(SnapshotIndex):
    """Which nodes are open, and how many are not."""

    def __init__(self) -> None:
        self.open: Mask = np.ones(0, dtype=np.bool_)
        self.closed = 0

    def grown(self, size: int) -> None:
        self.open = np.concatenate([self.open, np.ones(size - len(self.open), dtype=np.bool_)])

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        self._put(row, not node.spec.unschedulable)

    def node_removed(self, row: int, node: Node) -> None:
        self._put(row, True)

    def _put(self, row: int, open: bool) -> None:
        self.closed += int(self.open[row]) - int(open)
        self.open[row] = open


class NodeUnschedulableFilter(StaticFilter):
    """Nodes that are open to new pods."""

    rule = Rule.UNSCHEDULABLE
    reason = NodeReason(rule, ReasonMessage.UNSCHEDULABLE, Code.UNRESOLVABLE)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        index = snapshot.index(SchedulableNodes)
        if not index.closed or tolerated(pod_info.pod.spec.tolerations, UNSCHEDULABLE):
            return None
        return cls(pod_info, snapshot, index.open)

    def passes(self, node: Node) -> bool:
        return not node.spec.unschedulable or tolerated(self.pod_info.pod.spec.tolerations, UNSCHEDULABLE)
