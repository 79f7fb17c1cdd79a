"""States of pods that workloads count: active, ready, available; and the order in which surplus pods go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import parse_int64
from plimsoll.api.timestamps import parse_time
from plimsoll.controllers.pod_utils import find_condition, is_finished

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted and may still run."""
    return pod.metadata.deletion_timestamp is not None and not is_finished(pod)


def is_active(pod: Pod) -> bool:
    """Return whether a pod counts as a replica: it has neither ended nor is it being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)


def is_ready(pod: Pod) -> bool:
    condition = find_condition(pod.status.conditions, "Ready")
    return condition is not None and condition.status == "True"


def available_at(pod: Pod, min_ready_seconds: int) -> float | None:
    """Return when a ready pod becomes available; None if it is not ready or since an unknown time."""
    condition = find_condition(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True":
        return None
    if not min_ready_seconds:
        return 0.0
    since = parse_time(condition.last_transition_time)
    return None if since is None else since + min_ready_seconds


def is_available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Return whether a pod has been ready for `min_ready_seconds`."""
    when = available_at(pod, min_ready_seconds)
    return when is not None and when <= now


def next_available(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> float | None:
    """Return the seconds until the next ready pod becomes available, or None."""
    times = (available_at(pod, min_ready_seconds) for pod in pods)
    return min((when - now for when in times if when is not None and when > now), default=None)


def sort_for_deletion(pods: Iterable[Pod], neighbors: Mapping[str, int], now: float) -> list[Pod]:
    """Sort active pods: those to delete first come first.

    In this order: not scheduled; pending; not ready; of lower deletion cost; on nodes with more pods of
    related workloads (`neighbors`: node -> pods); ready for a shorter time; restarted more often; younger.
    Times are compared by their order of magnitude, so that not always the youngest pods go.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        ready = find_condition(pod.status.conditions, "Ready")
        is_up = ready is not None and ready.status == "True"
        since = parse_time(ready.last_transition_time) if ready is not None and is_up else None
        restarts = (status.restart_count for status in pod.status.container_statuses)
        return (
            bool(pod.spec.node_name),
            _PHASE_ORDER.get(pod.status.phase, 0),
            is_up,
            deletion_cost(pod),
            -neighbors.get(pod.spec.node_name, 0),
            _magnitude(since, now) if is_up else 0,
            -max(restarts, default=0),
            _magnitude(parse_time(pod.metadata.creation_timestamp), now),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def deletion_cost(pod: Pod) -> int:
    """Return the cost of deleting a pod by its annotation; 0 if it has none or an invalid one."""
    cost = parse_int64(pod.metadata.annotations.get(_DELETION_COST, "0"))
    return cost if cost is not None and -(2**31) <= cost < 2**31 else 0


def _magnitude(since: float | None, now: float) -> int:
    """Return the binary order of magnitude of an age in seconds; an unknown age is the youngest."""
    if since is None:
        return -1
    return max(0, int(now - since)).bit_length()


def count_by_node(pods: Sequence[Pod]) -> dict[str, int]:
    """Count the pods of each node."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts
