"""Backoff of Jobs: the time until a failed pod is replaced doubles with every failure since a success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plimsoll.api.core import Pod
from plimsoll.api.timestamps import parse_time
from plimsoll.controllers.pod_utils import find_condition

#: Backoff in seconds after the first failure, and the longest.
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 600.0


class BackoffRecord(NamedTuple):
    """Failures since the last success, and the time of the last one."""

    failures: int = 0
    last_failure: float = 0.0


def finished_at(pod: Pod) -> float:
    """Return when a pod ended: by its containers, its condition Ready, its deletion, or its creation."""
    sidecars = {each.name for each in pod.spec.init_containers if each.restart_policy == "Always"}
    statuses = [
        *pod.status.container_statuses,
        *(status for status in pod.status.init_container_statuses if status.name in sidecars),
    ]
    times = [_terminated_at(status.state) for status in statuses]
    known = [time for time in times if time is not None]
    if known and len(known) == len(times):
        return max(known)
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "False":
        since = parse_time(ready.last_transition_time)
        if since is not None:
            return since
    deleted = parse_time(pod.metadata.deletion_timestamp)
    if deleted is not None:
        return deleted - (pod.metadata.deletion_grace_period_seconds or 0)
    return parse_time(pod.metadata.creation_timestamp) or 0.0


def _terminated_at(state: dict[str, Any]) -> float | None:
    ended = state.get("terminated")
    return parse_time(ended.get("finishedAt")) if isinstance(ended, dict) else None


def record_backoff(old: BackoffRecord, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> BackoffRecord:
    """Add pods that have ended to a record; failures before the last success do not count."""
    times = sorted(map(finished_at, failed))
    if not succeeded:
        return BackoffRecord(old.failures + len(times), times[-1]) if times else old
    last_success = max(map(finished_at, succeeded))
    later = [time for time in times if time > last_success]
    return BackoffRecord(len(later), later[-1]) if later else BackoffRecord()


def remaining_backoff(record: BackoffRecord, now: float) -> float:
    """Return the seconds until a pod may be created."""
    if not record.failures:
        return 0.0
    delay = min(LONGEST_BACKOFF, FIRST_BACKOFF * float(1 << min(record.failures - 1, 16)))
    return max(0.0, delay - (now - record.last_failure))
