"""Pod status as the API shows it, and the patch that brings the API up to date.

Defines which status fields the node agent owns. Pure. Guarantees that a terminal phase stays; that a pod is
not reported terminated while one of its containers may run; and that a patch names only owned fields, so that
those of others (claim charges, names of generated claims, nominations, their conditions) are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod, ResourceRequirements
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.timestamps import format_time
from plimsoll.common.json_tree import items, text
from plimsoll.ledger.qos import pod_qos
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.pods.conditions import OWNED, RESIZE, conditions_of
from plimsoll.node.pods.container_status import container_statuses
from plimsoll.node.pods.phases import FAILED, PENDING, TERMINAL, phase_of
from plimsoll.node.pods.pod_state import TerminationCause
from plimsoll.node.pods.status_input import StatusInput, Tree

#: Status fields the agent owns, in addition to its conditions.
FIELDS = (
    "phase",
    "reason",
    "message",
    "observedGeneration",
    "startTime",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "qosClass",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "allocatedResources",
    "resources",
)
#: Fields that are removed if they are empty.
_TEXTS = ("reason", "message")


def build_status(inputs: StatusInput) -> Tree:
    """Build the owned part of a pod's status."""
    inits, regular, ephemeral = container_statuses(inputs)
    phase, reason, message = _phase(inputs, inits, regular)
    status: Tree = {
        "phase": phase,
        "conditions": conditions_of(inputs, phase, inits, regular),
        "startTime": text(inputs.before, "startTime") or format_time(inputs.now),
        "qosClass": pod_qos(inputs.pod),
        "containerStatuses": regular,
    }
    if inits:
        status["initContainerStatuses"] = inits
    if ephemeral:
        status["ephemeralContainerStatuses"] = ephemeral
    if inputs.pod.metadata.generation:
        status["observedGeneration"] = inputs.pod.metadata.generation
    status.update({key: value for key, value in (("reason", reason), ("message", message)) if value})
    # DIFF: upstream reports the sums of all pods, from their cgroups
    # (test_pod_level_resources_are_reported).
    if inputs.pod_level is not None:
        status["allocatedResources"] = codec.to_tree(inputs.pod_level.requests)
        status["resources"] = codec.to_tree(
            ResourceRequirements(inputs.pod_level.limits, inputs.pod_level.requests)
        )
    status.update(_addresses(inputs))
    return status


