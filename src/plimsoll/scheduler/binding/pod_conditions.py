"""PodScheduled condition of a pod: reason, message and patch.

Renders a `FitError` as kube-scheduler's message ("0/5 nodes are available: ...", with exactly its wording and
order) and the errors of a binding (`BindError`). Patches are only built if something changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.ledger.messages import format_reason as render_charge
from plimsoll.ledger.verdict import Cause, Reason, VerdictCode
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts, Rule, render
from plimsoll.scheduler.result import FitError

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"

#: Longest note of an event; conditions have no limit.
_NOTE_MAX = 1024
_NO_NODES = "no nodes available to schedule pods"
_NODES = "0/{nodes} nodes are available:"
#: Causes that 1.37 does not distinguish.
_SHARED = frozenset({Cause.SHARED_BY_SEVERAL, Cause.USED_BY_ANOTHER})


class BindError(Enum):
    """Errors of a binding; format fields are filled in by `format_bind_error`."""

    ADD_FINALIZER = "add finalizer to claim {claim}: {error}"
    ADD_ALLOCATION = "add allocation and reservation to claim {claim}: {error}"
    ADD_RESERVATION = "add reservation to claim {claim}: {error}"
    CLAIM_GONE = "claim {claim} got deleted in the meantime"
    CLAIM_TAKEN = "claim {claim} got allocated elsewhere in the meantime"
    CLAIM_RELEASED = "claim {claim} got deallocated elsewhere in the meantime"
    CLAIMS_CHANGED = "claims of pod {pod} got replaced in the meantime"
    CREATE = "create claim for extended resources {claim}: {error}"
    CLAIM_STATUS = "update pod {pod} ExtendedResourceClaimStatus: {error}"
    CLAIM_STATUS_DROPPED = (
        "update pod {pod} ExtendedResourceClaimStatus: the API server does not store it; "
        "is its feature gate DRAExtendedResource off?"
    )
    CHARGES = "updating pod {pod} NodeAllocatableResourceClaimStatuses: {error}"
    CREATE_PLACEHOLDER = "create placeholder {name}: {error}"
    PLACEHOLDER_REFUSED = (
        "node {node} has no room for the charges of the claims (placeholder {name}: {refusal})"
    )
    DEVICES_FAILED = 'device binding failed: claim={name}, reason={reason}, message="{message}"'
    DEVICES_LATE = "device binding timeout: claim={name}"
    DEVICE_HELD = "device {device} is allocated to another claim as well"
    VOLUMES = "{problem}"
    BINDING = "{error}"


#: Plugin prefixes of kube-scheduler.
_PLUGINS = {
    BindError.VOLUMES: 'running PreBind plugin "VolumeBinding": ',
    BindError.BINDING: 'running Bind plugin "DefaultBinder": ',
}
_PRE_BIND = 'running PreBind plugin "DynamicResources": '


class Deallocation(Enum):
    """Result of looking for a claim to deallocate for an unschedulable pod; 1.37 reports it only if done."""

    NONE = "no new claims to deallocate"
    KEPT = "still not schedulable"
    DONE = "deallocation of ResourceClaim completed"
    DELETED = "deletion of ResourceClaim completed"


def format_bind_error(error_kind: BindError, **fields: object) -> str:
    """Format the message of a binding error, with kube-scheduler's plugin prefix."""
    return _PLUGINS.get(error_kind, _PRE_BIND) + error_kind.value.format_map(fields)


def render_fit_error(fit_error: FitError, preemption_text: str = "", *, minor: int = 36) -> str:
    """Render why a pod is unschedulable, in one line, as kube-scheduler 1.`minor` does.

    `preemption_text` is the result of preemption ("preemption: 0/5 nodes are available: ..."), empty where
    pods are being preempted.
    """
    error = _first_error(fit_error)
    if error is not None:
        return error
    if not fit_error.nodes:
        return _NO_NODES
    text = _render_reasons(fit_error.nodes, fit_error.reasons, minor)
    if preemption_text and minor < 37:  # it looks for a claim to deallocate before it preempts
        preemption_text = f"{_deallocation_of(fit_error).value}, {preemption_text}"
    return f"{text} {preemption_text}" if preemption_text else text


