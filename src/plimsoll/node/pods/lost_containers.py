"""Containers that the API knows and the runtime has lost, after a reboot or with its disk.

Pure. A container that was reported running and cannot be found counts as exited with 137: its restart policy
applies, and a container that runs only once does not run twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import ContainerStatus, Pod
from plimsoll.common.json_tree import branch, number
from plimsoll.node.containers import ContainerInfo, ContainerPhase

LOST_EXIT_CODE = 137


def restarts_of(pod: Pod) -> dict[str, int]:
    """Return the restart counts of containers that are known to have run."""
    return {status.name: status.restart_count for status in _statuses(pod) if _has_run(status)}


def lost_states(pod: Pod, known: Sequence[ContainerInfo], now: float) -> tuple[ContainerInfo, ...]:
    """Return the containers that ran according to the API and that the runtime does not know."""
    names = {state.name for state in known}
    lost = []
    for status in _statuses(pod):
        ended = branch(status.state, "terminated") or branch(status.last_state, "terminated")
        ran = "running" in status.state or bool(ended)
        if status.name in names or not ran:
            continue
        code = LOST_EXIT_CODE if "running" in status.state else number(ended, "exitCode")
        lost.append(
            ContainerInfo(
                id=f"lost-{status.name}",
                pod=pod.metadata.uid,
                name=status.name,
                attempt=max(0, status.restart_count),
                phase=ContainerPhase.EXITED,
                finished_at=now,
                exit_code=code,
            )
        )
    return tuple(lost)


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    status = pod.status
    return (
        *status.init_container_statuses,
        *status.container_statuses,
        *status.ephemeral_container_statuses,
    )


def _has_run(status: ContainerStatus) -> bool:
    return ("waiting" not in status.state and bool(status.state)) or bool(status.last_state)
