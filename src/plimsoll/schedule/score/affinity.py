"""The nodes a pod would rather have: preferred node affinity.

A node's raw score is the sum of the weights of the terms it matches. Each term is looked up as a rule of its
own, so pods that prefer alike share what was found out, with pods that require it, too.

DIFF: a preferred term that cannot be read counts for nothing; upstream fails the attempt
(test_a_preferred_term_that_cannot_be_read_counts_for_nothing).
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import NodeSelector, PreferredSchedulingTerm
from plimsoll.api.node_selection import readable_terms, term_matches
from plimsoll.ledger.columns import Column, Mask
from plimsoll.schedule.filters.affinity import WantedNodes
from plimsoll.schedule.score.scorer import Scorer, normalise
from plimsoll.schedule.settings import Settings
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task


class AffinityScorer(Scorer):
    """Preferred terms of node affinity."""

    name = "NodeAffinity"

    def __init__(
        self,
        task: Task,
        snapshot: Snapshot,
        settings: Settings,
        terms: tuple[PreferredSchedulingTerm, ...],
    ) -> None:
        super().__init__(task, snapshot, settings)
        self.terms = terms

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot, settings: Settings) -> Self | None:
        affinity = task.pod.spec.affinity
        if affinity is None or affinity.node_affinity is None:
            return None
        terms = tuple(term for term in affinity.node_affinity.preferred if term.weight)
        return cls(task, snapshot, settings, terms) if terms else None

    def scores(self, feasible: Mask) -> Column:
        index = self.snapshot.index(WantedNodes)
        raw: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        for term in self.terms:
            selector = NodeSelector(node_selector_terms=(term.preference,))
            raw += index.column(((), selector)) * np.int64(term.weight)
        return normalise(raw, feasible)

    def score(self, place: int) -> int:
        node = self.snapshot.node(place)
        return sum(
            term.weight
            for term in self.terms
            if readable_terms((term.preference,)) and term_matches(term.preference, node)
        )
