"""Pods that nobody else will remove.

Owns which pods are deleted by force (upstream's pod garbage collector): those of nodes that are gone for
good, those that were deleted before they had a node, those that end on a node that is out of service, and
the oldest finished ones beyond a number that is kept. They are marked as failed first, so that nobody takes
them for running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from plimsoll.api.core import Node, Pod
from plimsoll.client.endpoints import PODS
from plimsoll.controllers.actions import Action, Delete
from plimsoll.controllers.plans.pods import find_condition, is_finished, mark_disrupted, patch_status

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
REASON = "DeletionByPodGC"
ORPHANED = "PodGC: node no longer exists"


def find_missing_nodes(pods: Iterable[Pod], nodes: Collection[str]) -> set[str]:
    """The nodes that pods name and that are not known."""
    return {pod.spec.node_name for pod in pods if pod.spec.node_name} - set(nodes)


def plan_pod_garbage(
    pods: Sequence[Pod], nodes: Mapping[str, Node], gone: Collection[str], kept: int, now: float
) -> list[tuple[Action, ...]]:
    """What to do about each pod that is to go; `gone` are nodes that the API has said are gone."""
    chosen: dict[str, tuple[Pod, bool]] = {}
    if kept > 0:
        ended = sorted(filter(_has_ended, pods), key=_age)
        for pod in ended[: max(0, len(ended) - kept)]:
            chosen.setdefault(pod.metadata.uid, (pod, False))
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None and _is_out_of_service(nodes.get(pod.spec.node_name)):
            chosen.setdefault(pod.metadata.uid, (pod, False))
        elif pod.spec.node_name in gone:
            chosen.setdefault(pod.metadata.uid, (pod, True))
        elif pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
            chosen.setdefault(pod.metadata.uid, (pod, False))
    return [_remove(pod, orphaned, now) for pod, orphaned in chosen.values()]


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase not in ("Pending", "Running", "Unknown")


def _age(pod: Pod) -> tuple[bool, str, str]:
    """Evicted pods first, then the oldest."""
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creation_timestamp or "", pod.metadata.name


def _is_out_of_service(node: Node | None) -> bool:
    if node is None or not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return False
    ready = find_condition(node.status.conditions, "Ready")
    return ready is None or ready.status != "True"


def _remove(pod: Pod, orphaned: bool, now: float) -> tuple[Action, ...]:
    metadata = pod.metadata
    delete = Delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace=0)
    if is_finished(pod):
        return (delete,)
    if orphaned:
        mark = mark_disrupted(pod, REASON, ORPHANED, now, phase="Failed")
        return (delete,) if mark is None else (mark, delete)
    status: dict[str, object] = {"phase": "Failed"}
    if metadata.generation:
        status["observedGeneration"] = metadata.generation
    return (patch_status(pod, status), delete)
