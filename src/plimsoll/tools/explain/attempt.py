"""`AttemptRecorder`: record of a scheduling attempt, for explanations."""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit, simulated_ids
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class AttemptRecorder(CycleObserver):
    """Nodes that each rule excluded, and the scores of the others."""

    def __init__(self) -> None:
        #: Rules except devices, with the nodes they excluded.
        self.removed: list[tuple[Filter, Mask]] = []
        self.devices: DynamicResourcesFilter | None = None
        #: Row -> reasons about devices and their charges.
        self.refused: dict[int, tuple[NodeReason, ...]] = {}
        #: Scorer, weight and scores.
        self.scores: list[tuple[str, int, Column]] = []

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        if isinstance(rule, DynamicResourcesFilter):
            self.devices = rule
            for row in np.flatnonzero(removed).tolist():
                answer = rule.search_uncached(row)
                assert not isinstance(answer, NodeFit), "a cached refusal still holds"
                self.refused[row] = answer
        elif removed.any():
            self.removed.append((rule, removed))

    def on_node_excluded(self, row: int, reasons: tuple[NodeReason, ...]) -> None:
        self.refused[row] = reasons

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        self.scores.append((scorer, weight, scores))


def record_attempt(
    pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile
) -> tuple[Placement | FitError, AttemptRecorder]:
    """Schedule a pod and record the attempt."""
    recorder = AttemptRecorder()
    outcome = schedule_one(pod_info, snapshot, settings, simulated_ids(), observer=recorder)
    recorder.refused = dict(sorted(recorder.refused.items()))
    return outcome, recorder
