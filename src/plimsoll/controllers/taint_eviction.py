"""Taint eviction controller: evicts pods that do not tolerate the NoExecute taints of their node.

A pod without a matching toleration is evicted at once; one that tolerates a taint for some seconds is evicted
when they are over.

DIFF: the seconds count from when the taint was added (test_seconds_count_from_when_the_taint_was_added);
upstream counts from when it notices, and so begins anew after every restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, Taint
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import parse_time
from plimsoll.api.tolerations import tolerates
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, DeleteAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import object_name, plan_disruption_condition
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.errors import ApiError

COMPONENT = "taint-eviction-controller"
EVICTION = "TaintManagerEviction"
NO_EXECUTE = "NoExecute"


def eviction_time(pod: Pod, taints: Sequence[Taint], decided_at: float) -> float | None:
    """Return when a pod must be evicted, or None. `decided_at` dates taints without `timeAdded`."""
    due: list[float] = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        toleration = next((item for item in pod.spec.tolerations if tolerates(item, taint)), None)
        if toleration is None:
            return 0.0
        if toleration.toleration_seconds is not None:
            since = parse_time(taint.time_added)
            due.append((decided_at if since is None else since) + max(0, toleration.toleration_seconds))
    return min(due, default=None)


def plan_eviction(pod: Pod, now: float) -> ActionPlan:
    """Plan the eviction of a pod: event, DisruptionTarget condition, deletion; `pod` is the live object."""
    if pod.metadata.deletion_timestamp is not None:
        return EMPTY_PLAN
    metadata = pod.metadata
    actions: list[Action] = [_report(pod, "Marking for deletion Pod")]
    mark = plan_disruption_condition(
        pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now
    )
    if mark is not None:
        actions.append(mark)
    actions.append(DeleteAction(PODS, metadata.name, metadata.namespace, uid=metadata.uid))
    return ActionPlan(tuple(actions))


def cancellation_event(pod: Pod) -> EventRecord:
    """Build the event for an eviction that was cancelled."""
    return _report(pod, "Cancelling deletion of Pod")


def _report(pod: Pod, what: str) -> EventRecord:
    regarding = ObjectReference.to(pod.metadata, "Pod")
    return EventRecord(regarding, EVICTION, f"{what} {pod.metadata.full_name}", COMPONENT)


class PodKey(NamedTuple):
    """Key of a pod with its UID: never matches a later pod of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class TaintEvictionController:
    """Controller of evictions by node taints."""

    name = "taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[PodKey] = WorkQueue(context.clock)
        self._nodes = context.informers.get(NODES)
        self._pods = context.informers.get(PODS)
        self._pods_by_node: ObjectIndex[Pod, str] = ObjectIndex(_node_of)
        self._planned: dict[PodKey, float] = {}  # pods to evict -> time of the decision
        self._pods.add_handler(self._pods_by_node)
        self._pods.add_handler(CallbackHandler(self._on_pod))
        self._nodes.add_handler(CallbackHandler(self._on_node))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and (old is None or old.spec.taints != new.spec.taints):
            for pod in self._pods_by_node.find(new.metadata.name):
                self.queue.add(_pod_key(pod))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._planned.pop(_pod_key(old), None)
        elif new.spec.node_name and (
            old is None
            or old.spec.node_name != new.spec.node_name
            or old.spec.tolerations != new.spec.tolerations
            or is_kept(old.metadata) != is_kept(new.metadata)
        ):
            self.queue.add(_pod_key(new))

    async def reconcile(self, key: PodKey) -> ActionPlan:
        pod: Pod | None = self._pods.get(key.namespace, key.name)
        if pod is None or pod.metadata.uid != key.uid or pod.metadata.deletion_timestamp is not None:
            return EMPTY_PLAN
        node: Node | None = self._nodes.get("", pod.spec.node_name)
        now = self._context.clock.now()
        decided_at = self._planned.get(key, now)
        due = (
            None
            if node is None or is_kept(pod.metadata)
            else eviction_time(pod, node.spec.taints, decided_at)
        )
        if due is None:
            if self._planned.pop(key, None) is not None:
                await self._context.recorder.record(cancellation_event(pod))
            return EMPTY_PLAN
        self._planned[key] = decided_at
        if due > now:
            return ActionPlan(requeue_after=due - now)
        await self._evict(key)
        return EMPTY_PLAN

    async def _evict(self, key: PodKey) -> None:
        try:
            raw = await self._context.client.get_raw(PODS, key.name, key.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        pod = codec.decode(raw, Pod)
        if pod.metadata.uid == key.uid:
            plan = plan_eviction(pod, self._context.clock.now())
            await self._context.executor.execute(plan.actions)


def _node_of(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def _pod_key(pod: Pod) -> PodKey:
    return PodKey(*object_name(pod.metadata), pod.metadata.uid)
