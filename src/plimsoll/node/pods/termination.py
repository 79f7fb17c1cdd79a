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
from plimsoll.node.pods.pod_state import Cause, Ending, Situation, Stop
from plimsoll.node.pods.restarts import should_restart, should_restart_init

DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


def judge_end(at: Situation, latest: dict[str, ContainerInfo]) -> Ending | None:
    """Return the termination of a pod, if any; an earlier one stays, with a shorter deadline if less grace is
    given now.
    """
    known = at.ending
    if known is None:
        found = _find_cause(at, latest)
        if found is None:
            return None
        cause, reason, message = found
        return Ending(cause, at.now, at.now + _grace(at), reason, message)
    if at.order is not None and not known.reason and known.cause is not Cause.ORDERED:
        known = replace(known, reason=at.order.reason, message=at.order.message)
    return replace(known, deadline=min(known.deadline, known.since + _grace(at)))


def _find_cause(at: Situation, latest: dict[str, ContainerInfo]) -> tuple[Cause, str, str] | None:
    pod = at.pod
    if at.order is not None:
        return Cause.ORDERED, at.order.reason, at.order.message
    if at.vanished:
        return Cause.VANISHED, "", ""
    if pod.metadata.deletion_timestamp is not None:
        return Cause.DELETED, "", ""
    if pod.status.phase in TERMINAL:
        return Cause.TERMINAL, pod.status.reason, pod.status.message
    until = deadline_of(at)
    if until is not None and at.now >= until:
        return Cause.DEADLINE, DEADLINE_REASON, DEADLINE_MESSAGE
    if any(_failed_for_good(pod, container, latest) for container in pod.spec.init_containers):
        return Cause.FAILED, "", ""
    if pod.spec.containers and all(_ended_for_good(at, c, latest) for c in pod.spec.containers):
        return Cause.FINISHED, "", ""
    return None


def deadline_of(at: Situation) -> float | None:
    """Return the time at which a pod exceeds its active deadline."""
    seconds = at.pod.spec.active_deadline_seconds
    started = at.started_at if at.started_at is not None else parse_time(at.pod.status.start_time)
    return None if seconds is None or started is None else started + seconds


def _failed_for_good(pod: Pod, container: Container, latest: dict[str, ContainerInfo]) -> bool:
    state = latest.get(container.name)
    if (
        state is None
        or state.phase is not ContainerPhase.EXITED
        or is_sidecar(container)
        or not state.exit_code
    ):
        return False
    return not should_restart_init(pod, container, state.exit_code)


def _ended_for_good(at: Situation, container: Container, latest: dict[str, ContainerInfo]) -> bool:
    state = latest.get(container.name)
    if state is None or state.phase is not ContainerPhase.EXITED or container.name in at.forced:
        return False
    return not should_restart(at.pod, container, state.exit_code)


def pod_grace(pod: Pod, default: float) -> float:
    """Return the grace period of a pod's containers according to the API."""
    given = pod.metadata.deletion_grace_period_seconds
    if given is None or pod.metadata.deletion_timestamp is None:
        given = pod.spec.termination_grace_period_seconds
    return default if given is None else max(1.0, float(given))


def _grace(at: Situation) -> float:
    grace = pod_grace(at.pod, at.timing.grace_default)
    if at.order is not None and at.order.grace is not None:
        grace = min(grace, at.order.grace)
    if at.vanished:
        grace = min(grace, at.timing.grace_vanished)
    return grace


# -- order of stops


def stops_of(at: Situation, ending: Ending) -> tuple[tuple[Stop, ...], float | None]:
    """Return the containers to stop now, and when to check again for those whose turn has not come."""
    running = [state for state in at.states if state.phase is ContainerPhase.RUNNING]
    sidecars = [c.name for c in at.pod.spec.init_containers if is_sidecar(c)]
    stops: list[Stop] = []
    held = False
    for state in running:
        if at.now < ending.deadline and _waits(state.name, running, sidecars):
            held = True
            continue
        stop = stop_once(at, state, ending.deadline, f"Stopping container {state.name}")
        if stop is not None:
            stops.append(stop)
    return tuple(stops), ending.deadline if held else None


def _waits(name: str, running: Iterable[ContainerInfo], sidecars: Sequence[str]) -> bool:
    """Return whether a sidecar has to wait for a container that is no sidecar, or for a later sidecar."""
    if name not in sidecars:
        return False
    place = sidecars.index(name)
    return any(
        other.name != name and (other.name not in sidecars or sidecars.index(other.name) > place)
        for other in running
    )


def stop_once(at: Situation, state: ContainerInfo, deadline: float, message: str) -> Stop | None:
    """Return a stop of a container by a deadline, unless one that is as strict is in progress."""
    grace = max(deadline - at.now, at.timing.grace_least)
    known = at.stopping.get(state.id)
    # The minimum grace period is granted once: requesting no more than that again changes nothing.
    if known is not None and known <= at.now + grace:
        return None
    return Stop(state.id, state.name, grace, message)
