"""`schedule_all`: scheduling in memory with the scheduler's own cycle.

Pods are taken in queue order: higher priority first, then the longest pending. A placement is recorded at
once, so that the next pod sees it. Preempted pods are evicted and queued again if a controller recreates
them. Unschedulable pods are retried only after an event that may help them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.preemption import Nominations, Preemption, plan_preemption
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.unschedulable_cache import pod_signature
from plimsoll.tools.cluster_state.files import ProgressCallback, no_progress
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.outcome import (
    EvictionReason,
    Name,
    PendingPod,
    ScheduledPod,
    WhatifOutcome,
    full_name,
    name_of,
)

#: Pods between two words about progress.
_PACE = 100


class SchedulingRound:
    """One pass over the pending pods."""

    def __init__(
        self, cluster: MemoryCluster, *, preempt: bool = True, tick: ProgressCallback = no_progress
    ) -> None:
        self._cluster = cluster
        self._preempt = preempt
        self._tick = tick
        self._placed: dict[Name, ScheduledPod] = {}
        self._pending: dict[Name, tuple[Pod, PendingPod]] = {}
        self._nominations = Nominations()
        self._heap: list[tuple[tuple[int, int, str, str, str], Pod]] = []
        #: Signatures of pods for which preemption failed, with the snapshot generation.
        self._stuck: dict[bytes, int] = {}
        self._first_evicted = len(cluster.evicted)
        self._lowest = 0
        self._made_room = False
        self._done = 0

    def run(self) -> WhatifOutcome:
        """Decide every pending pod."""
        cluster = self._cluster
        waiting = cluster.cluster_state.pending
        self._lowest = min((pod.spec.priority or 0 for pod in cluster.bound()), default=0)
        for pod in waiting:
            self._nominations.update(pod)
        while waiting:
            self._heap = [(cluster.order(pod), pod) for pod in waiting]
            heapify(self._heap)
            self._made_room, before = False, len(self._placed)
            while self._heap:
                self._attempt(heappop(self._heap)[1])
            came = len(self._placed) > before
            waiting = [
                pod
                for pod, pending in self._pending.values()
                if self._made_room
                or (came and depends_on_others(pod) and isinstance(pending.cause, FitError))
            ]
        return WhatifOutcome(
            tuple(self._placed.values()),
            tuple(pending for _, pending in self._pending.values()),
            tuple(cluster.evicted[self._first_evicted :]),
        )

    def _attempt(self, pod: Pod) -> None:
        self._done += 1
        if self._done % _PACE == 0:
            self._tick("scheduling pods", self._done, 0)
        name = name_of(pod)
        self._pending.pop(name, None)
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            self._pending[name] = (pod, PendingPod(name, f"scheduling gates: {gates}"))
            return
        outcome = self._decide(pod)
        if isinstance(outcome, FitError) and self._make_room(outcome):
            outcome = self._decide(pod)
        if isinstance(outcome, Placement):
            snapshot = self._cluster.cluster_state.snapshot
            booked = dict(snapshot.ledger(outcome.row).requested)
            self._cluster.place(outcome)
            self._nominations.drop(pod_key(pod))
            charges = {
                resource: units - booked.get(resource, 0)
                for resource, units in snapshot.ledger(outcome.row).requested.items()
                if units != booked.get(resource, 0)
            }
            self._placed[name] = ScheduledPod(name, outcome.node, outcome.devices, charges, outcome)
        elif isinstance(outcome, FitError):
            self._pending[name] = (pod, PendingPod(name, render_fit_error(outcome), outcome))
        else:
            self._pending[name] = (pod, PendingPod(name, render(outcome), outcome))

    def _decide(self, pod: Pod) -> Placement | FitError | NodeReason:
        return self._cluster.schedule_pod(pod, self._nominations if len(self._nominations) else None)

    def _make_room(self, unplaced: FitError) -> bool:
        """Preempt pods for one of higher priority; return whether any were evicted."""
        cluster, task = self._cluster, unplaced.pod_info
        if not self._preempt or task.priority <= self._lowest:
            return False
        snapshot = cluster.cluster_state.snapshot
        like = pod_signature(task)
        if self._stuck.get(like) == snapshot.generation:
            return False
        budgets = snapshot.all(PodDisruptionBudget)
        plan = plan_preemption(
            unplaced, snapshot, cluster.settings, budgets, cluster.changes.new_id, self._nominations
        )
        if not isinstance(plan, Preemption):
            self._stuck[like] = snapshot.generation
            return False
        for victim in plan.victims:
            self._placed.pop(name_of(victim), None)
            again = cluster.evict(victim, EvictionReason.PREEMPTED, full_name(name_of(task.pod)))
            if again is not None:
                again = cluster.cluster_state.pod(again.metadata.name, again.metadata.namespace)
                heappush(self._heap, (cluster.order(again), again))
        for other in plan.lower_nominated:
            self._nominations.drop(pod_key(other))
        self._made_room = True
        return True


def schedule_all(
    cluster: MemoryCluster, *, preempt: bool = True, tick: ProgressCallback = no_progress
) -> WhatifOutcome:
    """Schedule every pending pod as far as resources allow."""
    return SchedulingRound(cluster, preempt=preempt, tick=tick).run()


def depends_on_others(pod: Pod) -> bool:
    """Return whether another scheduled pod could make this one schedulable."""
    affinity = pod.spec.affinity
    together = affinity is not None and affinity.pod_affinity is not None
    return together or bool(pod.spec.topology_spread_constraints)