def failure_reason(outcome: FitError | NodeReason | None) -> str:
    """Return the reason of PodScheduled=False; None is a binding that failed."""
    if outcome is None:
        return SCHEDULER_ERROR
    reasons = [outcome] if isinstance(outcome, NodeReason) else [reason for reason, _ in outcome.reasons]
    if any(reason.code is VerdictCode.ERROR for reason in reasons):
        return SCHEDULER_ERROR
    if reasons and all(reason.rule is Rule.SCHEDULING_GATES for reason in reasons):
        return SCHEDULING_GATED
    return UNSCHEDULABLE


def shorten(text: str) -> str:
    """Truncate a text to the limit of an event."""
    return text if len(text) <= _NOTE_MAX else text[: _NOTE_MAX - 4] + " ..."


# -- the patch of a pod's status


def plan_condition(
    pod: Pod, reason: str, message: str, now: str, nominated: str | None = None
) -> dict[str, Any] | None:
    """Build the strategic merge patch for PodScheduled=False; None if nothing changes.

    `nominated` is the nominated node, "" clears it, None leaves it. `now` is the time in API format; the
    transition time changes only with the status.
    """
    status: dict[str, Any] = {}
    condition = change_condition(pod, POD_SCHEDULED, "False", reason, message, now)
    if condition is not None:
        status["conditions"] = [condition]
    if nominated is not None and nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    return {"metadata": {"uid": pod.metadata.uid}, "status": status} if status else None


def change_condition(
    pod: Pod, type: str, status: str, reason: str, message: str, now: str
) -> dict[str, Any] | None:
    """Build a condition of a pod; None if the pod has it already."""
    known = next((each for each in pod.status.conditions if each.type == type), None)
    if known is not None and (known.status, known.reason, known.message) == (status, reason, message):
        return None
    since = known.last_transition_time if known is not None and known.status == status else None
    condition: dict[str, Any] = {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": since or now,
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    return condition


# -- texts


def _first_error(fit_error: FitError) -> str | None:
    """Return the first error: it ends an attempt, and is reported alone."""
    for reason, count in fit_error.reasons:
        if reason.code is VerdictCode.ERROR:
            rule = reason.rule.value
            where = f'running "{rule}" filter plugin' if count else f'running PreFilter plugin "{rule}"'
            return f"{where}: {render(reason)}"
    return None


def _render_reasons(nodes: int, reasons: Iterable[tuple[NodeReason, int]], minor: int) -> str:
    """Render reasons about the pod alone; those about nodes are counted and sorted by text."""
    reasons = list(reasons)
    head = _NODES.format(nodes=nodes)
    own = [_render_reason(reason, minor) for reason, count in reasons if not count]
    if own:
        return f"{head} {', '.join(own)}."
    counts = ReasonCounts()
    for reason, count in reasons:
        counts.add(reason, count)
    texts = sorted(f"{count} {_render_reason(reason, minor)}" for reason, count in counts.items())
    return f"{head} {', '.join(texts)}." if texts else head


def _render_reason(reason: NodeReason, minor: int) -> str:
    cause = reason.cause
    if minor >= 37 and isinstance(cause, Reason) and cause.cause in _SHARED:
        return render_charge(replace(cause, cause=Cause.MAPPED_DEVICE_SHARED))
    return render(reason)


def _deallocation_of(fit_error: FitError) -> Deallocation:
    """Return NONE if there are no claims, or if the attempt ended before they were considered."""
    early = any(not count for _, count in fit_error.reasons)
    return Deallocation.NONE if early or not fit_error.pod_info.claims else Deallocation.KEPT
