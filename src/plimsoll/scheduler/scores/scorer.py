"""What all scorers have in common: a form for all nodes at once, and one for a single node.

Owns `Scorer` and the ways raw scores are brought to a scale of 0 to 100. A scorer is read from a task once
per attempt; a test holds its two forms equal. Everything is whole numbers, so equal nodes score alike on
every machine and a tie is a tie.
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
    """One preference, applied to one task on one snapshot."""

    name: ClassVar[str]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot
        self.settings = settings

    @classmethod
    def read(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        """The scorer for this task; None if it would score all nodes alike."""
        return cls(pod_info, snapshot, settings)

    def scores(self, feasible: Mask) -> Column:
        """0 to 100 for each feasible place, not to be changed; other places may have any number."""
        raise NotImplementedError

    def score(self, row: int) -> int:
        """The raw score of one node, before it is compared with that of others."""
        raise NotImplementedError


def normalise(raw: Column, feasible: Mask, reverse: bool = False) -> Column:
    """Raw scores as parts of the greatest among the feasible ones; reversed: the greatest is worst."""
    most = int(raw.max(initial=0, where=feasible))
    if not most:
        return np.full_like(raw, BEST if reverse else 0)
    parts = raw * BEST // most
    return BEST - parts if reverse else parts


def normalise_one(raw: int, most: int, reverse: bool = False) -> int:
    """What `normalise` makes of one raw score if `most` is the greatest."""
    part = raw * BEST // most if most else 0
    return BEST - part if reverse else part
