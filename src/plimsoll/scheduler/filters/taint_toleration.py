"""TaintToleration: NoSchedule and NoExecute taints that a pod must tolerate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self, TypeAlias

import numpy as np

from plimsoll.api.core import Node, Taint, Toleration
from plimsoll.api.tolerations import is_tolerated
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeCapacity, NodeUpdate
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.filters.static import A, SignatureIndex, StaticFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class TaintTolerationMessage(ReasonMessage):
    """Message of TaintToleration."""

    UNTOLERATED_TAINT = "node(s) had untolerated taint(s)"


Tolerations: TypeAlias = "tuple[Toleration, ...]"
NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"
#: Taint that corresponds to `spec.unschedulable`.
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
HARD_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


def tolerates_hard_taints(tolerations: Tolerations, node: Node) -> bool:
    """Return whether tolerations cover a node's NoSchedule and NoExecute taints."""
    return all(is_tolerated(tolerations, taint) for taint in node.spec.taints if taint.effect in HARD_EFFECTS)


class TaintIndex(SignatureIndex[Tolerations, A]):
    """Index of values by tolerations, evaluated only for nodes with taints of certain effects."""

    effects: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.tainted: set[int] = set()

    def relevant(self, node: Node) -> object:
        return node.spec.taints

    def candidates(self, signature: Tolerations) -> Iterable[int]:
        return self.tainted

    def node_changed(self, row: int, new: Node | None, old: Node | None) -> None:
        if new is not None and any(taint.effect in self.effects for taint in new.spec.taints):
            self.tainted.add(row)
        else:
            self.tainted.discard(row)


class NoScheduleTaints(TaintIndex[np.bool_]):
    """Index of the nodes whose NoSchedule and NoExecute taints are tolerated."""

    dtype = np.bool_
    effects = HARD_EFFECTS

    def evaluate(self, signature: Tolerations, node: Node) -> bool:
        return tolerates_hard_taints(signature, node)

    def default(self) -> bool:
        return True


class TaintTolerationFilter(StaticFilter):
    """Filter by NoSchedule and NoExecute taints."""

    rule = Rule.TAINTS
    reason = NodeReason(rule, TaintTolerationMessage.UNTOLERATED_TAINT, VerdictCode.UNRESOLVABLE)
    events = frozenset({EventKind.NODE_ADDED, NodeUpdate.TAINTS})
    pod_fields = frozenset({"tolerations"})

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        index = snapshot.index(NoScheduleTaints)
        return cls(pod_info, snapshot, index.column(pod_info.pod.spec.tolerations)) if index.tainted else None

    def passes(self, node: Node) -> bool:
        return tolerates_hard_taints(self.pod_info.pod.spec.tolerations, node)

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        if event.kind is EventKind.NODE_CHANGED and not cls.rejects_node(waiting_pod, event.old, None):
            return False
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        return not tolerates_hard_taints(waiting_pod.pod.spec.tolerations, node)
