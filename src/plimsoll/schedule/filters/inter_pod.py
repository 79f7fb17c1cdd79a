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
from plimsoll.schedule.filters.filter import Filter
from plimsoll.schedule.reasons import NodeReason, Rule, Sentence
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task
from plimsoll.schedule.topology.counts import PlaceCounts
from plimsoll.schedule.topology.domains import NOWHERE, Domains
from plimsoll.schedule.topology.holders import Holders
from plimsoll.schedule.topology.tallies import Census, Tallies
from plimsoll.schedule.topology.terms import Term, Terms, read_terms

_AFFINITY = NodeReason(Rule.INTER_POD, Sentence.POD_AFFINITY, Code.UNRESOLVABLE)
_ANTI_AFFINITY = NodeReason(Rule.INTER_POD, Sentence.POD_ANTI_AFFINITY, Code.UNSCHEDULABLE)
_EXISTING = NodeReason(Rule.INTER_POD, Sentence.EXISTING_ANTI_AFFINITY, Code.UNSCHEDULABLE)


class InterPodFilter(Filter):
    """What a pod and the pods that are there require of each other."""

    rule: ClassVar[Rule] = Rule.INTER_POD

    def __init__(
        self, task: Task, snapshot: Snapshot, terms: Terms, existing: Sequence[tuple[Term, PlaceCounts]]
    ) -> None:
        super().__init__(task, snapshot)
        self._terms = terms
        self._existing = existing
        self._domains = snapshot.index(Domains)
        self._tallies = snapshot.index(Tallies)

    @classmethod
    def read(cls, task: Task, snapshot: Snapshot) -> InterPodFilter | NodeReason | None:
        terms = read_terms(task.pod)
        if terms.problem:
            facts = {"text": terms.problem}
            return NodeReason(cls.rule, Sentence.UNREADABLE, Code.UNRESOLVABLE, facts)
        namespaces = snapshot.index(Tallies).namespaces
        existing = list(snapshot.index(Holders).anti_affinity.about(task.pod, namespaces))
        if not (terms.affinity or terms.anti_affinity or existing):
            return None
        return cls(task, snapshot, terms, existing)

    # -- for all nodes at once

    def feasible(self) -> Mask:
        far, near, hated = self._refusals
        return ~(far | near | hated)

    @cached_property
    def _refusals(self) -> tuple[Mask, Mask, Mask]:
        """Where it is too far from those it wants, too near to those it shuns, and shunned by others."""
        own = self._terms.anti_affinity
        tallies = [(term, self._tallies.count(Census((term.crowd,)))) for term in own]
        return self._too_far(), self._crowded(tallies), self._crowded(self._existing)

    def _too_far(self) -> Mask:
        terms = self._terms.affinity
        nowhere = np.zeros(self.snapshot.size, dtype=np.bool_)
        if not terms:
            return nowhere
        counts = self._tallies.count(self._friends)
        lonely, no_label, alone = nowhere, nowhere, True
        for term in terms:
            column = self._domains.column(term.topology_key)
            totals = column.totals(counts)
            alone = alone and not totals.any()
            lonely = lonely | (totals[column.ids] == 0)
            no_label = no_label | ~column.known
        return no_label if alone and self._wants_itself else lonely

    def _crowded(self, terms: Sequence[tuple[Term, PlaceCounts]]) -> Mask:
        refused = np.zeros(self.snapshot.size, dtype=np.bool_)
        for term, counts in terms:
            column = self._domains.column(term.topology_key)
            refused |= column.totals(counts)[column.ids] > 0
        return refused

    @cached_property
    def _friends(self) -> Census:
        """The pods it wants to be near: those that all its terms mean at once."""
        return Census(tuple(term.crowd for term in self._terms.affinity))

    @cached_property
    def _wants_itself(self) -> bool:
        return self._friends.counts(self.task.pod, self._tallies.namespaces)

    # -- for one node, as the books stand now

    def why_not(self, place: int) -> tuple[NodeReason, ...]:
        if self._terms.affinity and not self._near_enough(place):
            return (_AFFINITY,)
        for term in self._terms.anti_affinity:
            if self._total(term, self._tallies.count(Census((term.crowd,))), place):
                return (_ANTI_AFFINITY,)
        for term, counts in self._existing:
            if self._total(term, counts, place):
                return (_EXISTING,)
        return ()

    def _near_enough(self, place: int) -> bool:
        terms, counts = self._terms.affinity, self._tallies.count(self._friends)
        columns = [self._domains.column(term.topology_key) for term in terms]
        if any(column.ids[place] == NOWHERE for column in columns):
            return False
        if all(column.total_at(counts, place) for column in columns):
            return True
        return self._wants_itself and not any(column.totals(counts).any() for column in columns)

    def _total(self, term: Term, counts: PlaceCounts, place: int) -> int:
        return self._domains.column(term.topology_key).total_at(counts, place)

    # -- summing up

    def tally(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found, left = [], removed
        for refused, reason in zip(self._refusals, (_AFFINITY, _ANTI_AFFINITY, _EXISTING), strict=True):
            count = int(np.count_nonzero(left & refused))
            if count:
                found.append((reason, count))
            left = left & ~refused
        return found

    def resolvable(self, removed: Mask) -> Mask:
        return removed & ~self._refusals[0]
