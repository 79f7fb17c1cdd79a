"""Spreading pods over domains: no domain may be ahead of the emptiest one by more than the skew allowed.

Owns `SpreadFilter`, the rule PodTopologySpread for constraints that say DoNotSchedule. Domains are those of
nodes that have all the labels and that the constraint's policies include; with fewer domains than
`minDomains` the emptiest one counts as empty. A node outside of all that is judged all the same: its domain
has nobody in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from plimsoll.api.node_selection import SelectorProblem
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import DO_NOT_SCHEDULE, INT32_MAX, Constraint, read_constraints
from plimsoll.scheduler.topology.counts import NOWHERE

_NO_LABEL = NodeReason(Rule.SPREAD, ReasonMessage.SPREAD_NO_LABEL, Code.UNRESOLVABLE)
_SKEW = NodeReason(Rule.SPREAD, ReasonMessage.SPREAD, Code.UNSCHEDULABLE)


class PodTopologySpreadFilter(Filter):
    """The constraints that must hold."""

    rule: ClassVar[Rule] = Rule.SPREAD

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, constraints: tuple[Constraint, ...]) -> None:
        super().__init__(pod_info, snapshot)
        self._spread = SpreadState(pod_info, snapshot, constraints)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> PodTopologySpreadFilter | NodeReason | None:
        if not pod_info.pod.spec.topology_spread_constraints:
            return None
        constraints = read_constraints(pod_info.pod, DO_NOT_SCHEDULE)
        if isinstance(constraints, SelectorProblem):
            facts = {"text": str(constraints)}
            return NodeReason(cls.rule, ReasonMessage.UNREADABLE, Code.UNRESOLVABLE, facts)
        return cls(pod_info, snapshot, constraints) if constraints else None

    # -- for all nodes at once

    def filter(self) -> Mask:
        no_label, skewed = self._refusals
        return ~(no_label | skewed)

    @cached_property
    def _refusals(self) -> tuple[Mask, Mask]:
        """Where a label is missing, and where the skew would be too great; constraints in their order."""
        no_label = np.zeros(self.snapshot.size, dtype=np.bool_)
        skewed = no_label.copy()
        for number, constraint in enumerate(self._spread.constraints):
            column = self._spread.columns[number]
            sums, most = self._limit(number, constraint)
            no_label |= ~column.known & ~skewed
            skewed |= (sums[column.ids] > most) & ~no_label
        return no_label, skewed

    def _limit(self, number: int, constraint: Constraint) -> tuple[Column, int]:
        """The pods in each domain, and how many there may be where one more is to go."""
        sums, present = self._spread.sums(number), self._spread.present(number)
        enough = int(np.count_nonzero(present)) >= constraint.min_domains
        least = int(sums.min(initial=INT32_MAX, where=present)) if enough else 0
        return sums, constraint.max_skew + least - constraint.own

    # -- for one node, as the books stand now

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        for number, constraint in enumerate(self._spread.constraints):
            domain = self._spread.columns[number].ids[row]
            if domain == NOWHERE:
                return (_NO_LABEL,)
            sums, most = self._limit(number, constraint)
            if sums[domain] > most:
                return (_SKEW,)
        return ()

    # -- summing up

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        no_label, skewed = self._refusals
        counts = ((_NO_LABEL, removed & no_label), (_SKEW, removed & skewed))
        return [(reason, int(np.count_nonzero(mask))) for reason, mask in counts if mask.any()]

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return removed & ~self._refusals[0]
