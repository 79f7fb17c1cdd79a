"""Phase of a pod, from the statuses of its containers.

Pure. Pending until every container was started once; Running while one runs or will be restarted; then
Succeeded if all regular containers exited with 0, else Failed. Terminated sidecars do not count. A terminal
phase is never left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll.api.core import Container, Pod
from plimsoll.common.json_tree import branch, number, text
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.pods.restart_policy import should_restart
from plimsoll.node.pods.status_input import Tree

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL = (SUCCEEDED, FAILED)


@dataclass(slots=True)
class _Count:
    """Container counts by state."""

    initializing: int = 0
    starting_sidecars: int = 0
    failed: int = 0  #: init containers that failed and are not restarted
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    final: int = 0  #: stopped containers that are not restarted
    succeeded: int = 0


def phase_of(
    pod: Pod,
    inits: Sequence[Mapping[str, object]],
    regular: Sequence[Mapping[str, object]],
    *,
    terminal: bool,
    initialized: bool,
) -> str:
    """Return the phase. `terminal`: nothing will be started; `initialized`: a regular container exists."""
    statuses = {text(status, "name"): dict(status) for status in (*inits, *regular)}
    count = _Count()
    for container in pod.spec.init_containers:
        status = statuses.get(container.name, {})
        if is_sidecar(container):
            _count_sidecar(status, count)
        else:
            _count_init(pod, container, status, count)
    for container in pod.spec.containers:
        _count_regular(pod, container, statuses.get(container.name, {}), count)
    if count.failed:
        return FAILED
    if count.initializing or (count.starting_sidecars and not initialized) or count.waiting:
        return PENDING
    if count.running and not count.unknown:
        return RUNNING
    if count.stopped and not count.unknown:
        if not terminal and count.stopped != count.final:
            return RUNNING
        return SUCCEEDED if count.stopped == count.succeeded else FAILED
    return PENDING


def _ended(status: Tree) -> Tree:
    """Return the terminated state of a container that awaits its restart, or stays terminated."""
    state = branch(status, "state")
    if "terminated" in state:
        return branch(state, "terminated")
    return branch(status, "lastState", "terminated") if "waiting" in state else {}


def _count_init(pod: Pod, container: Container, status: Tree, count: _Count) -> None:
    ended = _ended(status)
    if not ended:
        count.initializing += 1
        return
    code = number(ended, "exitCode")
    if code and not should_restart(pod, container, code):
        count.failed += 1


def _count_sidecar(status: Tree, count: _Count) -> None:
    state = branch(status, "state")
    if "running" in state:
        count.starting_sidecars += not status.get("started")
        count.running += 1
    elif "terminated" in state or _ended(status):
        return
    elif "waiting" in state:
        count.starting_sidecars += 1
        count.waiting += 1
    else:
        count.starting_sidecars += 1
        count.unknown += 1


def _count_regular(pod: Pod, container: Container, status: Tree, count: _Count) -> None:
    state = branch(status, "state")
    ended = _ended(status)
    if "running" in state:
        count.running += 1
    elif ended:
        code = number(ended, "exitCode")
        count.stopped += 1
        count.final += not should_restart(pod, container, code)
        count.succeeded += "terminated" in state and code == 0
    elif "waiting" in state:
        count.waiting += 1
    else:
        count.unknown += 1
