"""Pod garbage collector: deletes orphaned, unscheduled terminating and surplus terminated pods.

As in kube-controller-manager: pods of nodes that no longer exist, pods deleted before they were scheduled,
terminating pods on nodes that are out of service, and the oldest terminated pods beyond a threshold are
deleted by force, marked as failed first. A node counts as gone only after a quarantine and after the API has
confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from plimsoll.api.core import Node, Pod
from plimsoll.api.kept import is_kept
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.controllers.actions import Action, ActionPlan, DeleteAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import (
    find_condition,
    is_finished,
    patch_status,
    plan_disruption_condition,
)
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.errors import ApiError

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
REASON = "DeletionByPodGC"
ORPHANED = "PodGC: node no longer exists"


def find_missing_nodes(pods: Iterable[Pod], nodes: Collection[str]) -> set[str]:
    """Return the nodes that pods name and that do not exist in the cache."""
    return {pod.spec.node_name for pod in pods if pod.spec.node_name} - set(nodes)


def plan_pod_garbage(
    pods: Sequence[Pod], nodes: Mapping[str, Node], gone: Collection[str], threshold: int, now: float
) -> list[tuple[Action, ...]]:
    """Plan the actions for each pod to delete; `gone` are the nodes that the API has confirmed as gone."""
    chosen: dict[str, tuple[Pod, bool]] = {}
    if threshold > 0:
        ended = sorted(filter(_is_terminated, pods), key=_eviction_order)
        for pod in ended[: max(0, len(ended) - threshold)]:
            chosen.setdefault(pod.metadata.uid, (pod, False))
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None and _is_out_of_service(nodes.get(pod.spec.node_name)):
            chosen.setdefault(pod.metadata.uid, (pod, False))
        elif pod.spec.node_name in gone:
            chosen.setdefault(pod.metadata.uid, (pod, True))
        elif pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
            chosen.setdefault(pod.metadata.uid, (pod, False))
    return [_delete_pod(pod, orphaned, now) for pod, orphaned in chosen.values()]


def _is_terminated(pod: Pod) -> bool:
    return pod.status.phase not in ("Pending", "Running", "Unknown")


def _eviction_order(pod: Pod) -> tuple[bool, str, str]:
    """Sort key: evicted pods first, then the oldest."""
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creation_timestamp or "", pod.metadata.name


def _is_out_of_service(node: Node | None) -> bool:
    if node is None or not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return False
    ready = find_condition(node.status.conditions, "Ready")
    return ready is None or ready.status != "True"


def _delete_pod(pod: Pod, orphaned: bool, now: float) -> tuple[Action, ...]:
    metadata = pod.metadata
    delete = DeleteAction(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace=0)
    if is_finished(pod):
        return (delete,)
    if orphaned:
        mark = plan_disruption_condition(pod, REASON, ORPHANED, now, phase="Failed")
        return (delete,) if mark is None else (mark, delete)
    status: dict[str, object] = {"phase": "Failed"}
    if metadata.generation:
        status["observedGeneration"] = metadata.generation
    return (patch_status(pod, status), delete)


_KEY = "all pods"
_CONCURRENCY = 16


class PodGCController:
    """Controller with one key, reconciled periodically."""

    name = "pod-garbage-collector-controller"
    workers = 1

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._pods = context.informers.get(PODS)
        self._nodes = context.informers.get(NODES)
        self._missing: dict[str, float] = {}  # node -> time it was first missing
        self.queue.add(_KEY)

    async def reconcile(self, key: str) -> ActionPlan:
        settings = self._context.settings
        clock = self._context.clock
        now = clock.monotonic()
        pods = [pod for pod in self._pods.items() if not is_kept(pod.metadata)]
        nodes = {node.metadata.name: node for node in self._nodes.items()}
        missing = find_missing_nodes(pods, nodes)
        self._missing = {name: self._missing.get(name, now) for name in missing}
        gone = set()
        for name, since in self._missing.items():
            if now - since >= settings.node_quarantine and await self._context.find_raw(NODES, name) is None:
                gone.add(name)
        plans = plan_pod_garbage(pods, nodes, gone, settings.finished_pods_kept, clock.now())
        limit = asyncio.Semaphore(_CONCURRENCY)
        failures: list[str] = []

        async def remove(actions: tuple[Action, ...]) -> None:
            async with limit:
                try:
                    await self._context.executor.execute(actions)
                except ApiError as error:
                    failures.append(str(error))

        await asyncio.gather(*map(remove, plans))
        if failures:
            return ActionPlan(error=f"{len(failures)} pods could not be deleted: {failures[0]}")
        return ActionPlan(requeue_after=settings.pod_garbage_period)
