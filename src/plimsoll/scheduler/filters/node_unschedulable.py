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
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.reasons import NodeReason, Rule, Sentence
from plimsoll.scheduler.snapshot.index import Index
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class OpenNodes(Index):
    """Which nodes are open, and how many are not."""

    def __init__(self) -> None:
        self.open: Mask = np.ones(0, dtype=np.bool_)
        self.closed = 0

    def grown(self, size: int) -> None:
        self.open = np.concatenate([self.open, np.ones(size - len(self.open), dtype=np.bool_)])

    def node_set(self, place: int, node: Node, old: Node | None) -> None:
        self._put(place, not node.spec.unschedulable)

    def node_removed(self, place: int, node: Node) -> None:
        self._put(place, True)

    def _put(self, place: int, open: bool) -> None:
        self.closed += int(self.open[place]) - int(open)
        self.open[place] = open


class UnschedulableFilter(StaticFilter):
    """Nodes that are open to new pods."""

    rule = Rule.UNSCHEDULABLE
    reason = NodeReason(rule, Sentence.UNSCHEDULABLE, Code.UNRESOLVABLE)

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot) -> Self | None:
        index = snapshot.index(OpenNodes)
        if not index.closed or tolerated(task.pod.spec.tolerations, UNSCHEDULABLE):
            return None
        return cls(task, snapshot, index.open)

    def passes(self, node: Node) -> bool:
        return not node.spec.unschedulable or tolerated(self.task.pod.spec.tolerations, UNSCHEDULABLE)
