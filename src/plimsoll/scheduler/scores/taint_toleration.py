"""Score of PreferNoSchedule taints that a pod does not tolerate.

The raw score of a node is the number of such taints; fewer are better. If no node has one, the scorer is
skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.tolerations import is_tolerated
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.filters.taint_toleration import PREFER_NO_SCHEDULE, Tolerations
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import Scorer, normalize
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def count_untolerated(tolerations: Tolerations, node: Node) -> int:
    """Return the number of PreferNoSchedule taints that these tolerations do not match."""
    soft = (taint for taint in node.spec.taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not is_tolerated(tolerations, taint) for taint in soft)


class SoftTaints(SignatureIndex[Tolerations, np.int64]):
    """Cached numbers of untolerated PreferNoSchedule taints by tolerations."""

    kept: ClassVar[int] = 256
    dtype = np.int64

    def __init__(self) -> None:
        super().__init__()
        self.tainted: set[int] = set()

    def relevant(self, node: Node) -> object:
        return node.spec.taints

    def answer(self, signature: Tolerations, node: Node) -> int:
        return count_untolerated(signature, node)

    def candidates(self, signature: Tolerations) -> Iterable[int]:
        return self.tainted

    def node_changed(self, row: int, new: Node | None, old: Node | None) -> None:
        if new is not None and any(taint.effect == PREFER_NO_SCHEDULE for taint in new.spec.taints):
            self.tainted.add(row)
        else:
            self.tainted.discard(row)


class TaintsScorer(Scorer):
    """Scorer of PreferNoSchedule taints."""

    name = "TaintToleration"

    @classmethod
    def read(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        return cls(pod_info, snapshot, settings) if snapshot.index(SoftTaints).tainted else None

    def scores(self, feasible: Mask) -> Column:
        raw = self.snapshot.index(SoftTaints).column(self.pod_info.pod.spec.tolerations)
        return normalize(raw, feasible, reverse=True)

    def score(self, row: int) -> int:
        return count_untolerated(self.pod_info.pod.spec.tolerations, self.snapshot.node(row))
