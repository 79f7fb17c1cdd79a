"""Pods on tainted nodes: when they must go.

Owns the decision (upstream's taint eviction controller): a pod that does not tolerate every NoExecute taint
of its node goes at once; one that tolerates them for some seconds goes when those are over.

DIFF: the seconds count from when the taint was added (test_seconds_count_from_when_the_taint_was_added);
upstream counts from when it notices, and so begins anew after every restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Pod, Taint
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import parse_time
from plimsoll.api.tolerations import tolerates
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import Report
from plimsoll.controllers.actions import NOTHING, Action, Delete, Plan
from plimsoll.controllers.plans.pods import mark_disrupted

COMPONENT = "taint-eviction-controller"
EVICTION = "TaintManagerEviction"
NO_EXECUTE = "NoExecute"


def eviction_time(pod: Pod, taints: Sequence[Taint], seen: float) -> float | None:
    """When a pod must leave its node; None if it may stay. `seen` dates taints that have no time."""
    due: list[float] = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        toleration = next((item for item in pod.spec.tolerations if tolerates(item, taint)), None)
        if toleration is None:
            return 0.0
        if toleration.toleration_seconds is not None:
            since = parse_time(taint.time_added)
            due.append((seen if since is None else since) + max(0, toleration.toleration_seconds))
    return min(due, default=None)


def plan_eviction(pod: Pod, now: float) -> Plan:
    """Tell of a pod, mark it, delete it; `pod` is as the API has it now."""
    if pod.metadata.deletion_timestamp is not None:
        return NOTHING
    metadata = pod.metadata
    actions: list[Action] = [_report(pod, "Marking for deletion Pod")]
    mark = mark_disrupted(
        pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now
    )
    if mark is not None:
        actions.append(mark)
    actions.append(Delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid))
    return Plan(tuple(actions))


def report_cancelled(pod: Pod) -> Report:
    """Tell that a pod may stay after all."""
    return _report(pod, "Cancelling deletion of Pod")


def _report(pod: Pod, what: str) -> Report:
    metadata = pod.metadata
    regarding = ObjectReference(
        api_version="v1", kind="Pod", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
    )
    return Report(regarding, EVICTION, f"{what} {metadata.namespace}/{metadata.name}", COMPONENT)
