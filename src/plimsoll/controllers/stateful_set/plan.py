"""Plan of a StatefulSet: the next pods to create, delete and update, and the status.

As in kube-controller-manager: with OrderedReady one pod at a time, upwards when growing, downwards when
shrinking and updating, each only when its predecessors are running and available; with Parallel, all pods
are created and deleted at once. A rolling update stops at the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.controllers.actions import CreateAction, DeleteAction
from plimsoll.controllers.pod_utils import is_finished
from plimsoll.controllers.stateful_set.identity import make_pod, ordinal_of
from plimsoll.controllers.workload_views import (
    ControllerRevisionView,
    StatefulSetStatusView,
    StatefulSetView,
)
from plimsoll.controllers.workloads.pod_states import is_available, is_ready
from plimsoll.controllers.workloads.revisions import REVISION_LABEL
from plimsoll.controllers.workloads.templates import delete_pod


@dataclass
class StatefulSetPlan:
    """Pods to create (by ordinal) and to delete, and the status."""

    status: StatefulSetStatusView
    creates: dict[int, CreateAction] = field(default_factory=dict)
    deletes: list[DeleteAction] = field(default_factory=list)
    condemned: frozenset[str] = frozenset()  #: names of the pods that are scaled away


def plan_stateful_set(
    owner: StatefulSetView,
    pods: Sequence[Pod],
    current: ControllerRevisionView,
    update: ControllerRevisionView,
    now: float,
) -> StatefulSetPlan:
    """Plan for a StatefulSet from its pods and revisions."""
    by_ordinal = {number: pod for pod in pods if (number := ordinal_of(owner, pod)) is not None}
    first, end = owner.start, owner.start + owner.replicas
    condemned = {number: pod for number, pod in by_ordinal.items() if not first <= number < end}
    plan = StatefulSetPlan(_count(owner, list(by_ordinal.values()), current, update, now))
    plan.condemned = frozenset(pod.metadata.name for pod in condemned.values())
    if owner.metadata.deletion_timestamp is None:
        _Steps(owner, by_ordinal, condemned, current, update, now, plan).run()
    plan.status = _complete(owner, plan.status, by_ordinal, update)
    return plan


@dataclass
class _Steps:
    owner: StatefulSetView
    pods: dict[int, Pod]
    condemned: dict[int, Pod]
    current: ControllerRevisionView
    update: ControllerRevisionView
    now: float
    plan: StatefulSetPlan

    @property
    def _is_ordered(self) -> bool:
        return self.owner.spec.pod_management_policy != "Parallel"

    @property
    def _wanted(self) -> range:
        return range(self.owner.start, self.owner.start + self.owner.replicas)

    def run(self) -> None:
        if self._fill() or self._shrink():
            return
        if self.owner.spec.update_strategy.type == "RollingUpdate":
            self._update()

    def _fill(self) -> bool:
        """Create missing pods; return whether to wait before anything else."""
        for ordinal in self._wanted:
            pod = self.pods.get(ordinal)
            if pod is None:
                self.plan.creates[ordinal] = make_pod(self.owner, self._revision(ordinal), ordinal)
            elif is_finished(pod):
                if pod.metadata.deletion_timestamp is None:
                    self.plan.deletes.append(delete_pod(pod.metadata))
            elif self._is_healthy(pod) and is_available(pod, self.owner.spec.min_ready_seconds, self.now):
                continue
            if self._is_ordered:
                return True
        return False

    def _revision(self, ordinal: int) -> ControllerRevisionView:
        """Return the revision for a new pod: below the partition the current one."""
        strategy = self.owner.spec.update_strategy
        if strategy.type != "RollingUpdate":
            return self.update
        rolling = strategy.rolling_update
        if rolling is None or rolling.partition is None:
            old = ordinal < self.owner.start + self.owner.status.current_replicas
        else:
            old = ordinal < self.owner.start + rolling.partition
        return self.current if old else self.update

    def _shrink(self) -> bool:
        """Delete pods beyond the wanted ones, the highest first; return whether to wait."""
        unhealthy = [number for number, pod in sorted(self.pods.items()) if not self._is_healthy(pod)]
        for ordinal in sorted(self.condemned, reverse=True):
            pod = self.condemned[ordinal]
            if pod.metadata.deletion_timestamp is None:
                # An unhealthy pod may go if no pod before it is unhealthy.
                is_blocked = not self._is_available(pod) and unhealthy[:1] != [ordinal]
                if self._is_ordered and is_blocked:
                    return True
                self.plan.deletes.append(delete_pod(pod.metadata))
            if self._is_ordered:
                return True
        return False

    def _update(self) -> None:
        """Delete the highest pod of an old revision; it is created again from the new one."""
        rolling = self.owner.spec.update_strategy.rolling_update
        lowest = 0 if rolling is None or rolling.partition is None else rolling.partition
        for ordinal in reversed(self._wanted[lowest:]):
            pod = self.pods.get(ordinal)
            if pod is None:
                return
            revision = pod.metadata.labels.get(REVISION_LABEL)
            if revision != self.update.metadata.name and pod.metadata.deletion_timestamp is None:
                self.plan.deletes.append(delete_pod(pod.metadata))
                return
            if not self._is_available(pod):
                return

    def _is_healthy(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is None and pod.status.phase == "Running" and is_ready(pod)

    def _is_available(self, pod: Pod) -> bool:
        return self._is_healthy(pod) and is_available(pod, self.owner.spec.min_ready_seconds, self.now)


def _count(
    owner: StatefulSetView,
    pods: list[Pod],
    current: ControllerRevisionView,
    update: ControllerRevisionView,
    now: float,
) -> StatefulSetStatusView:
    running = [pod for pod in pods if pod.status.phase == "Running" and is_ready(pod)]
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase]
    revisions = [pod.metadata.labels.get(REVISION_LABEL) for pod in alive]
    seconds = owner.spec.min_ready_seconds
    return replace(
        owner.status,
        observed_generation=owner.metadata.generation,
        replicas=sum(bool(pod.status.phase) for pod in pods),
        ready_replicas=len(running),
        available_replicas=sum(is_available(pod, seconds, now) for pod in running),
        current_replicas=revisions.count(current.metadata.name),
        updated_replicas=revisions.count(update.metadata.name),
        current_revision=current.metadata.name,
        update_revision=update.metadata.name,
    )


def _complete(
    owner: StatefulSetView,
    status: StatefulSetStatusView,
    pods: dict[int, Pod],
    update: ControllerRevisionView,
) -> StatefulSetStatusView:
    """Make the updated revision the current one when all pods have it and are ready."""
    is_done = (
        owner.spec.update_strategy.type == "RollingUpdate"
        and status.updated_replicas == status.replicas == status.ready_replicas
        and status.replicas == len(pods) == owner.replicas
    )
    if not is_done:
        return status
    return replace(status, current_revision=update.metadata.name, current_replicas=status.updated_replicas)
