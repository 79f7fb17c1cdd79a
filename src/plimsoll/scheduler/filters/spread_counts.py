"""Pod counts per domain for spread constraints, shared by the filter and the score."""

from __future__ import annotations

from functools import cached_property

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.node_affinity import selected_nodes
from plimsoll.scheduler.filters.taint_toleration import TaintTolerationFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import SpreadConstraint
from plimsoll.scheduler.topology.counts import NodeCounts
from plimsoll.scheduler.topology.domains import TopologyDomains
from plimsoll.scheduler.topology.match_counts import MatchCounts


class SpreadState:
    """Spread constraints of one pod, with the pod counts of a snapshot."""

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        constraints: tuple[SpreadConstraint, ...],
        *,
        needs_all_labels: bool = True,
    ) -> None:
        """Create the state; without `needs_all_labels`, nodes count that lack some of the topology labels."""
        self.constraints = constraints
        self._needs_all_labels = needs_all_labels
        self._pod_info = pod_info
        self._snapshot = snapshot
        self._group = snapshot.index(TopologyDomains).group(tuple(each.topology_key for each in constraints))
        self.columns = self._group.columns

    @property
    def labeled(self) -> Mask:
        """Nodes that have all topology labels, if these are needed; others belong to no domain."""
        return self._group.labeled if self._needs_all_labels else self._snapshot.alive

    def counts(self, constraint: SpreadConstraint) -> NodeCounts:
        """Return the number of pods on each node that a constraint counts."""
        if constraint.counts_no_pods:
            return NodeCounts()
        return self._snapshot.index(MatchCounts).count(constraint.matcher)

    def eligible(self, constraint: SpreadConstraint) -> Mask | None:
        """Return the nodes whose pods count, or None for all that have the labels."""
        mask: Mask | None = None
        if constraint.honor_affinity and self._selected is not None:
            mask = self.labeled & self._selected
        if constraint.honor_taints and self._tolerated is not None:
            mask = (self.labeled if mask is None else mask) & self._tolerated
        return mask

    def sums(self, number: int) -> Column:
        """Return the matching pods in each domain of a constraint; the last entry, for no domain, is 0."""
        constraint, column = self.constraints[number], self.columns[number]
        counts, eligible = self.counts(constraint), self.eligible(constraint)
        if eligible is None and (self._group.complete[number] or not self._needs_all_labels):
            return counts.sums(column)
        return counts.sums_among(column, self.labeled if eligible is None else eligible)

    def present(self, number: int) -> Mask:
        """Return the domains that exist for a constraint."""
        eligible = self.eligible(self.constraints[number])
        return self._group.present[number] if eligible is None else self.columns[number].present(eligible)

    @cached_property
    def _selected(self) -> Mask | None:
        """Nodes that match the pod's node selector and required node affinity; None for all."""
        return selected_nodes(self._pod_info.pod, self._snapshot)

    @cached_property
    def _tolerated(self) -> Mask | None:
        """Nodes whose taints the pod tolerates; None for all."""
        rule = TaintTolerationFilter.pre_filter(self._pod_info, self._snapshot)
        return None if rule is None else rule.filter()
