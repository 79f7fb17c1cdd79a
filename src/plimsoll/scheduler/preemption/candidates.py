"""On which nodes pods could go to make room, and who.

Owns the walk over the nodes that a pod would fit on if other pods were gone: where it begins, when enough has
been seen (upstream's limits), and the quick answers that spare most nodes a dry run. `Priorities` knows the
lowest priority on every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.api.quantity import INT64_MAX
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.scheduler.devices import SearchCache, SearchResults
from plimsoll.scheduler.filters.node_resources import delegated_resources, shortage_reason
from plimsoll.scheduler.preemption.budgets import Budgets
from plimsoll.scheduler.preemption.importance import priority_of
from plimsoll.scheduler.preemption.node_filter import Examination
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.preemption.victims import NO_VICTIMS, Victims, select_victims_quickly
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.unschedulable_cache import pod_signature


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """How many nodes with victims are enough to choose from: a share of all, but at least so many."""

    percentage: int = 10
    absolute: int = 100

    def count(self, rows: int) -> int:
        return min(rows, max(rows * self.percentage // 100, self.absolute))


class Refusals(SearchCache):
    """Where dry runs failed, by pod and place, until something is given back there.

    That a pod does not fit although all pods below it are gone stays true whoever comes, with one exception:
    one that comes with a claim that has devices already can take them along when it goes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._joined: set[int] = set()

    def pod_added(self, row: int, pod: Pod) -> None:
        if pod.spec.resource_claims:
            self._joined.add(row)

    def results_for(self, key: bytes) -> SearchResults:
        for row in self._joined:
            self.forget(row)
        self._joined.clear()
        return super().results_for(key)

    def settle(self) -> None:
        """Those who came since it was last asked were there only for the sake of argument."""
        self._joined.clear()

    def object_set(self, new: Any, old: Any) -> None:
        super().object_set(new, old)
        if isinstance(new, ResourceClaim) and isinstance(old, ResourceClaim):
            # One consumer less of a shared claim: lifting the others may free its devices now.
            before = {consumer.uid for consumer in old.status.reserved_for}
            after = {consumer.uid for consumer in new.status.reserved_for}
            if after and before - after:
                self.clear()


class Priorities(SnapshotIndex):
    """The lowest priority of a pod, place by place; where there are no pods, it is above all others."""

    def __init__(self) -> None:
        self.lowest: Column = np.zeros(0, dtype=np.int64)
        self._counts: dict[int, Counter[int]] = {}

    def resized(self, size: int) -> None:
        before, self.lowest = self.lowest, np.full(size, INT64_MAX, dtype=np.int64)
        self.lowest[: len(before)] = before

    def pod_added(self, row: int, pod: Pod) -> None:
        priority = priority_of(pod)
        self._counts.setdefault(row, Counter())[priority] += 1
        if priority < self.lowest[row]:
            self.lowest[row] = priority

    def pod_removed(self, row: int, pod: Pod) -> None:
        priority, counts = priority_of(pod), self._counts[row]
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
    """The nodes that were found, in the order they were looked at, and why others are none."""

    found: tuple[Victims, ...]
    reasons: tuple[tuple[NodeReason, int], ...]
    seen: int  #: how many nodes have such a reason


def find_candidates(
    examination: Examination,
    rows: Mask,
    budgets: Budgets,
    nominations: Nominations | None = None,
    offset: int = 0,
    limits: CandidateLimits | None = None,
) -> Candidates:
    """Look for victims on these places, from the one at `offset` on and around."""
    pod_info, snapshot = examination.pod_info, examination.snapshot
    potential = np.flatnonzero(rows & snapshot.alive)
    enough = (limits or CandidateLimits()).count(len(potential))
    inhabited = snapshot.index(Priorities).lowest[potential] < pod_info.priority
    tally = _Tally()
    deserted = potential[~inhabited]
    if examination.devices is not None:
        # Where devices are short and nobody could hand any over, no dry run is due: preemption is no help.
        deserted = deserted[~examination.devices.short_of_devices()[deserted]]
    if len(deserted):
        tally.add((NO_VICTIMS,), len(deserted))
    turned = np.roll(potential, -offset)[np.roll(inhabited, -offset)]
    known = _known_refusals(examination)
    if known is not None:
        refused = turned[known.refused_at[turned] >= snapshot.node_generations[turned]]
        for number, count in Counter(known.kinds[refused].tolist()).items():
            tally.add(known.reasons[number], count)
        turned = turned[known.refused_at[turned] < snapshot.node_generations[turned]]
    found: list[Victims] = []
    harmless = 0
    books_first = not examination.concerns(Rule.PORTS)  # no rule about other pods comes before the books
    for row in turned.tolist():
        promised: Sequence[Pod] = ()
        if nominations is not None:
            promised = nominations.at(snapshot.node(row).metadata.name, pod_info.priority, pod_info.key)
        answer: Victims | tuple[NodeReason, ...] = find_shortages(examination, row) if books_first else ()
        if not answer:
            answer = select_victims_quickly(examination, row, budgets, promised)
        if not isinstance(answer, Victims):
            tally.add(answer)
            if known is not None and not promised:
                known.refuse(row, int(snapshot.node_generations[row]), answer)
        elif answer.pods:
            found.append(answer)
            harmless += not answer.broken
            if harmless and len(found) >= enough:
                break
    if known is not None:
        snapshot.index(Refusals).settle()
    # Nodes where budgets are kept come first.
    found.sort(key=lambda victims: victims.broken > 0)
    return Candidates(tuple(found), tuple(tally.counts.values()), tally.nodes)


def _known_refusals(examination: Examination) -> SearchResults | None:
    """What is remembered of pods like this one; None if pods elsewhere have a say in where it fits."""
    if examination.concerns(Rule.SPREAD, Rule.INTER_POD):
        return None
    return examination.snapshot.index(Refusals).results_for(pod_signature(examination.pod_info))


def find_shortages(examination: Examination, row: int) -> tuple[NodeReason, ...]:
    """What a node lacks by its books even without all pods below the one to come.

    Empty does not mean that the pod fits: pools and all rules but the books are left to a dry run.
    """
    pod_info, ledger = examination.pod_info, examination.snapshot.ledger(row)
    if not examination.stands(row):
        return ()
    left = {name: ledger.requested.get(name, 0) for name in pod_info.requests}
    pods = len(ledger)
    for entry in ledger.entries.values():
        if priority_of(entry.pod) < pod_info.priority:
            if entry.holds:
                return ()
            pods -= 1
            for name in left:
                left[name] -= entry.units.get(name, 0)
    skip = delegated_resources(pod_info, examination.snapshot)
    return tuple(
        map(shortage_reason, find_request_shortages(pod_info.requests, ledger.allocatable, left, pods, skip))
    )


class _Tally:
    """Reasons, alike ones counted together, and the nodes they are about."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[NodeReason, int]] = {}
        self.nodes = 0

    def add(self, reasons: Sequence[NodeReason], nodes: int = 1) -> None:
        self.nodes += nodes
        for reason in reasons:
            text = render(reason)
            self.counts[text] = (reason, self.counts.get(text, (reason, 0))[1] + nodes)
