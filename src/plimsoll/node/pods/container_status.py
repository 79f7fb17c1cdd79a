"""Container statuses: current state, last state and allocated resources.

Pure. The last attempt the runtime knows is the container's state, the one before it its last state. A
container the runtime has lost keeps its reported status; one that was reported running and cannot be found
exited with 137.
"""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.api.core import Container
from plimsoll.api.timestamps import format_time
from plimsoll.common.json_tree import branch, items, number, text
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.pod_state import ProbeResults
from plimsoll.node.pods.restart_policy import should_restart, should_restart_init
from plimsoll.node.pods.status_input import StatusInput, Tree

CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"
UNKNOWN = "ContainerStatusUnknown"
_LOST = "The container could not be located when the pod was deleted.  The container used to be Running"
_LOST_AT_END = "The container could not be located when the pod was terminated"


_FIELDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def container_statuses(inputs: StatusInput) -> tuple[list[Tree], list[Tree], list[Tree]]:
    """Return the statuses of init containers in spec order, of regular and of ephemeral ones by name."""
    spec = inputs.pod.spec
    reported = {text(status, "name"): status for field in _FIELDS for status in items(inputs.before, field)}
    inits = [_status(inputs, c, reported.get(c.name), init=True) for c in spec.init_containers]
    regular = [_status(inputs, c, reported.get(c.name), init=False) for c in spec.containers]
    ephemeral = [_ephemeral_status(inputs, c, reported.get(c.name)) for c in spec.ephemeral_containers]
    if inputs.terminal:
        _close(inits, regular, initialized=not inits or _has_initialized(inits, regular))
    for statuses in (regular, ephemeral):
        statuses.sort(key=lambda status: str(status["name"]))
    return inits, regular, ephemeral


def _ephemeral_status(inputs: StatusInput, container: Container, reported: Tree | None) -> Tree:
    """Return the status of an ephemeral container, which runs once: ended, it stays so."""
    attempts = [state for state in inputs.states if state.name == container.name]
    if attempts:
        status = _known(inputs, container, attempts, reported or {})
    else:
        status = dict(_lost(inputs, container, reported))
        if "terminated" not in status["state"] and branch(status, "lastState", "terminated"):
            status["state"], status["lastState"] = status["lastState"], {}
    waiting = inputs.waiting.get(container.name)
    if waiting is not None and "waiting" in status["state"]:
        status["state"] = {"waiting": _dropping(reason=waiting.reason, message=waiting.message)}
    status["ready"] = False
    return status


def _status(inputs: StatusInput, container: Container, reported: Tree | None, *, init: bool) -> Tree:
    attempts = sorted((s for s in inputs.states if s.name == container.name), key=lambda s: s.attempt)
    if not attempts:
        status = _lost(inputs, container, reported)
    else:
        status = _known(inputs, container, attempts, reported or {})
    waiting = inputs.waiting.get(container.name)
    if waiting is not None and "running" not in status["state"]:
        if "terminated" in status["state"]:
            status["lastState"] = status["state"]
        status["state"] = {"waiting": _dropping(reason=waiting.reason, message=waiting.message)}
    if _is_final(inputs, container, reported, init=init) and "terminated" not in status["state"]:
        return dict(reported or {})
    _rate(inputs, container, status, attempts[-1].id if attempts else "", init=init)
    health = inputs.health.get(container.name)
    if health:
        status["allocatedResourcesStatus"] = list(health)
    return status


def _is_final(inputs: StatusInput, container: Container, reported: Tree | None, *, init: bool) -> bool:
    """Return whether a container was reported terminated for good: the API does not allow to revert that,
    though init containers run again in a new sandbox.
    """
    ended = branch(reported, "state", "terminated")
    restarts = should_restart_init if init else should_restart
    return bool(ended) and not restarts(inputs.pod, container, number(ended, "exitCode"))


