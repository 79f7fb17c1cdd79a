"""Who is counted where, for a pod's spread constraints on a snapshot.

Owns `Spreading`, which the rule and the score have in common: the nodes that count (those with all the
labels which the policies include) and the pods in each domain.
"""

from __future__ import annotations

from functools import cached_property

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter
from plimsoll.scheduler.filters.taint_toleration import TaintTolerationFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import Constraint
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.domains import Domains
from plimsoll.scheduler.topology.match_counts import Tallies


class SpreadState:
    """Constraints on a snapshot: who is counted where."""

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, constraints: tuple[Constraint, ...]) -> None:
        self.constraints = constraints
        self._task = pod_info
        self._snapshot = snapshot
        self._group = snapshot.index(Domains).group(tuple(each.topology_key for each in constraints))
        self.columns = self._group.columns

    @property
    def labelled(self) -> Mask:
        """The nodes that have all the labels; others are in no domain of any constraint."""
        return self._group.labelled

    def counts(self, constraint: Constraint) -> PlaceCounts:
        """How many pods each place has that a constraint counts."""
        if constraint.counts_nobody:
            return PlaceCounts()
        return self._snapshot.index(Tallies).count(constraint.census)

    def eligible(self, constraint: Constraint) -> Mask | None:
        """The nodes whose pods count; None: all that have the labels."""
        masks = [self._wanted] if constraint.honor_affinity and self._wanted is not None else []
        if constraint.honor_taints and self._tolerated is not None:
            masks.append(self._tolerated)
        mask: Mask | None = None
        for each in masks:
            mask = (self._group.labelled if mask is None else mask) & each
        return mask

    def sums(self, number: int) -> Column:
        """The pods in each domain of a constraint; the last one is that of no domain: zero."""
        constraint, column = self.constraints[number], self.columns[number]
        counts, eligible = self.counts(constraint), self.eligible(constraint)
        if eligible is None and self._group.whole[number]:
            return counts.sums(column)
        return counts.sums_among(column, self._group.labelled if eligible is None else eligible)

    def present(self, number: int) -> Mask:
        """The domains there are for a constraint."""
        eligible = self.eligible(self.constraints[number])
        return self._group.present[number] if eligible is None else self.columns[number].present(eligible)

    @cached_property
    def _wanted(self) -> Mask | None:
        """The nodes that the pod's node selector and required affinity mean; None: any."""
        rule = NodeAffinityFilter.pre_filter(self._task, self._snapshot)
        return None if rule is None else rule.filter()

    @cached_property
    def _tolerated(self) -> Mask | None:
        """The nodes without a taint that keeps the pod away; None: all."""
        rule = TaintTolerationFilter.pre_filter(self._task, self._snapshot)
        return None if rule is None else rule.filter()
