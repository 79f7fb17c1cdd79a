"""Who is counted where, for a pod's spread constraints on a snapshot.

Owns `Spreading`, which the rule and the score have in common: the nodes that count (those with all the
labels which the policies include) and the pods in each domain.
"""

from __future__ import annotations

from functools import cached_property

from plimsoll.ledger.columns import Column, Mask
from plimsoll.schedule.filters.affinity import AffinityFilter
from plimsoll.schedule.filters.taints import TaintsFilter
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task
from plimsoll.schedule.topology.constraints import Constraint
from plimsoll.schedule.topology.counts import PlaceCounts
from plimsoll.schedule.topology.domains import Domains
from plimsoll.schedule.topology.tallies import Tallies


class Spreading:
    """Constraints on a snapshot: who is counted where."""

    def __init__(self, task: Task, snapshot: Snapshot, constraints: tuple[Constraint, ...]) -> None:
        self.constraints = constraints
        self._task = task
        self._snapshot = snapshot
        self._domains = snapshot.index(Domains)
        self._tallies = snapshot.index(Tallies)
        self.columns = tuple(self._domains.column(each.topology_key) for each in constraints)

    def counts(self, constraint: Constraint) -> PlaceCounts:
        """How many pods each place has that a constraint counts."""
        return PlaceCounts() if constraint.counts_nobody else self._tallies.count(constraint.census)

    def labelled(self) -> Mask:
        """The nodes that have all the labels; others are in no domain of any constraint."""
        mask: Mask = self._snapshot.alive
        for column in self.columns:
            mask = mask & column.known
        return mask

    def eligible(self, constraint: Constraint, labelled: Mask) -> Mask:
        """The nodes whose pods count."""
        if constraint.honor_affinity:
            labelled = labelled & self._wanted
        if constraint.honor_taints:
            labelled = labelled & self._tolerated
        return labelled

    def totals(self, number: int, eligible: Mask) -> Column:
        """The pods in each domain of a constraint."""
        return self.columns[number].totals(self.counts(self.constraints[number]), eligible)

    @cached_property
    def _wanted(self) -> Mask:
        """The nodes that the pod's node selector and required affinity mean."""
        rule = AffinityFilter.read(self._task, self._snapshot)
        return self._snapshot.alive if rule is None else rule.feasible()

    @cached_property
    def _tolerated(self) -> Mask:
        """The nodes without a taint that keeps the pod away."""
        rule = TaintsFilter.read(self._task, self._snapshot)
        return self._snapshot.alive if rule is None else rule.feasible()
