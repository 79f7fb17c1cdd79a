"""Candidate nodes for preemption, and their victims.

Visits the nodes on which a pod would fit without other pods, within kube-scheduler's limits; quick checks
avoid most dry runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.quantity import INT64_MAX
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.scheduler.devices import SearchCache, SearchResults
from plimsoll.scheduler.filters.node_resources import (
    delegated_resources,
    shortage_reason,
    unchecked_resources,
)
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.preemption.victim_units import rows_with_indivisible_groups
from plimsoll.scheduler.preemption.victims import (
    NO_VICTIMS,
    Victims,
    select_victim_units,
    select_victims_quickly,
)
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.unschedulable_cache import pod_signature


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """Number of candidates to find: a percentage of the nodes, with a minimum."""

    percentage: int = 10
    absolute: int = 100

    def count(self, rows: int) -> int:
        return min(rows, max(rows * self.percentage // 100, self.absolute))


class DryRunFailures(SearchCache):
    """Cache of failed dry runs by pod and node, until resources are released on the node.

    A pod that does not fit even without all lower-priority pods does not fit after more pods were added, with
    one exception: an added pod with an allocated claim frees its devices when it is evicted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows_with_added_claims: set[int] = set()

    def pod_added(self, row: int, pod: Pod) -> None:
        if uses_claims(pod):
            self._rows_with_added_claims.add(row)

    def results_for(self, key: bytes) -> SearchResults:
        for row in self._rows_with_added_claims:
            self.forget(row)
        self._rows_with_added_claims.clear()
        return super().results_for(key)

    def ignore_simulated(self) -> None:
        """Ignore the pods that were added since the last query: they were restored by a simulation."""
        self._rows_with_added_claims.clear()

    def object_changed(self, old: Any, new: Any) -> None:
        super().object_changed(old, new)
        if isinstance(new, ResourceClaim) and isinstance(old, ResourceClaim):
            # A shared claim lost a consumer: removing the remaining ones may free its devices now.
            before = {consumer.uid for consumer in old.status.reserved_for}
            after = {consumer.uid for consumer in new.status.reserved_for}
            if after and before - after:
                self.clear()


