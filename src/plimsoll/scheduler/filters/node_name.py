"""NodeName: a pod that names a node (`spec.nodeName`) fits only there."""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.static import StaticFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeNameMessage(ReasonMessage):
    """Message of NodeName."""

    WRONG_NAME = "node(s) didn't match the requested node name"


class NodeNameFilter(StaticFilter):
    """Filter by the node name in a pod's spec."""

    rule = Rule.NODE_NAME
    reason = NodeReason(rule, NodeNameMessage.WRONG_NAME, VerdictCode.UNRESOLVABLE)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        name = pod_info.pod.spec.node_name
        if not name:
            return None
        mask = np.zeros(snapshot.size, dtype=np.bool_)
        row = snapshot.row_of(name)
        if row is not None:
            mask[row] = True
        return cls(pod_info, snapshot, mask)

    def passes(self, node: Node) -> bool:
        return self.pod_info.pod.spec.node_name in ("", node.metadata.name)
