"""Score of preferred node affinity, of the pod and of the profile.

The raw score of a node is the sum of the weights of matching terms; pods with equal terms share the result.

DIFF: an invalid preferred term is ignored; upstream fails the attempt
(test_invalid_preferred_terms_are_ignored).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar, Self, TypeAlias

import numpy as np

from plimsoll.api.core import Node, PreferredSchedulingTerm
from plimsoll.api.node_selection import filter_valid_terms, term_matches
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.node_affinity import LabelIndex
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import Scorer, normalize
from plimsoll.scheduler.snapshot.snapshot import Snapshot

Terms: TypeAlias = "tuple[PreferredSchedulingTerm, ...]"


@lru_cache(maxsize=1024)
def _valid(terms: Terms) -> Terms:
    """Return the valid terms with a positive weight."""
    return tuple(term for term in terms if term.weight > 0 and filter_valid_terms((term.preference,)))


def sum_weights(terms: Terms, node: Node) -> int:
    """Return the sum of the weights of the terms that match a node."""
    return sum(term.weight for term in terms if term_matches(term.preference, node))


class PreferredNodes(LabelIndex[Terms, np.int64]):
    """Cached raw scores of preferred node affinity."""

    kept: ClassVar[int] = 256
    dtype = np.int64

    def evaluate(self, signature: Terms, node: Node) -> int:
        return sum_weights(signature, node)

    def candidates(self, signature: Terms) -> Iterable[int]:
        rows = self.rows_of(term.preference for term in signature)
        return self.nodes if rows is None else rows


class NodeAffinityScorer(Scorer):
    """Scorer of preferred node affinity."""

    name = "NodeAffinity"

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, terms: Terms
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self.terms = terms

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        affinity, added = pod_info.pod.spec.affinity, settings.added_affinity
        terms: Terms = () if added is None else _valid(added.preferred)
        if affinity is not None and affinity.node_affinity is not None:
            terms += _valid(affinity.node_affinity.preferred)
        return cls(pod_info, snapshot, settings, terms) if terms else None

    def scores(self, feasible: Mask) -> Column:
        return normalize(self.snapshot.index(PreferredNodes).column(self.terms), feasible)
