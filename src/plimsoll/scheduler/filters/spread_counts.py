"""Pod counts per domain for spread constraints, shared by the filter and the score."""

from __future__ import annotations

from functools import cached_property

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter
from plimsoll.scheduler.filters.taint_toleration import TaintTolerationFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import SpreadConstraint
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.domains import TopologyDomains
from plimsoll.scheduler.topology.match_counts import MatchCounts


class SpreadState:
    """Spread constraints of a pod on a snapshot."""

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, constraints: tuple[SpreadConstraint, ...]
    ) -> None:
        self.constraints = constraints
        self._task = pod_info
        self._snapshot = snapshot
        self._group = snapshot.index(TopologyDomains).group(tuple(each.topology_key for each in constraints))
        self.columns = self._group.columns

    @property
    def labelled(self) -> Mask:
        """Nodes that have all topology labels; others belong to no domain."""
        return self._group.labelled

    def counts(self, constraint: SpreadConstraint) -> PlaceCounts:
        """Return the number of pods on each node that a constraint counts."""
        if constraint.counts_no_pods:
            return PlaceCounts()
        return self._snapshot.index(MatchCounts).count(constraint.matcher)

    def eligible(self, constraint: SpreadConstraint) -> Mask | None:
        """Return the nodes whose pods count, or None for all that have the labels."""
        masks = [self._wanted] if constraint.honor_affinity and self._wanted is not None else []
        if constraint.honor_taints and self._tolerated is not None:
            masks.append(self._tolerated)
        mask: Mask | None = None
        for each in masks:
            mask = (self._group.labelled if mask is None else mask) & each
        return mask

    def sums(self, number: int) -> Column:
        """Return the matching pods in each domain of a constraint; the last entry, for no domain, is 0."""
        constraint, column = self.constraints[number], self.columns[number]
        counts, eligible = self.counts(constraint), self.eligible(constraint)
        if eligible is None and self._group.whole[number]:
            return counts.sums(column)
        return counts.sums_among(column, self._group.labelled if eligible is None else eligible)

    def present(self, number: int) -> Mask:
        """Return the domains that exist for a constraint."""
        eligible = self.eligible(self.constraints[number])
        return self._group.present[number] if eligible is None else self.columns[number].present(eligible)

    @cached_property
    def _wanted(self) -> Mask | None:
        """Nodes that match the pod's node selector and required affinity; None for all."""
        rule = NodeAffinityFilter.pre_filter(self._task, self._snapshot)
        return None if rule is None else rule.filter()

    @cached_property
    def _tolerated(self) -> Mask | None:
        """Nodes whose taints the pod tolerates; None for all."""
        rule = TaintTolerationFilter.pre_filter(self._task, self._snapshot)
        return None if rule is None else rule.filter()
