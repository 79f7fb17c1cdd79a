"""`schedule_all`: scheduling in memory with the scheduler's own cycle.

Pods are taken in queue order: higher priority first, then the longest pending. A placement is recorded at
once, so that the next pod sees it. Preempted pods are evicted and queued again if a controller recreates
them. Unschedulable pods are retried only after an event that may help them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import GangMessage, group_key
from plimsoll.scheduler.gang.preemption import GroupPreemption, plan_group_preemption
from plimsoll.scheduler.gang.search import STEPS
from plimsoll.scheduler.preemption import Nominations, Preemption, plan_preemption
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.group_members import GroupKey
from plimsoll.scheduler.unschedulable_cache import pod_signature
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.pending_cause import PendingCauses
from plimsoll.tools.pod_groups import attempt_group, pending_members, summarize_group
from plimsoll.tools.pod_schedulers import format_refusal, is_refused_by_kube, recorded_message, rules_of
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.outcome import (
    EvictionReason,
    Name,
    PendingPod,
    ScheduledPod,
    WhatifOutcome,
)

#: Pods between two progress reports.
_PROGRESS_PODS = 100


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
        self._not_preempting: dict[bytes, int] = {}
        self._first_evicted = len(cluster.evicted)
        self._causes = PendingCauses(cluster.cluster_state.snapshot)
        self._groups: set[GroupKey] = set()  # groups attempted in this pass
        self._lowest = 0
        self._has_evicted = False
        self._done = 0

    def run(self, pending: Sequence[Pod]) -> WhatifOutcome:
        """Decide these pods, which are pending."""
        cluster = self._cluster
        self._lowest = cluster.lowest_priority()
        for pod in pending:
            self._nominations.update(pod)
        while pending:
            self._heap = [(cluster.order(pod), pod) for pod in pending]
            heapify(self._heap)
            self._has_evicted, before = False, len(self._placed)
            self._groups.clear()
            while self._heap:
                self._attempt(heappop(self._heap)[1])
            has_placed = len(self._placed) > before
            pending = [
                pod
                for pod, result in self._pending.values()
                if self._has_evicted
                or (has_placed and depends_on_others(pod) and isinstance(result.cause, FitError))
            ]
        return WhatifOutcome(
            tuple(self._placed.values()),
            tuple(pending for _, pending in self._pending.values()),
            tuple(cluster.evicted[self._first_evicted :]),
        )

    def _attempt(self, pod: Pod) -> None:
        self._done += 1
        if self._done % _PROGRESS_PODS == 0:
            self._tick("scheduling pods", self._done, 0)
        name = pod.metadata.key
        group = group_key(pod, self._cluster.cluster_state.gates)
        if group is not None and not pod.spec.scheduling_gates:
            if group not in self._groups:
                self._groups.add(group)
                self._attempt_group(group)
            return
        self._pending.pop(name, None)
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            text = f"scheduling gates: {gates}"
            self._pending[name] = (pod, PendingPod(name, text, gates))
            return
        outcome = self._decide(pod)
        if isinstance(outcome, FitError) and self._preempt_pods(outcome):
            outcome = self._decide(pod)
        if isinstance(outcome, Placement):
            self._bind(outcome)
        else:
            self._refuse(pod, outcome)

    def _bind(self, placement: Placement) -> None:
        """Bind a pod and record what it is charged."""
        pod = placement.pod_info.stored
        name, snapshot = pod.metadata.key, self._cluster.cluster_state.snapshot
        before = dict(snapshot.ledger(placement.row).charged())
        self._cluster.bind(placement)
        self._nominations.drop(pod_key(pod))
        charges = {
            resource: units - before.get(resource, 0)
            for resource, units in snapshot.ledger(placement.row).charged().items()
            if units != before.get(resource, 0)
        }
        self._pending.pop(name, None)
        self._placed[name] = ScheduledPod(name, placement.node, placement.devices, charges, placement)

    def _refuse(self, pod: Pod, outcome: FitError | NodeReason, why: str = "") -> None:
        """Record why a pod is not scheduled."""
        text = why or format_refusal(outcome)
        name = pod.metadata.key
        refusal = self._cluster.claim_refusals.get(name)
        if refusal:
            text += f"; the API would refuse its creation: {refusal}"
        key = (why, refusal, is_refused_by_kube(outcome), self._causes.key(pod, outcome))
        recorded = recorded_message(self._cluster.cluster_state, pod)
        recorded = "" if recorded == text else recorded
        self._pending[name] = (pod, PendingPod(name, text, key, outcome, recorded))

    # -- pod groups

    def _attempt_group(self, key: GroupKey) -> None:
        """Schedule the pods of a group together, after preemption if that helps."""
        result = self._decide_group(key)
        members = [
            pod for pod in pending_members(self._cluster.cluster_state, key) if not pod.spec.scheduling_gates
        ]
        if isinstance(result, NodeReason):
            for pod in members:
                self._refuse(pod, result)
            return
        has_failed = result.reason is not None or result.error is not None
        if not result.is_scheduled and not has_failed and self._preempt_for_group(key, members):
            after = self._decide_group(key)
            result = result if isinstance(after, NodeReason) else after
        placed = result.placements if result.is_scheduled else ()
        group = self._cluster.cluster_state.snapshot.find(PodGroup, *key)
        if not placed and group is not None:
            self._cluster.release_group_claims(group)
        for placement in placed:
            self._bind(placement)
        keys = {placement.pod_info.key for placement in placed}
        text = "" if result.is_scheduled else summarize_group(key, result)
        waiting = NodeReason.unresolvable(Rule.GANG, GangMessage.WAITING)
        for pod in members:
            if pod_key(pod) not in keys:
                self._refuse(pod, result.failures.get(pod_key(pod), result.reason or waiting), text)

    def _decide_group(self, key: GroupKey, steps: int = STEPS) -> GroupResult | NodeReason:
        cluster = self._cluster
        nominations = self._nominations if len(self._nominations) else None
        return attempt_group(
            cluster.cluster_state, key, cluster.settings, cluster.changes.new_id, nominations, steps
        )

    def _preempt_for_group(self, key: GroupKey, members: Sequence[Pod]) -> bool:
        """Preempt pods for a group of higher priority; return whether any were evicted."""
        snapshot = self._cluster.cluster_state.snapshot
        group = snapshot.find(PodGroup, *key)
        settings = self._cluster.settings.for_pod(members[0])
        if not self._preempt or group is None or not settings.preemption:
            return False
        if not settings.frees_devices and any(map(uses_claims, members)):
            return False

        def schedule(steps: int) -> GroupResult:
            result = self._decide_group(key, steps)
            assert isinstance(result, GroupResult), "the group was attempted before"
            return result

        plan = plan_group_preemption(group, members, snapshot, schedule, snapshot.all(PodDisruptionBudget))
        if not isinstance(plan, GroupPreemption):
            return False
        self._evict(plan.victims, group.metadata.full_name)
        return True

    def _evict(self, victims: Iterable[Pod], preemptor: str) -> None:
        """Evict pods, and queue those that a controller recreates."""
        cluster = self._cluster
        for victim in victims:
            self._placed.pop(victim.metadata.key, None)
            recreated = cluster.evict(victim, EvictionReason.PREEMPTED, preemptor)
            if recreated is not None:
                recreated = cluster.cluster_state.pod(recreated.metadata.name, recreated.metadata.namespace)
                heappush(self._heap, (cluster.order(recreated), recreated))
        self._has_evicted = True

    # -- single pods

    def _decide(self, pod: Pod) -> Placement | FitError | NodeReason:
        return self._cluster.schedule_pod(pod, self._nominations if len(self._nominations) else None)

    def _preempt_pods(self, fit_error: FitError) -> bool:
        """Preempt pods for one of higher priority; return whether any were evicted."""
        cluster, pod_info = self._cluster, fit_error.pod_info
        if not self._preempt or pod_info.priority <= self._lowest:
            return False
        snapshot = cluster.cluster_state.snapshot
        signature = pod_signature(pod_info)
        if self._not_preempting.get(signature) == snapshot.generations.last:
            return False
        budgets = snapshot.all(PodDisruptionBudget)
        plan = plan_preemption(
            fit_error,
            snapshot,
            rules_of(cluster.settings.for_pod(pod_info.pod))[is_refused_by_kube(fit_error)],
            budgets,
            cluster.changes.new_id,
            self._nominations,
        )
        if not isinstance(plan, Preemption):
            self._not_preempting[signature] = snapshot.generations.last
            return False
        self._evict(plan.victims, pod_info.pod.metadata.full_name)
        for other in plan.lower_nominated:
            self._nominations.drop(pod_key(other))
        return True


def schedule_all(
    cluster: MemoryCluster,
    *,
    preempt: bool = True,
    tick: ProgressCallback = no_progress,
    pending: Sequence[Pod] | None = None,
) -> WhatifOutcome:
    """Schedule every pending pod as far as resources allow; `pending` are these pods, if known."""
    pods = cluster.cluster_state.pending if pending is None else pending
    return SchedulingRound(cluster, preempt=preempt, tick=tick).run(pods)


def depends_on_others(pod: Pod) -> bool:
    """Return whether another scheduled pod could make this one schedulable."""
    affinity = pod.spec.affinity
    together = affinity is not None and affinity.pod_affinity is not None
    return together or bool(pod.spec.topology_spread_constraints)