def reject_status(pod: Pod, reason: str, message: str, now: float) -> Tree:
    """Build the status of a pod that was rejected."""
    return {
        "phase": FAILED,
        "reason": reason,
        "message": message,
        "startTime": pod.status.start_time or format_time(now),
        "qosClass": pod_qos(pod),
        **({"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}),
    }


def _phase(inputs: StatusInput, inits: Sequence[Tree], regular: Sequence[Tree]) -> tuple[str, str, str]:
    pod, termination = inputs.pod, inputs.termination
    names = {container.name for container in pod.spec.containers}
    initialized = any(s.name in names and s.phase is not ContainerPhase.CREATED for s in inputs.states)
    phase = phase_of(pod, inits, regular, terminal=inputs.terminal, initialized=initialized)
    reason, message = text(inputs.before, "reason"), text(inputs.before, "message")
    reported = text(inputs.before, "phase") or PENDING
    for final in (pod.status.phase, reported):
        if final in TERMINAL:
            return final, reason or pod.status.reason, message or pod.status.message
    fails = termination is not None and termination.cause in (
        TerminationCause.REQUESTED,
        TerminationCause.DEADLINE,
    )
    if fails or (inputs.terminal and phase not in TERMINAL):
        phase = FAILED
    if phase in TERMINAL and not inputs.terminal:
        # Others consider the devices and memory of a terminated pod free: it has to be true.
        phase, fails = reported, False
    if phase != reported:
        reason = message = ""
    if phase == FAILED and termination is not None and termination.reason:
        return phase, termination.reason, termination.message
    return phase, reason, message


def _addresses(inputs: StatusInput) -> Tree:
    found: Tree = {}
    if inputs.host_ips:
        found["hostIP"] = inputs.host_ips[0]
        found["hostIPs"] = [{"ip": address} for address in inputs.host_ips]
    reported = [text(item, "ip") for item in items(inputs.before, "podIPs")]
    pods = inputs.host_ips if inputs.pod.spec.host_network else ()
    if inputs.sandbox is not None and inputs.sandbox.ip:
        pods = (inputs.sandbox.ip,)
    addresses = list(pods) or reported or [address for address in (text(inputs.before, "podIP"),) if address]
    if addresses:
        found["podIP"] = addresses[0]
        found["podIPs"] = [{"ip": address} for address in addresses]
    return found


# -- devices


def device_health(pod: Pod, container: Container, prepared: Iterable[ClaimInfo], health: Any) -> list[Tree]:
    """Return `allocatedResourcesStatus`: the health of the devices of a container's claims."""
    names = resolve_claim_names(pod)
    by_name = {claim.ref.name: claim for claim in prepared if claim.ref.namespace == pod.metadata.namespace}
    found = []
    for reference in container.resources.claims:
        claim = by_name.get(names.get(reference.name, ""))
        if claim is None:
            continue
        wanted = reference.request.partition("/")[0]
        inputs: dict[str, Tree] = {}
        for driver, devices in claim.drivers.items():
            for device in devices:
                if wanted and device.requests and wanted not in device.requests:
                    continue
                id = device.cdi[0] if device.cdi else f"{driver}/{device.pool}/{device.device}"
                known = health(driver, device.pool, device.device)
                entry: Tree = {"resourceID": id, "health": known.status if known else "Unknown"}
                if known and known.message:
                    entry["message"] = known.message
                inputs.setdefault(id, entry)
        if inputs:
            request = f"/{reference.request}" if reference.request else ""
            found.append({"name": f"claim:{reference.name}{request}", "resources": list(inputs.values())})
    return found


# -- patch


def status_patch(uid: str, reported: Mapping[str, Any], status: Mapping[str, Any]) -> Tree | None:
    """Return the strategic merge patch that turns the reported status into `status`; None if they are equal.

    Conditions merge by type; all owned fields that differ are named, and no others.
    """
    changes: Tree = {}
    for field in FIELDS:
        if field in status:
            if reported.get(field) != status[field]:
                changes[field] = status[field]
        elif field in reported and field in _TEXTS:
            changes[field] = None
    for key in ("hostIPs", "podIPs"):
        # These merge by address: removed ones have to be named.
        gone = {text(item, "ip") for item in items(reported, key)} - {
            text(i, "ip") for i in items(status, key)
        }
        if key in changes and gone:
            changes[key] = [*changes[key], *({"$patch": "delete", "ip": ip} for ip in sorted(gone))]
    conditions = _changed_conditions(reported, status)
    if conditions:
        changes["conditions"] = conditions
    if not changes:
        return None
    return {"metadata": {"uid": uid}, "status": changes}


def _changed_conditions(reported: Mapping[str, Any], status: Mapping[str, Any]) -> list[Tree]:
    before = {text(condition, "type"): condition for condition in items(reported, "conditions")}
    wanted = {text(condition, "type"): condition for condition in items(status, "conditions")}
    changed: list[Tree] = []
    for kind, condition in wanted.items():
        known = before.get(kind, {})
        gone: Tree = {key: None for key in _TEXTS if key in known and key not in condition}
        if gone or any(known.get(key) != value for key, value in condition.items()):
            changed.append({**condition, **gone})
    ended = [kind for kind in RESIZE if wanted and kind in before and kind not in wanted]
    return changed + [{"$patch": "delete", "type": kind} for kind in ended]


def merge_reported(reported: Mapping[str, Any], status: Mapping[str, Any]) -> Tree:
    """Return what the API has after a patch: its own fields, with the owned ones replaced."""
    merged = {key: value for key, value in reported.items() if key not in _TEXTS}
    merged.update(status)
    if "conditions" in status:
        ours = {text(condition, "type") for condition in items(status, "conditions")}
        kept = [c for c in items(reported, "conditions") if text(c, "type") not in (*ours, *OWNED)]
        merged["conditions"] = [*kept, *items(status, "conditions")]
    return merged


def reported_status(pod: Pod) -> Tree:
    """Return the status of a pod as it came from the API, as a JSON tree."""
    tree = codec.to_tree(pod.status)
    return tree if isinstance(tree, dict) else {}
