"""Cells of pods: ready containers, status and restarts.

The status is that of the first init container that has not completed, if there is one; started sidecars
(restartable init containers) count with the regular containers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from plimsoll.apiserver.json_values import get_path, items
from plimsoll.apiserver.tables.row import (
    NONE,
    TableRow,
    Tree,
    format_duration,
    parse_timestamp,
    text_of,
)

_ENDED = ("Succeeded", "Failed")
_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


class PodSummary(NamedTuple):
    """The first columns of a pod."""

    ready: int
    total: int
    status: str
    restarts: int
    last_restart: datetime | None


class _RestartCounter:
    """Number of restarts, and the latest termination of a restarted container."""

    def __init__(self) -> None:
        self.restarts = 0
        self.last: datetime | None = None

    def add(self, container: Tree) -> None:
        count = container.get("restartCount")
        self.restarts += count if isinstance(count, int) else 0
        ended = get_path(container, ("lastState", "terminated", "finishedAt"))
        timestamp = parse_timestamp(ended) if isinstance(ended, str) else None
        if timestamp is not None and (self.last is None or timestamp > self.last):
            self.last = timestamp


def summarize_pod(row: TableRow) -> PodSummary:
    """Compute the summary of a pod from its containers."""
    status = row.text(("status", "reason")) or row.text(("status", "phase"))
    conditions = row.trees(("status", "conditions"))
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        status = "SchedulingGated"
    first = row.trees(("spec", "initContainers"))
    sidecars = {text_of(c.get("name")) for c in first if c.get("restartPolicy") == "Always"}
    total = len(row.trees(("spec", "containers"))) + sum(c.get("restartPolicy") == "Always" for c in first)

    everyone, tally = _RestartCounter(), _RestartCounter()
    ready, waiting_for = _summarize_init_containers(row, sidecars, len(first), everyone, tally)
    if waiting_for is None or _holds(conditions, "Initialized"):
        more, status = _summarize_containers(row, waiting_for or status, conditions, tally)
        ready += more
    else:
        status, tally = waiting_for, everyone
    if row.get(("metadata", "deletionTimestamp")) is not None:
        if row.text(("status", "reason")) == "NodeLost":
            status = "Unknown"
        elif row.text(("status", "phase")) not in _ENDED:
            status = "Terminating"
    return PodSummary(ready, total, status, tally.restarts, tally.last)


def _summarize_init_containers(
    row: TableRow, sidecars: set[str], count: int, everyone: _RestartCounter, tally: _RestartCounter
) -> tuple[int, str | None]:
    """Return the ready sidecars, and the status of the init container that the pod waits for, if any."""
    ready = 0
    for index, container in enumerate(row.trees(("status", "initContainerStatuses"))):
        everyone.add(container)
        sidecar = text_of(container.get("name")) in sidecars
        if sidecar:
            tally.add(container)
        ended = get_path(container, ("state", "terminated"))
        if isinstance(ended, dict) and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started") is True:
            ready += container.get("ready") is True
            continue
        waiting = text_of(get_path(container, ("state", "waiting", "reason")))
        if isinstance(ended, dict):
            return ready, f"Init:{_format_termination(ended)}"
        if waiting and waiting != "PodInitializing":
            return ready, f"Init:{waiting}"
        return ready, f"Init:{index}/{count}"
    return ready, None


def _summarize_containers(
    row: TableRow, status: str, conditions: list[Tree], tally: _RestartCounter
) -> tuple[int, str]:
    """Return the number of ready containers and the pod's status; the first container takes precedence."""
    ready, failure, runs = 0, "", False
    for container in reversed(row.trees(("status", "containerStatuses"))):
        tally.add(container)
        state = container.get("state")
        waiting, ended = text_of(get_path(state, ("waiting", "reason"))), get_path(state, ("terminated",))
        if waiting:
            status = waiting
        elif isinstance(ended, dict):
            status = _format_termination(ended)
            failure = status if ended.get("exitCode") else failure
        elif container.get("ready") is True and isinstance(get_path(state, ("running",)), dict):
            runs, ready = True, ready + 1
    if status == "Completed":  # of one container; the others may be running or failed
        if runs and _holds(conditions, "Ready"):
            status = "Running"
        elif failure:
            status = failure
        elif runs:
            status = "NotReady"
    return ready, status


def _format_termination(ended: Tree) -> str:
    reason, signal = text_of(ended.get("reason")), ended.get("signal")
    if reason:
        return reason
    return f"Signal:{text_of(signal)}" if signal else f"ExitCode:{text_of(ended.get('exitCode'), '0')}"


def _holds(conditions: list[Tree], type: str) -> bool:
    return any(c.get("type") == type and c.get("status") == "True" for c in conditions)


def ready(row: TableRow) -> str:
    summary = row.cached(summarize_pod)
    return f"{summary.ready}/{summary.total}"


def status(row: TableRow) -> str:
    return row.cached(summarize_pod).status


def restarts(row: TableRow) -> str:
    summary = row.cached(summarize_pod)
    if summary.restarts and summary.last_restart is not None:
        return f"{summary.restarts} ({format_duration(row.now - summary.last_restart)} ago)"
    return str(summary.restarts)


def address(row: TableRow) -> str:
    addresses = row.trees(("status", "podIPs"))
    return (text_of(addresses[0].get("ip")) if addresses else row.text(("status", "podIP"))) or NONE


def readiness_gates(row: TableRow) -> str:
    gates = row.trees(("spec", "readinessGates"))
    if not gates:
        return NONE
    first: dict[str, Any] = {}
    for condition in items(row.get(("status", "conditions"))):
        first.setdefault(text_of(condition.get("type")), condition.get("status"))
    return f"{sum(first.get(text_of(gate.get('conditionType'))) == 'True' for gate in gates)}/{len(gates)}"


def completion(row: TableRow) -> list[Tree] | None:
    """Return the condition of a row whose pod has completed, which lets clients hide it."""
    phase = row.text(("status", "phase"))
    if phase not in _COMPLETED:
        return None
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]}]