class LowestPriorities(SnapshotIndex):
    """Lowest priority of the pods on each node; INT64_MAX for nodes without pods."""

    def __init__(self) -> None:
        self.lowest: Column = np.zeros(0, dtype=np.int64)
        self._counts: dict[int, Counter[int]] = {}

    def resized(self, size: int) -> None:
        before, self.lowest = self.lowest, np.full(size, INT64_MAX, dtype=np.int64)
        self.lowest[: len(before)] = before

    def pod_added(self, row: int, pod: Pod) -> None:
        priority = pod.priority
        self._counts.setdefault(row, Counter())[priority] += 1
        if priority < self.lowest[row]:
            self.lowest[row] = priority

    def pod_removed(self, row: int, pod: Pod) -> None:
        priority, counts = pod.priority, self._counts[row]
        counts[priority] -= 1
        if not counts[priority]:
            del counts[priority]
            self.lowest[row] = min(counts, default=INT64_MAX)
            if not counts:
                del self._counts[row]

    def node_removed(self, row: int, node: Node) -> None:
        self._counts.pop(row, None)
        self.lowest[row] = INT64_MAX


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates in search order, and the reasons for the other nodes."""

    found: tuple[Victims, ...]
    reasons: tuple[tuple[NodeReason, int], ...]
    rejected: int  #: number of nodes with a reason


def find_candidates(
    node_filter: NodeFilter,
    rows: Mask,
    budgets: DisruptionBudgets,
    nominations: Nominations | None = None,
    offset: int = 0,
    limits: CandidateLimits | None = None,
) -> Candidates:
    """Look for victims on these nodes, starting at `offset` and wrapping around."""
    pod_info, snapshot = node_filter.pod_info, node_filter.snapshot
    potential = np.flatnonzero(rows & snapshot.alive)
    enough = (limits or _limits(node_filter.settings)).count(len(potential))
    has_victims = snapshot.index(LowestPriorities).lowest[potential] < pod_info.priority
    #: Nodes with pods whose priority is that of their group, and whose eviction affects other nodes.
    grouped = rows_with_indivisible_groups(snapshot)
    if grouped:
        has_victims |= np.isin(potential, list(grouped))
    counts, rejected = ReasonCounts(), 0

    def reject(reasons: Sequence[NodeReason], nodes: int = 1) -> None:
        nonlocal rejected
        rejected += nodes
        for reason in reasons:
            counts.add(reason, nodes)

    no_victims = potential[~has_victims]
    if node_filter.devices is not None:
        # Without pods that could free devices, these nodes count as ones that preemption does not help.
        no_victims = no_victims[~node_filter.devices.short_of_devices()[no_victims]]
    if len(no_victims):
        reject((NO_VICTIMS,), len(no_victims))
    rotated = np.roll(potential, -offset)[np.roll(has_victims, -offset)]
    known = _cached_failures(node_filter)
    if known is not None:
        is_known = known.refused_at[rotated] >= snapshot.generations.rows[rotated]
        if grouped:
            is_known &= ~np.isin(rotated, list(grouped))
        for number, count in Counter(known.kinds[rotated[is_known]].tolist()).items():
            reject(known.reasons[number], count)
        rotated = rotated[~is_known]
    found: list[Victims] = []
    without_violations = 0
    # NodePorts is the only rule about other pods that precedes the resource fit.
    resources_first = not node_filter.applies(Rule.PORTS)
    for row in rotated.tolist():
        nominated: Sequence[Pod] = ()
        if nominations is not None:
            nominated = nominations.at(snapshot.node(row).metadata.name, pod_info.priority, pod_info.key)
        result: Victims | tuple[NodeReason, ...] = ()
        if row in grouped:
            result = select_victim_units(node_filter, row, budgets, nominated)
        elif resources_first:
            result = find_shortages(node_filter, row)
        if not result:
            result = select_victims_quickly(node_filter, row, budgets, nominated)
        if not isinstance(result, Victims):
            reject(result)
            if known is not None and not nominated and row not in grouped:
                known.refuse(row, int(snapshot.generations.rows[row]), result)
        elif result.pods:
            found.append(result)
            without_violations += not result.pdb_violations
            if without_violations and len(found) >= enough:
                break
    if known is not None:
        snapshot.index(DryRunFailures).ignore_simulated()
    # Candidates without violations come first.
    found.sort(key=lambda victims: victims.pdb_violations > 0)
    return Candidates(tuple(found), tuple(counts.items()), rejected)


def _limits(settings: SchedulerProfile) -> CandidateLimits:
    return CandidateLimits(settings.min_candidate_nodes_percentage, settings.min_candidate_nodes_absolute)


def _cached_failures(node_filter: NodeFilter) -> SearchResults | None:
    """Return the cached failures of equal pods; None if the result depends on pods of other nodes."""
    if node_filter.applies(Rule.SPREAD, Rule.INTER_POD):
        return None
    return node_filter.snapshot.index(DryRunFailures).results_for(pod_signature(node_filter.pod_info))


def find_shortages(node_filter: NodeFilter, row: int) -> tuple[NodeReason, ...]:
    """Return the resources that are short even without all lower-priority pods.

    An empty result does not mean that the pod fits: claim pools and all other rules need a dry run.
    """
    pod_info, ledger = node_filter.pod_info, node_filter.snapshot.ledger(row)
    if not node_filter.passes_static(row) or node_filter.checked_requests is None or ledger.has_placeholders:
        return ()
    checked = node_filter.checked_requests
    left = {name: ledger.requested.get(name, 0) for name in checked}
    pods = len(ledger)
    for entry in ledger.entries.values():
        if entry.pod.priority < pod_info.priority:
            if entry.holds:
                return ()
            pods -= 1
            for name in left:
                left[name] -= entry.units.get(name, 0)
    snapshot = node_filter.snapshot
    skip = unchecked_resources(pod_info, snapshot.node(row), delegated_resources(pod_info, snapshot))
    return tuple(map(shortage_reason, find_request_shortages(checked, ledger.allocatable, left, pods, skip)))
