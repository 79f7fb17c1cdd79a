"""ReplicaSet and ReplicationController: keep a number of pods of one template.

As in kube-controller-manager: surplus pods are chosen by `sort_for_deletion`, at most 500 pods are created or
deleted at a time, and the status counts the pods as they were before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import CompiledLabelSelector, SelectorProblem, compile_label_selector
from plimsoll.api.meta import LabelSelector
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import REPLICA_SETS, REPLICATION_CONTROLLERS, Endpoint
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.pod_utils import ObjectName
from plimsoll.controllers.workload_views import (
    ReplicaSetStatusView,
    ReplicaSetView,
    ReplicationControllerView,
    WorkloadCondition,
)
from plimsoll.controllers.workloads import conditions
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.controllers.workloads.pod_owner import PodOwnerController
from plimsoll.controllers.workloads.pod_states import (
    count_by_node,
    is_active,
    is_available,
    is_ready,
    is_terminating,
    next_available,
    sort_for_deletion,
)
from plimsoll.controllers.workloads.templates import create_pod, delete_pod, patch_status

#: Pods that are created or deleted in one pass.
BURST = 500
_FAILURE = "ReplicaFailure"


def plan_replicas(
    endpoint: Endpoint,
    owner: ReplicaSetView | ReplicationControllerView,
    pods: Iterable[Pod],
    neighbors: Mapping[str, int],
    now: float,
) -> tuple[CreateAction | DeleteAction, ...]:
    """Plan the creation of missing pods or the deletion of surplus ones.

    `neighbors`: number of active pods of related workloads on each node.
    """
    if owner.metadata.deletion_timestamp is not None:
        return ()
    active = [pod for pod in pods if is_active(pod)]
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    missing = min(wanted - len(active), BURST)
    if missing >= 0:
        return (create_pod(owner.metadata, endpoint, owner.spec.template),) * missing
    surplus = min(-missing, BURST)
    chosen = sort_for_deletion(active, neighbors, now)[:surplus] if surplus < len(active) else active
    return tuple(delete_pod(pod.metadata) for pod in chosen[:surplus])


def plan_status(
    endpoint: Endpoint,
    owner: ReplicaSetView | ReplicationControllerView,
    pods: Sequence[Pod],
    failure: tuple[str, str] | None,
    now: float,
) -> PatchAction | None:
    """Plan the status from the pods; `failure` is the reason and message of a failed write of pods."""
    spec, old = owner.spec, owner.status
    active = [pod for pod in pods if is_active(pod)]
    template = (spec.template or {}).get("metadata") or {}
    labels = (template.get("labels") or {}).items()
    found = old.conditions
    if failure is None:
        found = conditions.without(found, _FAILURE)
    elif conditions.find(found, _FAILURE) is None:
        reason, message = failure
        condition = WorkloadCondition(
            type=_FAILURE,
            status="True",
            reason=reason,
            message=message,
            last_transition_time=format_time(now),
        )
        found = conditions.updated(found, condition)
    new = ReplicaSetStatusView(
        replicas=len(active),
        fully_labeled_replicas=sum(labels <= pod.metadata.labels.items() for pod in active),
        ready_replicas=sum(map(is_ready, active)),
        available_replicas=sum(is_available(pod, spec.min_ready_seconds, now) for pod in active),
        terminating_replicas=sum(map(is_terminating, pods)) if endpoint == REPLICA_SETS else None,
        observed_generation=owner.metadata.generation,
        conditions=found,
    )
    return patch_status(endpoint, owner.metadata, old, new)


class ReplicaSetController(PodOwnerController[ReplicaSetView]):
    """Controller around the plans; `ReplicationControllerController` is the same for another kind."""

    name = "replicaset-controller"
    endpoint = REPLICA_SETS
    component = "replicaset-controller"

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        owner = self.find_owner(key)
        if owner is None:
            return EMPTY_PLAN
        selector = self.selector_of(owner)
        if isinstance(selector, SelectorProblem) or selector.everything:
            return EMPTY_PLAN  # refused by current API servers
        pods = await self.claim_pods(owner, selector)
        now = self._context.clock.now()
        actions = plan_replicas(self.endpoint, owner, pods, self._count_neighbors(owner), now)
        creates = [action for action in actions if isinstance(action, CreateAction)]
        deletes = [action for action in actions if isinstance(action, DeleteAction)]
        created = await self._pod_control.create(self.reference(owner), creates)
        deleted = await self._pod_control.delete(self.reference(owner), deletes)
        failure = None
        if created.error is not None:
            failure = ("FailedCreate", created.error.message)
        elif deleted.error is not None:
            failure = ("FailedDelete", deleted.error.message)
        status = plan_status(self.endpoint, owner, pods, failure, now)
        if status is not None:
            await self._context.executor.execute((status,))
        if failure is not None:
            return ActionPlan(error=failure[1])
        if len(actions) == BURST:
            self.queue.add(key)
        return ActionPlan(requeue_after=next_available(pods, owner.spec.min_ready_seconds, now))

    def _count_neighbors(self, owner: ReplicaSetView) -> dict[str, int]:
        """Count the active pods on each node of all ReplicaSets that have the same controller."""
        reference = controller_of(owner.metadata)
        related = [owner]
        if reference is not None:
            related = [
                other
                for other in self._owner_index.find(owner.metadata.namespace)
                if (theirs := controller_of(other.metadata)) is not None and theirs.uid == reference.uid
            ]
        uids = {other.metadata.uid for other in related}
        return count_by_node([pod for uid in uids for pod in self._index.find(uid) if is_active(pod)])


class ReplicationControllerController(ReplicaSetController):
    """Controller of ReplicationControllers."""

    name = "replicationcontroller-controller"
    endpoint = REPLICATION_CONTROLLERS
    component = "replication-controller"

    def compile_selector(self, owner: object) -> CompiledLabelSelector | SelectorProblem:
        assert isinstance(owner, ReplicationControllerView)
        return compile_label_selector(LabelSelector(match_labels=owner.spec.selector))
