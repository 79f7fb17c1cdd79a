"""Scores by the room on a node: `NodeResourcesFit` (least or most allocated) and balanced allocation.

Owns the columns that are kept: one for each formula, which has the pod's demand in it. Only places whose
books changed are worked out again: between two pods alike that is usually the one where the first one went.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

from plimsoll.ledger.columns import Column, Mask, NodeColumns
from plimsoll.ledger.requests import NON_ZERO_CPU, NON_ZERO_MEMORY, pod_requests
from plimsoll.ledger.units import CPU, MEMORY, PLAIN, units_of
from plimsoll.schedule.index import Index
from plimsoll.schedule.score.formulas import Allocated, Balanced, Formula, Part
from plimsoll.schedule.score.scorer import Scorer
from plimsoll.schedule.settings import Settings, Strategy
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task

_NON_ZERO = {CPU: NON_ZERO_CPU, MEMORY: NON_ZERO_MEMORY}


class _Kept:
    """The scores of one formula, and how far in the journal of changes they go."""

    __slots__ = ("mark", "scores", "shown")

    def __init__(self, scores: Column, mark: int) -> None:
        self.scores = scores
        self.mark = mark
        self.shown = scores.view()  # what others see, and cannot write to
        self.shown.flags.writeable = False


class FormulaColumns(Index):
    """The scores of every node by formula; those not asked for the longest are dropped first."""

    kept: ClassVar[int] = 256

    def __init__(self) -> None:
        self._known: dict[Formula, _Kept] = {}

    def column(self, formula: Formula, columns: NodeColumns) -> Column:
        """The scores of all places, to be read only."""
        known = self._known.pop(formula, None)
        mark = columns.changes.mark
        if known is None and len(self._known) >= self.kept:
            del self._known[next(iter(self._known))]
        if known is None or not self._catch_up(known, formula, columns, mark):
            known = _Kept(formula.over(columns), mark)
        self._known[formula] = known  # the last one asked for stands last
        return known.shown

    def _catch_up(self, known: _Kept, formula: Formula, columns: NodeColumns, mark: int) -> bool:
        """Work out again what changed; whether that was worth it."""
        if len(known.scores) != columns.size:
            return False
        if known.mark == mark:
            return True
        places = columns.changes.since(known.mark)
        if places is None or len(places) > 16 + columns.size // 64:
            return False
        for place in places:
            known.scores[place] = formula.at(columns, place)
        known.mark = mark
        return True


def non_zero_demand(task: Task) -> Mapping[str, int]:
    """What a pod requests if each container that requests no cpu or memory counts for a little."""
    spec = task.pod.spec
    for container in (*spec.containers, *spec.init_containers):
        requests = container.resources.requests
        if CPU not in requests or MEMORY not in requests:
            options = replace(task.options, count_claims=False, non_missing=_NON_ZERO)
            return units_of(pod_requests(task.pod, options, ()))
    return task.demand


class _FormulaScorer(Scorer):
    """A scorer by a formula; its scores are what they are, whatever other nodes have."""

    def __init__(self, task: Task, snapshot: Snapshot, settings: Settings, formula: Formula) -> None:
        super().__init__(task, snapshot, settings)
        self.formula = formula

    def scores(self, feasible: Mask) -> Column:
        return self.snapshot.index(FormulaColumns).column(self.formula, self.snapshot.columns)

    def score(self, place: int) -> int:
        return self.formula.at(self.snapshot.columns, place)


class AllocatedScorer(_FormulaScorer):
    """Least or most allocated, as the settings say; containers without requests count for a little."""

    name = "NodeResourcesFit"

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot, settings: Settings) -> Self | None:
        demand = non_zero_demand(task)
        parts = tuple(
            Part(name, demand.get(name, 0), weight)
            for name, weight in settings.resources.items()
            if weight and (demand.get(name, 0) or name in PLAIN)
        )
        most = settings.strategy is Strategy.MOST_ALLOCATED
        return cls(task, snapshot, settings, Allocated(parts, most)) if parts else None


class BalancedScorer(_FormulaScorer):
    """How the pod changes the balance between resources; pods that request none of them do not."""

    name = "NodeResourcesBalancedAllocation"

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot, settings: Settings) -> Self | None:
        demand = task.demand
        parts = tuple(
            Part(name, demand.get(name, 0))
            for name in settings.balanced
            if demand.get(name, 0) or name in PLAIN
        )
        if len(parts) < 2 or not any(part.demand for part in parts):
            return None
        return cls(task, snapshot, settings, Balanced(parts))
