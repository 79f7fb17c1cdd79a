"""Interface of scorers: a form for all nodes at once, and one for a single node.

A scorer is created once per attempt; a test holds its two forms equal. All scores are integers, so that equal
nodes score alike on every machine.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot

BEST = 100


class Scorer:
    """Score plugin, applied to one pod on one snapshot."""

    name: ClassVar[str]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot
        self.settings = settings

    @classmethod
    def read(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        """Return the scorer for a pod; None if it would score all nodes equally."""
        return cls(pod_info, snapshot, settings)

    def scores(self, feasible: Mask) -> Column:
        """Return 0 to 100 for each feasible node, read-only; other nodes may have any number."""
        raise NotImplementedError

    def score(self, row: int) -> int:
        """Return the raw score of one node, before normalization."""
        raise NotImplementedError


def normalize(raw: Column, feasible: Mask, reverse: bool = False) -> Column:
    """Scale raw scores to the highest feasible one; reversed: the highest is worst."""
    most = int(raw.max(initial=0, where=feasible))
    if not most:
        return np.full_like(raw, BEST if reverse else 0)
    parts = raw * BEST // most
    return BEST - parts if reverse else parts


def normalize_one(raw: int, most: int, reverse: bool = False) -> int:
    """Scale one raw score, if `most` is the highest."""
    part = raw * BEST // most if most else 0
    return BEST - part if reverse else part
