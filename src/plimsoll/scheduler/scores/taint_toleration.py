"""Score of PreferNoSchedule taints that a pod does not tolerate.

The raw score of a node is the number of such taints, where fewer are better.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.tolerations import is_tolerated
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.taint_toleration import PREFER_NO_SCHEDULE, TaintIndex, Tolerations
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import Scorer, normalize
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def count_untolerated(tolerations: Tolerations, node: Node) -> int:
    """Return the number of PreferNoSchedule taints that these tolerations do not match."""
    soft = (taint for taint in node.spec.taints if taint.effect == PREFER_NO_SCHEDULE)
    return sum(not is_tolerated(tolerations, taint) for taint in soft)


class PreferNoScheduleTaints(TaintIndex[np.int64]):
    """Index of the number of untolerated PreferNoSchedule taints."""

    kept: ClassVar[int] = 256
    dtype = np.int64
    effects = (PREFER_NO_SCHEDULE,)

    def evaluate(self, signature: Tolerations, node: Node) -> int:
        return count_untolerated(signature, node)


class TaintTolerationScorer(Scorer):
    """Scorer of PreferNoSchedule taints."""

    name = "TaintToleration"

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        return cls(pod_info, snapshot, settings) if snapshot.index(PreferNoScheduleTaints).tainted else None

    def scores(self, feasible: Mask) -> Column:
        raw = self.snapshot.index(PreferNoScheduleTaints).column(self.pod_info.pod.spec.tolerations)
        return normalize(raw, feasible, reverse=True)
