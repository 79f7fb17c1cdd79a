"""A pod that names its node goes there and nowhere else (`spec.nodeName`)."""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.static import StaticFilter
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.reasons import NodeReason, Rule, Sentence
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeNameFilter(StaticFilter):
    """The node a pod names."""

    rule = Rule.NODE_NAME
    reason = NodeReason(rule, Sentence.WRONG_NAME, Code.UNRESOLVABLE)

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot) -> Self | None:
        name = task.pod.spec.node_name
        if not name:
            return None
        mask = np.zeros(snapshot.size, dtype=np.bool_)
        place = snapshot.place_of(name)
        if place is not None:
            mask[place] = True
        return cls(task, snapshot, mask)

    def passes(self, node: Node) -> bool:
        return self.task.pod.spec.node_name in ("", node.metadata.name)
