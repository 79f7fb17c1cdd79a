"""Score of inter-pod affinity.

Counts the pod's preferred terms, the preferred terms of existing pods, and their required affinity with the
profile's weight. A node gets the weights of all matching pods in its domains; the best feasible node scores
100, the worst 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import BEST, Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.affinity_index import AffinityTermIndex
from plimsoll.scheduler.topology.affinity_terms import AffinityTerm, AffinityTerms, read_terms
from plimsoll.scheduler.topology.counts import NodeCounts
from plimsoll.scheduler.topology.domains import TopologyDomains
from plimsoll.scheduler.topology.match_counts import MatchCounts, PodMatcher


class InterPodAffinityScorer(Scorer):
    """Scorer of the preferred affinity of the pod and the affinity of existing pods."""

    name: ClassVar[str] = "InterPodAffinity"

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        settings: SchedulerProfile,
        terms: AffinityTerms,
        others: list[tuple[AffinityTerm, NodeCounts, int]],
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self._terms = terms
        self._others = others

    @classmethod
    def pre_score(
        cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile
    ) -> InterPodAffinityScorer | None:
        terms, existing = read_terms(pod_info.pod), snapshot.index(AffinityTermIndex)
        if settings.ignore_preferred_terms and not terms.preferred:
            return None
        preferred = existing.preferred.matching(pod_info.pod, existing.namespaces)
        others = [(term, weights, 1) for term, weights in preferred]
        if weight := settings.hard_pod_affinity_weight:
            required = existing.affinity.matching(pod_info.pod, existing.namespaces)
            others += [(term, counts, weight) for term, counts in required]
        if not terms.preferred and not others:
            return None
        return cls(pod_info, snapshot, settings, terms, others)

    def scores(self, feasible: Mask) -> Column:
        """Normalize between the lowest and the highest sum.

        DIFF: computed exactly, in integers; upstream's float64 result is one less in some cases
        (test_scores_are_exact).
        """
        raw = self.sums()
        worst = int(raw.min(initial=2**62, where=feasible))
        best = int(raw.max(initial=-(2**62), where=feasible))
        if best <= worst:
            return np.zeros_like(raw)
        return (raw - worst) * BEST // (best - worst)

    def sums(self) -> Column:
        """Return the sum of the weights of matching pods for each node."""
        raw: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        domains = self.snapshot.index(TopologyDomains)
        for term, counts, weight in self._weighted():
            column = domains.column(term.topology_key)
            raw += counts.sums(column)[column.ids] * weight
        return raw

    def _weighted(self) -> Iterator[tuple[AffinityTerm, NodeCounts, int]]:
        """Yield all terms with the number of matching pods by node and their weight."""
        for term, weight in self._terms.preferred:
            yield term, self.snapshot.index(MatchCounts).count(PodMatcher((term.selector,))), weight
        yield from self._others
