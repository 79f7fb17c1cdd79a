"""Pod conditions that a node agent owns.

Pure. Their reasons and messages are the kubelet's. A condition's transition time changes only with its
status; conditions of other owners are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod
from plimsoll.api.timestamps import format_time
from plimsoll.common.json_tree import items, text
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.pods.phases import FAILED, SUCCEEDED, TERMINAL
from plimsoll.node.pods.status_input import StatusInput, Tree

RESIZE = ("PodResizePending", "PodResizeInProgress")
#: Condition of pods whose containers are states without processes.
SIMULATED = "plimsoll.dev/Simulated"
OWNED = (
    *("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
    *(*RESIZE, SIMULATED),
)
_COMPLETED, _FAILED = "PodCompleted", "PodFailed"


def conditions_of(
    inputs: StatusInput, phase: str, inits: Sequence[Tree], regular: Sequence[Tree]
) -> list[Tree]:
    """Return the agent's conditions, in the kubelet's order."""
    statuses = {text(status, "name"): status for status in (*inits, *regular)}
    ready = _containers_ready(inputs.pod, phase, statuses)
    sandboxed = inputs.sandbox is not None and inputs.sandbox.running
    found = [
        *(codec.to_tree(condition) for condition in inputs.resize),
        {"type": "PodReadyToStartContainers", "status": _truth(sandboxed)},
        {"type": "Initialized", **_initialized(inputs.pod, phase, statuses)},
        {"type": "Ready", **_ready(inputs, ready)},
        {"type": "ContainersReady", **ready},
        {"type": "PodScheduled", "status": "True"},
    ]
    if inputs.simulated:
        message = "The node is simulated: containers have a state and no processes, volumes and logs."
        found.append({"type": SIMULATED, "status": "True", "reason": "SimulatedNode", "message": message})
    if inputs.disruption and phase in TERMINAL:
        message = inputs.termination.message if inputs.termination is not None else ""
        found.append(
            {"type": "DisruptionTarget", "status": "True", "reason": inputs.disruption, "message": message}
        )
    reported = {text(condition, "type"): condition for condition in items(inputs.before, "conditions")}
    return [_date(inputs, condition, reported.get(condition["type"])) for condition in found]


def _date(inputs: StatusInput, condition: Tree, reported: Tree | None) -> Tree:
    if inputs.pod.metadata.generation:
        condition.setdefault("observedGeneration", inputs.pod.metadata.generation)
    same = reported is not None and reported.get("status") == condition["status"]
    kept = text(reported, "lastTransitionTime") if same else ""
    condition["lastTransitionTime"] = kept or condition.get("lastTransitionTime") or format_time(inputs.now)
    return condition


def _truth(value: bool) -> str:
    return "True" if value else "False"


def _containers_ready(pod: Pod, phase: str, statuses: dict[str, Tree]) -> Tree:
    if phase == SUCCEEDED:
        return {"status": "False", "reason": _COMPLETED}
    if phase == FAILED:
        return {"status": "False", "reason": _FAILED}
    wanted = [c for c in pod.spec.init_containers if is_sidecar(c)]
    unready = [c.name for c in (*wanted, *pod.spec.containers) if not statuses.get(c.name, {}).get("ready")]
    if unready:
        message = f"containers with unready status: {_names(unready)}"
        return {"status": "False", "reason": "ContainersNotReady", "message": message}
    return {"status": "True"}


def _ready(inputs: StatusInput, containers: Tree) -> Tree:
    if containers["status"] != "True":
        return dict(containers)
    reported = {condition.type: condition for condition in inputs.pod.status.conditions}
    lacking = []
    for gate in inputs.pod.spec.readiness_gates:
        condition = reported.get(gate.condition_type)
        name = gate.condition_type
        if condition is None:
            lacking.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif condition.status != "True":
            lacking.append(f'the status of pod readiness gate "{name}" is not "True", but {condition.status}')
    if lacking:
        return {"status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(lacking)}
    return {"status": "True"}


def _initialized(pod: Pod, phase: str, statuses: dict[str, Tree]) -> Tree:
    if phase == SUCCEEDED:
        return {"status": "True", "reason": _COMPLETED}
    started = (statuses.get(c.name, {}).get("state", {}) for c in pod.spec.containers)
    if any("running" in state or "terminated" in state for state in started):
        return {"status": "True"}
    lacking = [c.name for c in pod.spec.init_containers if not _is_initialized(c, statuses.get(c.name, {}))]
    if lacking:
        message = f"containers with incomplete status: {_names(lacking)}"
        return {"status": "False", "reason": "ContainersNotInitialized", "message": message}
    return {"status": "True"}


def _is_initialized(container: Container, status: Tree) -> bool:
    return bool(status.get("started") if is_sidecar(container) else status.get("ready"))


def _names(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"
