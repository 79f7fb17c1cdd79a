"""Base class of scorers, which are prepared once per attempt and score all nodes at once.

All scores are integers, so that equal nodes get equal scores on every machine.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Highest score of a scorer.
BEST = 100


class Scorer:
    """Score plugin, applied to one pod on one snapshot."""

    name: ClassVar[str]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot
        self.settings = settings

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        """Prepare the scorer for a pod; return None if it would score all nodes equally."""
        return cls(pod_info, snapshot, settings)

    def scores(self, feasible: Mask) -> Column:
        """Return a score from 0 to 100 for each feasible node, read-only; other rows are undefined."""
        raise NotImplementedError


def normalize(raw: Column, feasible: Mask, reverse: bool = False) -> Column:
    """Scale raw scores to the highest feasible one; with `reverse`, the highest is the worst."""
    most = int(raw.max(initial=0, where=feasible))
    if not most:
        return np.full_like(raw, BEST if reverse else 0)
    parts = raw * BEST // most
    return BEST - parts if reverse else parts
