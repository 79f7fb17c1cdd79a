"""Near pods it likes, away from pods it does not, and the same in the eyes of pods that are there.

Owns `InterPodScorer`, the score InterPodAffinity: the new pod's preferred terms, the preferred terms of pods
that are there, and their required affinity, which counts 1. A node has the weights of all pods that are
meant in its domains; the best feasible node has 100, the worst has 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import BEST, Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.affinity_index import Holders
from plimsoll.scheduler.topology.affinity_terms import Term, Terms, read_terms
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.domains import Domains
from plimsoll.scheduler.topology.match_counts import Census, Tallies

#: What it counts that a pod which is there requires one like the new pod nearby.
REQUIRED_WEIGHT = 1


class InterPodScorer(Scorer):
    """What a pod and the pods that are there would like of each other."""

    name: ClassVar[str] = "InterPodAffinity"

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        settings: SchedulerProfile,
        terms: Terms,
        others: list[tuple[Term, PlaceCounts, int]],
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self._terms = terms
        self._others = others

    @classmethod
    def read(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> InterPodScorer | None:
        terms, holders = read_terms(pod_info.pod), snapshot.index(Holders)
        liked = holders.preferred.about(pod_info.pod, holders.namespaces)
        required = holders.affinity.about(pod_info.pod, holders.namespaces)
        others = [(term, counts, 1) for term, counts in liked]
        others += [(term, counts, REQUIRED_WEIGHT) for term, counts in required]
        if not terms.preferred and not others:
            return None
        return cls(pod_info, snapshot, settings, terms, others)

    def scores(self, feasible: Mask) -> Column:
        """DIFF: the share of the way from worst to best, exact; upstream's floats are one short of some
        whole numbers (test_a_share_is_exact)."""
        raw = self._raw
        worst = int(raw.min(initial=2**62, where=feasible))
        best = int(raw.max(initial=-(2**62), where=feasible))
        if best <= worst:
            return np.zeros_like(raw)
        return (raw - worst) * BEST // (best - worst)

    @cached_property
    def _raw(self) -> Column:
        raw: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        domains = self.snapshot.index(Domains)
        for term, counts, weight in self._weighted():
            column = domains.column(term.topology_key)
            raw += counts.sums(column)[column.ids] * weight
        return raw

    def score(self, row: int) -> int:
        domains = self.snapshot.index(Domains)
        return sum(
            counts.sum_at(domains.column(term.topology_key), row) * weight
            for term, counts, weight in self._weighted()
        )

    def _weighted(self) -> Iterator[tuple[Term, PlaceCounts, int]]:
        """All terms, with who is meant at each place and what each of those counts."""
        for term, weight in self._terms.preferred:
            yield term, self.snapshot.index(Tallies).count(Census((term.crowd,))), weight
        yield from self._others
