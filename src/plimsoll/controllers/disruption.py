"""Disruption controller: the number of pods that a PodDisruptionBudget allows to evict.

As in kube-controller-manager: healthy pods are counted against the wanted number, which for percentages and
`maxUnavailable` is that of the workloads of the pods. Pods whose eviction was granted do not count as
healthy until they are gone, or two minutes have passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import SelectorProblem, compile_label_selector
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.controllers.workload_views import DisruptionBudgetView, WorkloadCondition, WorkloadView
from plimsoll.controllers.workloads import conditions
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.controllers.workloads.pod_states import is_ready
from plimsoll.controllers.workloads.templates import patch_status, resolve_percent

COMPONENT = "controllermanager"
_ALLOWED = "DisruptionAllowed"
#: Seconds in which a granted eviction must have deleted its pod.
GRANT_SECONDS = 120.0
#: Seconds until a budget whose pods have an unknown controller is computed again.
RETRY_SECONDS = 30.0


def plan_budget(
    budget: DisruptionBudgetView, pods: Sequence[Pod], sizes: Mapping[str, int], now: float
) -> ActionPlan:
    """Plan the status of a budget from the pods that it selects.

    `sizes`: UID of a pod's controller -> wanted pods of the workload, for all that have a size.
    """
    spec = budget.spec
    actions: list[Action] = []
    counted = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    owners = {pod.metadata.name: controller_of(pod.metadata) for pod in counted}
    managed = {owner.uid: sizes.get(owner.uid) for owner in owners.values() if owner is not None}
    unmanaged = [name for name, owner in owners.items() if owner is None]
    total = sum(size for size in managed.values() if size is not None)
    is_relative = spec.max_unavailable is not None or isinstance(spec.min_available, str)
    for name, owner in owners.items():
        if is_relative and owner is not None and managed[owner.uid] is None:
            return _plan_failure(budget, f'found no controllers for pod "{name}"', now)
    if spec.max_unavailable is not None:
        expected = total
        desired = max(0, expected - resolve_percent(spec.max_unavailable, expected, round_up=True))
    elif isinstance(spec.min_available, str):
        expected = total
        desired = resolve_percent(spec.min_available, expected, round_up=True)
    else:
        expected, desired = len(counted), spec.min_available or 0
        unmanaged = []
    if unmanaged:
        names = ", ".join(sorted(unmanaged)[:10])
        text = f"Pods without a controller are not in the number of expected pods of this budget: {names}"
        regarding = ObjectReference.to(budget.metadata, "PodDisruptionBudget", "policy/v1")
        actions.append(EventRecord(regarding, "UnmanagedPods", text, COMPONENT, WARNING))
    granted = _find_granted(budget, counted, now)
    healthy = sum(
        is_ready(pod) and pod.metadata.deletion_timestamp is None and pod.metadata.name not in granted
        for pod in counted
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status = replace(
        budget.status,
        observed_generation=budget.metadata.generation,
        disrupted_pods=granted,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disruptions_allowed=allowed,
        conditions=conditions.updated(budget.status.conditions, _condition(budget, allowed > 0, now)),
    )
    patch = patch_status(POD_DISRUPTION_BUDGETS, budget.metadata, budget.status, status)
    if patch is not None:
        actions.append(patch)
    times = [parse_time(time) or now for time in granted.values()]
    wait = min((max(0.0, time + GRANT_SECONDS - now) + 1.0 for time in times), default=None)
    return ActionPlan(tuple(actions), requeue_after=wait)


def _plan_failure(budget: DisruptionBudgetView, problem: str, now: float) -> ActionPlan:
    """Plan for a budget whose number of pods cannot be known: it allows no evictions."""
    regarding = ObjectReference.to(budget.metadata, "PodDisruptionBudget", "policy/v1")
    text = f"Failed to calculate the number of expected pods: {problem}"
    actions: list[Action] = [
        EventRecord(regarding, "CalculateExpectedPodCountFailed", text, COMPONENT, WARNING)
    ]
    condition = replace(_condition(budget, False, now), reason="SyncFailed", message=problem)
    found = conditions.updated(budget.status.conditions, condition)
    status = replace(budget.status, disruptions_allowed=0, conditions=found)
    patch = patch_status(POD_DISRUPTION_BUDGETS, budget.metadata, budget.status, status)
    if patch is not None:
        actions.append(patch)
    return ActionPlan(tuple(actions), requeue_after=RETRY_SECONDS)


def _find_granted(budget: DisruptionBudgetView, pods: Sequence[Pod], now: float) -> dict[str, str | None]:
    """Return the granted evictions whose pods are not deleted yet and that are not too old."""
    alive = {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None}
    return {
        name: time
        for name, time in budget.status.disrupted_pods.items()
        if name in alive and (parse_time(time) or 0.0) + GRANT_SECONDS > now
    }


def _condition(budget: DisruptionBudgetView, is_allowed: bool, now: float) -> WorkloadCondition:
    return WorkloadCondition(
        type=_ALLOWED,
        status="True" if is_allowed else "False",
        reason="SufficientPods" if is_allowed else "InsufficientPods",
        observed_generation=budget.metadata.generation,
        last_transition_time=format_time(now),
    )


class DisruptionController:
    """Controller around `plan_budget`."""

    name = "disruption-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._budgets: Informer[DisruptionBudgetView] = context.informers.get(POD_DISRUPTION_BUDGETS)
        self._index: ObjectIndex[DisruptionBudgetView, str] = ObjectIndex(
            lambda budget: (budget.metadata.namespace,)
        )
        self._pods: ObjectIndex[Pod, str] = ObjectIndex(lambda pod: (pod.metadata.namespace,))
        self._workloads: dict[str, Informer[WorkloadView]] = {
            endpoint.kind: context.informers.get(endpoint)
            for endpoint in (REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, DEPLOYMENTS)
        }
        self._budgets.add_handler(self._index)
        self._budgets.add_handler(CallbackHandler(self._on_budget))
        pods = context.informers.get(PODS)
        pods.add_handler(self._pods)
        pods.add_handler(CallbackHandler(self._on_pod))
        for informer in self._workloads.values():
            informer.add_handler(CallbackHandler(self._on_workload))

    def _on_budget(self, old: DisruptionBudgetView | None, new: DisruptionBudgetView | None) -> None:
        if new is not None:
            self.queue.add(object_name(new.metadata))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        for budget in self._index.find(pod.metadata.namespace):
            self.queue.add(object_name(budget.metadata))

    def _on_workload(self, old: WorkloadView | None, new: WorkloadView | None) -> None:
        workload = new or old
        assert workload is not None
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            for budget in self._index.find(workload.metadata.namespace):
                self.queue.add(object_name(budget.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        budget = self._budgets.get(*key)
        if budget is None or budget.metadata.deletion_timestamp is not None:
            return EMPTY_PLAN
        selector = compile_label_selector(budget.spec.selector)
        if isinstance(selector, SelectorProblem):
            return EMPTY_PLAN  # refused by current API servers
        pods = [pod for pod in self._pods.find(key.namespace) if selector.matches(pod.metadata.labels)]
        plan = plan_budget(budget, pods, self._find_sizes(pods), self._context.clock.now())
        await self._context.executor.execute(plan.actions)
        return plan

    def _find_sizes(self, pods: Sequence[Pod]) -> dict[str, int]:
        """Return the size of each controller's workload; pods of a Deployment count once for all of it."""
        sizes: dict[str, int] = {}
        counted: set[str] = set()
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid in sizes:
                continue
            workload = self._find(pod.metadata.namespace, owner.kind, owner.name, owner.uid)
            if workload is None:
                continue
            parent = controller_of(workload.metadata)
            above = None
            if parent is not None:
                above = self._find(pod.metadata.namespace, parent.kind, parent.name, parent.uid)
            top = above or workload
            size = 0 if top.metadata.uid in counted else _size_of(top)
            counted.add(top.metadata.uid)
            sizes[owner.uid] = size
        return sizes

    def _find(self, namespace: str, kind: str, name: str, uid: str) -> WorkloadView | None:
        informer = self._workloads.get(kind)
        found = None if informer is None else informer.get(namespace, name)
        return found if found is not None and found.metadata.uid == uid else None


def _size_of(workload: WorkloadView) -> int:
    replicas: int | None = getattr(workload, "spec").replicas  # noqa: B009 - all of these kinds have it
    return 1 if replicas is None else replicas
