"""The rules of pods about pods: near those with some labels, apart from those with others.

Owns `InterPodFilter`, the rule InterPodAffinity: the new pod's required affinity and anti-affinity, and the
required anti-affinity of pods that are there. A node is in the domain that its label of the term's topology
key names. The first pod of a group that wants to be near itself may go to any node with the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.affinity_index import Holders
from plimsoll.scheduler.topology.affinity_terms import Term, Terms, read_terms
from plimsoll.scheduler.topology.counts import NOWHERE, PlaceCounts
from plimsoll.scheduler.topology.domains import Domains
from plimsoll.scheduler.topology.match_counts import Census, Kind, Tallies

_AFFINITY = NodeReason(Rule.INTER_POD, ReasonMessage.POD_AFFINITY, Code.UNRESOLVABLE)
_ANTI_AFFINITY = NodeReason(Rule.INTER_POD, ReasonMessage.POD_ANTI_AFFINITY, Code.UNSCHEDULABLE)
_EXISTING = NodeReason(Rule.INTER_POD, ReasonMessage.EXISTING_ANTI_AFFINITY, Code.UNSCHEDULABLE)


class InterPodAffinityFilter(Filter):
    """What a pod and the pods that are there require of each other."""

    rule: ClassVar[Rule] = Rule.INTER_POD

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        terms: Terms,
        existing: Sequence[tuple[Term, PlaceCounts]],
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._terms = terms
        self._existing = existing
        self._domains = snapshot.index(Domains)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> InterPodAffinityFilter | NodeReason | None:
        terms = read_terms(pod_info.pod)
        if terms.problem:
            facts = {"text": terms.problem}
            return NodeReason(cls.rule, ReasonMessage.UNREADABLE, Code.UNRESOLVABLE, facts)
        holders = snapshot.index(Holders)
        existing = list(holders.anti_affinity.about(pod_info.pod, holders.namespaces))
        if not (terms.affinity or terms.anti_affinity or existing):
            return None
        return cls(pod_info, snapshot, terms, existing)

    # -- for all nodes at once

    def filter(self) -> Mask:
        far, near, hated = self._refusals
        return ~(far | near | hated)

    @cached_property
    def _refusals(self) -> tuple[Mask, Mask, Mask]:
        """Where it is too far from those it wants, too near to those it shuns, and shunned by others."""
        return self._too_far(), self._crowded(self._shunned), self._crowded(self._existing)

    def _too_far(self) -> Mask:
        terms = self._terms.affinity
        nowhere = np.zeros(self.snapshot.size, dtype=np.bool_)
        if not terms:
            return nowhere
        counts = self._friends
        lonely, no_label, alone = nowhere, nowhere, True
        for term in terms:
            column = self._domains.column(term.topology_key)
            sums = counts.sums(column)
            alone = alone and not sums.any()
            lonely = lonely | (sums[column.ids] == 0)
            no_label = no_label | ~column.known
        return no_label if alone and self._wants_itself else lonely

    def _crowded(self, terms: Sequence[tuple[Term, PlaceCounts]]) -> Mask:
        refused = np.zeros(self.snapshot.size, dtype=np.bool_)
        for term, counts in terms:
            column = self._domains.column(term.topology_key)
            refused |= counts.sums(column)[column.ids] > 0
        return refused

    @cached_property
    def _friends(self) -> PlaceCounts:
        """The pods it wants to be near: those that all its terms mean at once."""
        return self.snapshot.index(Tallies).count(self._friendly)

    @cached_property
    def _friendly(self) -> Census:
        return Census(tuple(term.crowd for term in self._terms.affinity))

    @cached_property
    def _wants_itself(self) -> bool:
        return self._friendly.counts(Kind(self.pod_info.pod), self.snapshot.index(Tallies).namespaces)

    @cached_property
    def _shunned(self) -> Sequence[tuple[Term, PlaceCounts]]:
        """The pods it wants to be apart from, term by term."""
        terms = self._terms.anti_affinity
        tallies = self.snapshot.index(Tallies) if terms else None
        return [] if tallies is None else [(each, tallies.count(Census((each.crowd,)))) for each in terms]

    # -- for one node, as the books stand now

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        if self._terms.affinity and not self._near_enough(row):
            return (_AFFINITY,)
        for others, reason in ((self._shunned, _ANTI_AFFINITY), (self._existing, _EXISTING)):
            for term, counts in others:
                if counts.sum_at(self._domains.column(term.topology_key), row):
                    return (reason,)
        return ()

    def _near_enough(self, row: int) -> bool:
        terms, counts = self._terms.affinity, self._friends
        columns = [self._domains.column(term.topology_key) for term in terms]
        if any(column.ids[row] == NOWHERE for column in columns):
            return False
        if all(counts.sum_at(column, row) for column in columns):
            return True
        return self._wants_itself and not any(counts.sums(column).any() for column in columns)

    # -- summing up

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found, left = [], removed
        for refused, reason in zip(self._refusals, (_AFFINITY, _ANTI_AFFINITY, _EXISTING), strict=True):
            count = int(np.count_nonzero(left & refused))
            if count:
                found.append((reason, count))
            left = left & ~refused
        return found

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return removed & ~self._refusals[0]
