"""What a pod is told about its placement: the condition PodScheduled, its reason and its message.

Owns the sentence that users of Kubernetes know ("0/5 nodes are available: ..."), made from an `Unplaced`;
what can go wrong while a placement is written down (`Mishap`); and the patch of a pod's status, which is only
written where it would change something. Promises: kube-scheduler's wording and order, to the letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.meta import Condition
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.result import FitError

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"

#: Events have room for so many characters; conditions for any number.
_NOTE_MAX = 1024
_NO_NODES = "no nodes available to schedule pods"
_NODES = "0/{nodes} nodes are available:"


class Mishap(Enum):
    """What can go wrong while a placement is written down; facts go into the braces."""

    ADD_FINALIZER = "add finalizer to claim {claim}: {error}"
    ADD_ALLOCATION = "add allocation and reservation to claim {claim}: {error}"
    ADD_RESERVATION = "add reservation to claim {claim}: {error}"
    CLAIM_GONE = "claim {claim} got deleted in the meantime"
    CLAIM_TAKEN = "claim {claim} got allocated elsewhere in the meantime"
    CLAIM_RELEASED = "claim {claim} got deallocated elsewhere in the meantime"
    CHARGES = "updating pod {pod} NodeAllocatableResourceClaimStatuses: {error}"
    DEVICES_FAILED = 'device binding failed: claim={name}, reason={reason}, message="{message}"'
    DEVICES_LATE = "device binding timeout: claim={name}"
    DEVICE_HELD = "device {device} is allocated to another claim as well"
    BINDING = "{error}"


#: Which part of kube-scheduler says so.
_PLUGINS = {Mishap.BINDING: 'running Bind plugin "DefaultBinder": '}
_PRE_BIND = 'running PreBind plugin "DynamicResources": '


class Deallocation(Enum):
    """What became of the claims of a pod without a place: whether one could be given up for others."""

    NONE = "no new claims to deallocate"
    KEPT = "still not schedulable"
    DONE = "deallocation of ResourceClaim completed"


def explain_mishap(mishap: Mishap, **facts: object) -> str:
    """The sentence for a mishap, with the name of the step users of kube-scheduler know."""
    return _PLUGINS.get(mishap, _PRE_BIND) + mishap.value.format_map(facts)


def render_unplaced(
    fit_error: FitError, preemption_text: str = "", deallocation: Deallocation | None = None
) -> str:
    """Why a pod has no place, in one line.

    `preemption_text` is what preemption has to say ("preemption: 0/5 nodes are available: ..."); it is empty
    where pods are being preempted, and then nothing more is said. `deallocation` is worked out where it is
    not given: kube-scheduler looks for a claim to give up before it looks for pods.
    """
    error = _first_error(fit_error)
    if error is not None:
        return error
    if not fit_error.nodes:
        return _NO_NODES
    text = _render_reasons(fit_error.nodes, fit_error.reasons)
    if preemption_text:
        text += f" {(deallocation or _deallocation_of(fit_error)).value}, {preemption_text}"
    return text


def failure_reason(outcome: FitError | NodeReason | None) -> str:
    """The reason of PodScheduled=False: None is a placement that could not be written down."""
    if outcome is None:
        return SCHEDULER_ERROR
    reasons = [outcome] if isinstance(outcome, NodeReason) else [reason for reason, _ in outcome.reasons]
    if any(reason.code is VerdictCode.ERROR for reason in reasons):
        return SCHEDULER_ERROR
    if reasons and all(reason.rule is Rule.SCHEDULING_GATES for reason in reasons):
        return SCHEDULING_GATED
    return UNSCHEDULABLE


def shorten(text: str) -> str:
    """A text that fits into an event."""
    return text if len(text) <= _NOTE_MAX else text[: _NOTE_MAX - 4] + " ..."


# -- the patch of a pod's status


def plan_condition(
    pod: Pod, reason: str, message: str, now: str, nominated: str | None = None
) -> dict[str, Any] | None:
    """The patch (strategic merge) that tells a pod it is not scheduled; None if it says so already.

    `nominated` is the node that is being cleared for it, "" takes that back, None leaves it. `now` is a time
    as the API writes it; the time of a condition changes only when its status does.
    """
    known = next((each for each in pod.status.conditions if each.type == POD_SCHEDULED), None)
    status: dict[str, Any] = {}
    if known is None or (known.status, known.reason, known.message) != ("False", reason, message):
        status["conditions"] = [_condition(pod, known, reason, message, now)]
    if nominated is not None and nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    return {"metadata": {"uid": pod.metadata.uid}, "status": status} if status else None


def _condition(pod: Pod, known: Condition | None, reason: str, message: str, now: str) -> Mapping[str, Any]:
    since = known.last_transition_time if known is not None and known.status == "False" else None
    condition: dict[str, Any] = {
        "type": POD_SCHEDULED,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": since or now,
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    return condition


# -- sentences


def _first_error(fit_error: FitError) -> str | None:
    """An error ends an attempt where it occurs; nothing else is said then."""
    for reason, count in fit_error.reasons:
        if reason.code is VerdictCode.ERROR:
            rule = reason.rule.value
            where = f'running "{rule}" filter plugin' if count else f'running PreFilter plugin "{rule}"'
            return f"{where}: {render(reason)}"
    return None


def _render_reasons(nodes: int, reasons: Iterable[tuple[NodeReason, int]]) -> str:
    """Reasons about the pod itself stand alone; those about nodes are counted and sorted as texts."""
    reasons = list(reasons)
    head = _NODES.format(nodes=nodes)
    own = [render(reason) for reason, count in reasons if not count]
    if own:
        return f"{head} {', '.join(own)}."
    counted = Counter[str]()
    for reason, count in reasons:
        counted[render(reason)] += count
    texts = sorted(f"{count} {text}" for text, count in counted.items())
    return f"{head} {', '.join(texts)}." if texts else head


def _deallocation_of(fit_error: FitError) -> Deallocation:
    """Without claims, or where claims were not even looked at, there is nothing to give up."""
    early = any(not count for _, count in fit_error.reasons)
    return Deallocation.NONE if early or not fit_error.pod_info.claims else Deallocation.KEPT
