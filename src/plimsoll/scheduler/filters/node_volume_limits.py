"""How many volumes a node can have attached, driver by driver.

Owns `VolumeLimitsFilter`, the question that `attachments` answers. A volume that a node has already costs
nothing there. Claims that are not there are refused by other rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.attached_volumes import Attachments, Volume, can_attach, uses
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.reasons import NodeReason, Rule, Sentence
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_TOO_MANY = NodeReason(Rule.VOLUME_LIMITS, Sentence.TOO_MANY_VOLUMES, Code.UNSCHEDULABLE)


class VolumeLimitsFilter(Filter):
    """The volumes a pod would have attached."""

    rule = Rule.VOLUME_LIMITS

    def __init__(self, task: Task, snapshot: Snapshot, wanted: frozenset[Volume]) -> None:
        super().__init__(task, snapshot)
        self._wanted = wanted

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot) -> Self | NodeReason | None:
        if not task.pod.spec.volumes or not can_attach(task.pod):
            return None
        index = snapshot.index(Attachments)
        found = frozenset(map(index.volume_of, uses(task.pod)))
        wanted = frozenset(volume for volume in found if volume is not None)
        return cls(task, snapshot, wanted) if wanted else None

    def feasible(self) -> Mask:
        return self.snapshot.index(Attachments).room_for(self._wanted)

    def why_not(self, place: int) -> tuple[NodeReason, ...]:
        fits = self.snapshot.index(Attachments).has_room(self._wanted, place)
        return () if fits else (_TOO_MANY,)

    def tally(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        number = int(np.count_nonzero(removed))
        return [(_TOO_MANY, number)] if number else []

    def resolvable(self, removed: Mask) -> Mask:
        return removed.copy()
