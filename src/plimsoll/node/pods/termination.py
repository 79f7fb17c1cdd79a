"""Termination of a pod: its cause, the grace period, and the order in which containers stop.

Pure. A termination is final: it is never reverted, and the grace period only shrinks. Regular containers stop
together; sidecars follow one by one, the last first, each when its turn comes or the grace period ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from plimsoll.api.core import Container, Pod
from plimsoll.api.timestamps import parse_time
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.phases import TERMINAL
from plimsoll.node.pods.pod_state import PodState, StopContainer, Termination, TerminationCause
from plimsoll.node.pods.restart_policy import should_restart, should_restart_init

DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


def check_termination(pod_state: PodState, latest: dict[str, ContainerInfo]) -> Termination | None:
    """Return the termination of a pod, if any; the deadline of an earlier one only shrinks."""
    current = pod_state.termination
    if current is None:
        found = _find_cause(pod_state, latest)
        if found is None:
            return None
        cause, reason, message = found
        return Termination(cause, pod_state.now, pod_state.now + _grace(pod_state), reason, message)
    if (
        pod_state.termination_request is not None
        and not current.reason
        and current.cause is not TerminationCause.REQUESTED
    ):
        current = replace(
            current,
            reason=pod_state.termination_request.reason,
            message=pod_state.termination_request.message,
        )
    return replace(current, deadline=min(current.deadline, current.since + _grace(pod_state)))


def _find_cause(
    pod_state: PodState, latest: dict[str, ContainerInfo]
) -> tuple[TerminationCause, str, str] | None:
    pod = pod_state.pod
    if pod_state.termination_request is not None:
        return (
            TerminationCause.REQUESTED,
            pod_state.termination_request.reason,
            pod_state.termination_request.message,
        )
    if pod_state.removed:
        return TerminationCause.REMOVED, "", ""
    if pod.metadata.deletion_timestamp is not None:
        return TerminationCause.DELETED, "", ""
    if pod.status.phase in TERMINAL:
        return TerminationCause.TERMINAL, pod.status.reason, pod.status.message
    until = deadline_of(pod_state)
    if until is not None and pod_state.now >= until:
        return TerminationCause.DEADLINE, DEADLINE_REASON, DEADLINE_MESSAGE
    if any(_has_failed(pod, container, latest) for container in pod.spec.init_containers):
        return TerminationCause.FAILED, "", ""
    if pod.spec.containers and all(_is_finished(pod_state, c, latest) for c in pod.spec.containers):
        return TerminationCause.FINISHED, "", ""
    return None


def deadline_of(pod_state: PodState) -> float | None:
    """Return the time at which a pod exceeds its active deadline."""
    seconds = pod_state.pod.spec.active_deadline_seconds
    started = (
        pod_state.started_at
        if pod_state.started_at is not None
        else parse_time(pod_state.pod.status.start_time)
    )
    return None if seconds is None or started is None else started + seconds


def _has_failed(pod: Pod, container: Container, latest: dict[str, ContainerInfo]) -> bool:
    state = latest.get(container.name)
    if (
        state is None
        or state.phase is not ContainerPhase.EXITED
        or is_sidecar(container)
        or not state.exit_code
    ):
        return False
    return not should_restart_init(pod, container, state.exit_code)


def _is_finished(pod_state: PodState, container: Container, latest: dict[str, ContainerInfo]) -> bool:
    state = latest.get(container.name)
    if state is None or state.phase is not ContainerPhase.EXITED or container.name in pod_state.forced:
        return False
    return not should_restart(pod_state.pod, container, state.exit_code)


def pod_grace(pod: Pod, default: float) -> float:
    """Return the grace period of a pod's containers according to the API."""
    given = pod.metadata.deletion_grace_period_seconds
    if given is None or pod.metadata.deletion_timestamp is None:
        given = pod.spec.termination_grace_period_seconds
    return default if given is None else max(1.0, float(given))


def _grace(pod_state: PodState) -> float:
    grace = pod_grace(pod_state.pod, pod_state.timing.grace_default)
    if pod_state.termination_request is not None and pod_state.termination_request.grace is not None:
        grace = min(grace, pod_state.termination_request.grace)
    if pod_state.removed:
        grace = min(grace, pod_state.timing.grace_removed)
    return grace


# -- order of stops

#: Difference of deadlines that is none: they are computed from other times.
_ROUNDING = 0.001


def plan_stops(
    pod_state: PodState, termination: Termination
) -> tuple[tuple[StopContainer, ...], float | None]:
    """Return the containers to stop now, and when to check again for those whose turn has not come."""
    running = [state for state in pod_state.states if state.phase is ContainerPhase.RUNNING]
    sidecars = [c.name for c in pod_state.pod.spec.init_containers if is_sidecar(c)]
    stops: list[StopContainer] = []
    has_waiting = False
    for state in running:
        if pod_state.now < termination.deadline and _must_wait(state.name, running, sidecars):
            has_waiting = True
            continue
        stop = stop_once(pod_state, state, termination.deadline, f"Stopping container {state.name}")
        if stop is not None:
            stops.append(stop)
    return tuple(stops), termination.deadline if has_waiting else None


def _must_wait(name: str, running: Iterable[ContainerInfo], sidecars: Sequence[str]) -> bool:
    """Return whether a sidecar has to wait for a regular container, or for a later sidecar."""
    if name not in sidecars:
        return False
    place = sidecars.index(name)
    return any(
        other.name != name and (other.name not in sidecars or sidecars.index(other.name) > place)
        for other in running
    )


def stop_once(
    pod_state: PodState, state: ContainerInfo, deadline: float, message: str
) -> StopContainer | None:
    """Return a stop of a container by a deadline, unless one that is as strict is in progress."""
    grace = max(deadline - pod_state.now, pod_state.timing.grace_min)
    current = pod_state.stopping.get(state.id)
    # The minimum grace period is granted once: requesting no more than that again changes nothing.
    if current is not None and current <= pod_state.now + grace + _ROUNDING:
        return None
    return StopContainer(state.id, state.name, grace, message)
