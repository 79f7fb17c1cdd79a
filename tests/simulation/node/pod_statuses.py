"""Statuses of pods as a kubelet reports them."""

from __future__ import annotations

from typing import Any

from plimsoll.api.timestamps import format_time
from tests.simulation.node.admission import Rejection

Tree = dict[str, Any]

_TRUE, _FALSE = "True", "False"


def admitted_status(before: Tree, now: float) -> Tree:
    """Build the status of a pod that was admitted and does not run yet."""
    conditions = {"PodReadyToStartContainers": _FALSE, "Ready": _FALSE, "ContainersReady": _FALSE}
    return _status(before, now, "Pending", conditions)


def running_status(before: Tree, now: float) -> Tree:
    conditions = {"PodReadyToStartContainers": _TRUE, "Ready": _TRUE, "ContainersReady": _TRUE}
    return _status(before, now, "Running", conditions)


def ended_status(before: Tree, now: float, phase: str) -> Tree:
    """Build the status of a pod whose containers have ended and whose claims are released."""
    conditions = {"PodReadyToStartContainers": _FALSE, "Ready": _FALSE, "ContainersReady": _FALSE}
    return _status(before, now, phase, conditions)


def rejected_status(before: Tree, now: float, rejection: Rejection) -> Tree:
    """Build the status of a rejected pod, which has a start time and no conditions of its own."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "startTime": before.get("startTime") or format_time(now),
    }


def _status(before: Tree, now: float, phase: str, conditions: dict[str, str]) -> Tree:
    known = {each["type"]: each for each in before.get("conditions") or ()}
    found = []
    for kind, status in {"PodScheduled": _TRUE, "Initialized": _TRUE, **conditions}.items():
        same = known.get(kind, {})
        if same.get("status") == status and same.get("lastTransitionTime"):
            since = same["lastTransitionTime"]
        else:
            since = format_time(now)
        found.append({"type": kind, "status": status, "lastTransitionTime": since})
    return {
        "phase": phase,
        "conditions": found,
        "startTime": before.get("startTime") or format_time(now),
    }