def _known(inputs: StatusInput, container: Container, attempts: list[ContainerInfo], reported: Tree) -> Tree:
    last = attempts[-1]
    status: Tree = {
        "name": container.name,
        "image": container.image,
        "imageID": last.image_id or container.image,
        "containerID": _name_container(inputs, last),
        "restartCount": max(last.attempt, number(reported, "restartCount")),
        "state": _state(inputs, last),
        "lastState": {},
    }
    earlier = [state for state in attempts[:-1] if state.phase is ContainerPhase.EXITED]
    if earlier:
        status["lastState"] = _state(inputs, earlier[-1])
    elif text(reported, "containerID") != status["containerID"] and branch(reported, "state", "terminated"):
        status["lastState"] = branch(reported, "state")
    else:
        status["lastState"] = branch(reported, "lastState")
    given = inputs.allocated.get(container.name, container.resources)
    actual = inputs.actual.get(container.name, given) if last.phase is ContainerPhase.RUNNING else given
    if given.requests:
        status["allocatedResources"] = codec.to_tree(given.requests)
    status["resources"] = codec.to_tree(actual)
    return status


def _waiting(inputs: StatusInput) -> Tree:
    """Return the state of a container that has not started yet."""
    return {"waiting": {"reason": INITIALIZING if inputs.pod.spec.init_containers else CREATING}}


def _state(inputs: StatusInput, state: ContainerInfo) -> Tree:
    if state.phase is ContainerPhase.RUNNING:
        return {"running": {"startedAt": format_time(state.started_at)}}
    if state.phase is ContainerPhase.CREATED:
        return _waiting(inputs)
    ended: Tree = {
        "exitCode": state.exit_code,
        "reason": state.reason or ("Error" if state.exit_code else "Completed"),
        "startedAt": format_time(state.started_at or state.created_at),
        "finishedAt": format_time(state.finished_at),
        "containerID": _name_container(inputs, state),
    }
    if state.signal:
        ended["signal"] = state.signal
    if state.message:
        ended["message"] = state.message
    return {"terminated": ended}


def _lost(inputs: StatusInput, container: Container, reported: Tree | None) -> Tree:
    """Return the status of a container the runtime does not know yet, or no longer."""
    if reported is not None and branch(reported, "state", "terminated"):
        return reported
    status: Tree = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": number(reported, "restartCount"),
        "state": _waiting(inputs),
        "lastState": branch(reported, "lastState"),
    }
    ran = reported is not None and "running" in branch(reported, "state")
    if ran and not branch(status, "lastState", "terminated"):
        status["lastState"] = {"terminated": _unknown(_LOST)}
    return status


def _unknown(message: str) -> Tree:
    # The API requires both times; a container that cannot be found has none.
    return {"reason": UNKNOWN, "message": message, "exitCode": 137, "startedAt": None, "finishedAt": None}


def _rate(inputs: StatusInput, container: Container, status: Tree, id: str, *, init: bool) -> None:
    """Set whether a container has started and is ready."""
    running = "running" in status["state"]
    default = ProbeResults(started=container.startup_probe is None, ready=container.readiness_probe is None)
    probed = inputs.probes.get(id, default)
    status["started"] = running and probed.started
    if init and not is_sidecar(container):
        ended = branch(status, "state", "terminated")
        status["ready"] = bool(ended) and number(ended, "exitCode") == 0
    else:
        status["ready"] = bool(status["started"] and probed.ready)


def _name_container(inputs: StatusInput, state: ContainerInfo) -> str:
    return f"{inputs.runtime}://{state.id}"


# -- termination


def _close(inits: list[Tree], regular: list[Tree], *, initialized: bool) -> None:
    """Report every container that may have run as terminated once the pod has."""
    if initialized:
        for status in regular:
            _end(status)
    started = [i for i, status in enumerate(inits) if _has_started(status)]
    for status in inits[: (started[-1] + 1) if started else 1]:
        _end(status)


def _end(status: Tree) -> None:
    if "terminated" not in status["state"]:
        status["state"] = {"terminated": _unknown(_LOST_AT_END)}
        status["ready"] = status["started"] = False


def _has_started(status: Tree) -> bool:
    return "waiting" not in status["state"] or bool(branch(status, "lastState", "terminated"))


def _has_initialized(inits: list[Tree], regular: list[Tree]) -> bool:
    if any(_has_started(status) for status in regular):
        return True
    last = inits[-1]
    ends = (branch(last, "state", "terminated"), branch(last, "lastState", "terminated"))
    return any(end and number(end, "exitCode") == 0 for end in ends)


def _dropping(**fields: str) -> Tree:
    return {key: value for key, value in fields.items() if value}
