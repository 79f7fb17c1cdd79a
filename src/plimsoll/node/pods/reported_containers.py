"""Containers as the status of a running pod reports them.

Pure. A simulated node keeps no state of its own: what its pods report is what it has, after a restart of the
agent and in a cluster restored from a dump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.api.core import Container, ContainerStatus, Pod
from plimsoll.api.timestamps import parse_time
from plimsoll.common.json_tree import branch, number, text
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.phases import RUNNING


def is_running(pod: Pod) -> bool:
    return pod.status.phase == RUNNING


def is_ending(pod: Pod) -> bool:
    """Return whether a pod is being deleted, or has a deadline."""
    return pod.metadata.deletion_timestamp is not None or pod.spec.active_deadline_seconds is not None


def reported_containers(pod: Pod, new_id: Callable[[], str]) -> tuple[ContainerInfo, ...]:
    """Return the containers of a running pod; without a status, those that such a pod has."""
    status = pod.status
    reported = {
        each.name: each
        for each in (
            *status.init_container_statuses,
            *status.container_statuses,
            *status.ephemeral_container_statuses,
        )
    }
    started = parse_time(status.start_time or pod.metadata.creation_timestamp) or 0.0
    found = []
    for container in (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers):
        known = reported.get(container.name)
        if known is None and container in pod.spec.ephemeral_containers:
            continue
        state = _usual_state(pod, container) if known is None else _last_state(known)
        if not state:
            continue  # not started yet
        found.append(_container(pod, container.name, state, known, started, new_id))
    return tuple(found)


def _usual_state(pod: Pod, container: Container) -> Mapping[str, Any]:
    ended = container in pod.spec.init_containers and not is_sidecar(container)
    return {"terminated": {"exitCode": 0}} if ended else {"running": {}}


def _last_state(status: ContainerStatus) -> Mapping[str, Any]:
    if "running" in status.state or "terminated" in status.state:
        return status.state
    return status.last_state


def _container(
    pod: Pod,
    name: str,
    state: Mapping[str, Any],
    known: ContainerStatus | None,
    started: float,
    new_id: Callable[[], str],
) -> ContainerInfo:
    running, ended = branch(state, "running"), branch(state, "terminated")
    since = parse_time(text(running or ended, "startedAt")) or started
    return ContainerInfo(
        id=(known.container_id if known is not None else "").rpartition("://")[2] or new_id(),
        pod=pod.metadata.uid,
        name=name,
        attempt=known.restart_count if known is not None else 0,
        phase=ContainerPhase.RUNNING if "running" in state else ContainerPhase.EXITED,
        created_at=since,
        started_at=since,
        finished_at=parse_time(text(ended, "finishedAt")) or since,
        exit_code=number(ended, "exitCode"),
        signal=number(ended, "signal"),
        reason=text(ended, "reason"),
        message=text(ended, "message"),
    )
