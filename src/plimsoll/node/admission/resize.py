"""Resizing a pod in place: whether it may be, and what is to be changed in which order.

Owns pure functions; nothing is applied here. The way of a resize through an agent:

1. A pod's spec differs from its `Allocation`: `judge_resize(pod, allocated, ledger)`.
   - None: nothing is wanted. Accepted: the spec becomes the allocation (keep it, and `ledger.update`), and
     the pod shows `PodResizeInProgress` (`in_progress(pod)`) until step 2 is done.
   - Deferred, Infeasible: the allocation stays as it is; the pod shows `PodResizePending` (`pending(...)`).
     A deferred one is judged again when the node's books or the spec change, in the order of `sort_pending`;
     an infeasible one when the spec changes.
2. `plan_resize(before, after, ...)` gives the steps: for each, `runtime.update_sandbox` (pod) or
   `runtime.update` (container) with the plan of the step, in this order. A text instead of steps says why it
   cannot be done now: the pod shows it (`in_progress(pod, error)`) and it is tried again. Containers named in
   `restart` are stopped and started anew with their new plans after the steps; `rest` is for then.
3. When all steps are done: no condition is left, and an event tells it (`event_text`).

In the 1.36 form pods with claim charges are not resized at all, as document 000 has it ("Integration with
In-Place Pod Vertical Scaling"); the API server refuses them too. In the 1.37 form what claims charge counts
towards the budget of the pod as a whole and towards the node's line.

DIFF: what is more than the node has in all is infeasible; upstream defers it for ever, and meanwhile the
scheduler takes the node for full (test_more_than_the_node_has_is_infeasible).

DIFF: a resize that asks for no more than the pod has is not deferred, even on a node past its line
(test_shrinking_is_never_deferred).

DIFF: a container's memory limit that cannot be lowered is told with the container's usage; upstream tells the
pod's (test_a_limit_below_usage_is_not_set).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from plimsoll.api.core import Container, Pod, ResourceRequirements
from plimsoll.api.forms import Form
from plimsoll.api.meta import Condition
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.budget import budget_breaches
from plimsoll.ledger.cgroups import ContainerPlan, PodPlan
from plimsoll.ledger.cgroups.conversions import UNLIMITED
from plimsoll.ledger.claims import Bill, bills_in_status
from plimsoll.ledger.fit import request_shortages
from plimsoll.ledger.judge import demand_of
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.pools import draw
from plimsoll.ledger.qos import GUARANTEED, qos_class
from plimsoll.ledger.requests import before_running, pod_requests
from plimsoll.ledger.texts import render, render_shortage
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.node.admission.allocation import RESIZABLE, Allocation
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.enforcement import Enforced

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"


class Outcome(StrEnum):
    """What becomes of a resize."""

    ACCEPTED = "Accepted"
    DEFERRED = "Deferred"  #: not now
    INFEASIBLE = "Infeasible"  #: not on this node


@dataclass(frozen=True, slots=True)
class Resize:
    """A judgement; `message` says why it is not accepted."""

    outcome: Outcome
    message: str = ""

    @property
    def accepted(self) -> bool:
        return self.outcome is Outcome.ACCEPTED


ACCEPTED = Resize(Outcome.ACCEPTED)


# -- whether


def judge_resize(
    pod: Pod, allocated: Allocation, ledger: NodeLedger, *, form: Form | None = None
) -> Resize | None:
    """Whether what a pod's spec asks for now may take the place of what was set aside for it.

    The ledger is that of the node, with the pod on it or not; it is not changed. Whether pods can be resized
    at all follows from the gates the ledger was made with.
    """
    before = allocated.onto(pod)
    if not is_resized(pod, before):
        return None
    refusal = _refuse(pod, before, ledger, form or ledger.options.form)
    if refusal:
        return Resize(Outcome.INFEASIBLE, refusal)
    reasons = [*_shortages(pod, before, ledger)]
    if not reasons:
        return ACCEPTED
    hopeless = [reason for reason in reasons if not reason.resolvable]
    reason = (hopeless or reasons)[0]
    text = render_shortage(reason) if reason.cause is Cause.INSUFFICIENT else render(reason)
    return Resize(Outcome.INFEASIBLE if hopeless else Outcome.DEFERRED, text)


def is_resized(pod: Pod, before: Pod) -> bool:
    """Whether cpu or memory of a container, or of the pod as a whole, differ."""
    pairs = zip(_containers(pod), _containers(before), strict=True)
    return any(not _same(now.resources, was.resources) for now, was in pairs) or _whole_differs(pod, before)


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _whole_differs(pod: Pod, before: Pod) -> bool:
    now, was = pod.spec.resources, before.spec.resources
    return now is not None and was is not None and not _same(now, was)


def _same(now: ResourceRequirements, was: ResourceRequirements) -> bool:
    return all(
        now.requests.get(name, ZERO) == was.requests.get(name, ZERO)
        and now.limits.get(name, ZERO) == was.limits.get(name, ZERO)
        for name in RESIZABLE
    )


def _refuse(pod: Pod, before: Pod, ledger: NodeLedger, form: Form) -> str:
    """Why a resize is out of the question, whatever room there is."""
    options = ledger.options
    if not options.use_status:
        return "InPlacePodVerticalScaling is disabled"
    if _whole_differs(pod, before) and not options.in_place_pod_level:
        return "InPlacePodLevelResourcesVerticalScaling is disabled"
    bills = bills_in_status(pod, ledger.profile) if options.count_claims else ()
    if bills and form is Form.V1_36:
        return "pods with node allocatable resource claims cannot be resized"
    pod_level = not options.skip_pod_level
    if qos_class(pod.spec, form, pod_level=pod_level) != qos_class(before.spec, form, pod_level=pod_level):
        return "the QoS class cannot be changed by a resize"
    return _other_draw(pod, before, bills, ledger)


def _other_draw(pod: Pod, before: Pod, bills: Iterable[Bill], ledger: NodeLedger) -> str:
    """What a pod draws from pools is settled when it is placed: only its scheduler can change that."""
    charges = [bill.charge for bill in bills]
    options = before_running(ledger.options)
    drawn, was = (draw(each, charges, options, {}, overdraw=True) for each in (pod, before))
    assert isinstance(drawn, dict)
    assert isinstance(was, dict)
    for (claim, resource), amount in drawn.items():
        if amount != was.get((claim, resource), ZERO):
            return f"claim {claim}: what is drawn of {resource} was settled when the pod was placed"
    return ""


def _shortages(pod: Pod, before: Pod, ledger: NodeLedger) -> Iterable[Reason]:
    """What the pod as a whole, or the node, lacks for a resize."""
    others = ledger.without(pod)
    options = before_running(others.options)
    bills = bills_in_status(pod, others.profile) if options.count_claims else ()
    charges = [bill.charge for bill in bills]
    limits = others.profile.budget_limits or options.form is not Form.V1_36
    yield from budget_breaches(pod, charges, options, limits)
    # The pods that are there are there; only what grows can be too much.
    demand = demand_of(others, pod, bills, options)
    had = demand_of(others, before, bills, options)
    grows = {name: amount for name, amount in demand.items() if amount > had.get(name, 0)}
    for reason in request_shortages(grows, others.allocatable, others.requested, 0):
        if reason.cause is Cause.INSUFFICIENT:
            yield reason


# -- what is told


def pending(pod: Pod, judged: Resize) -> Condition:
    """The condition of a pod whose resize waits or cannot be."""
    return _condition(PENDING, pod, judged.outcome.value, judged.message)


def in_progress(pod: Pod, error: str = "") -> Condition:
    """The condition of a pod that is being resized, or cannot be at the moment."""
    return _condition(IN_PROGRESS, pod, "Error" if error else "", error)


def _condition(type: str, pod: Pod, reason: str, message: str) -> Condition:
    return Condition(
        type=type,
        status="True",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation,
    )


def event_text(pod: Pod, what: str, error: str = "") -> str:
    """The text of an event about a resize; `what`: started, completed, error, Deferred or Infeasible."""
    summary: dict[str, object] = {}
    for name, containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        if containers:
            summary[name] = [{"name": c.name, "resources": _summary(c.resources)} for c in containers]
    summary["generation"] = pod.metadata.generation
    if error:
        summary["error"] = error
    return f"Pod resize {what}: {json.dumps(summary, separators=(',', ':'))}"


def _summary(resources: ResourceRequirements) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            found[name] = {resource: str(amounts[resource]) for resource in sorted(amounts)}
    if resources.claims:
        found["claims"] = [
            {"name": claim.name} | ({"request": claim.request} if claim.request else {})
            for claim in resources.claims
        ]
    return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod whose resize waits, and since when."""

    pod: Pod
    allocated: Allocation
    since: float


def sort_pending(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Who is tried first: what frees something, then by priority, QoS class and how long it has waited."""
    return sorted(waiting, key=_turn)


def _turn(one: Waiting) -> tuple[bool, int, bool, float]:
    now, was = pod_requests(one.pod), pod_requests(one.allocated.onto(one.pod))
    grows = any(now.get(name, ZERO) > was.get(name, ZERO) for name in RESIZABLE)
    guaranteed = qos_class(one.pod.spec) == GUARANTEED
    return (grows, -(one.pod.spec.priority or 0), not guaranteed, one.since)


# -- how


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to apply: the plan of a container, or (without a name) of the pod's cgroup."""

    container: str
    plan: ContainerPlan | PodPlan


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """What is to be applied, in this order; then the containers that have to be started anew.

    `rest` is the pod's own last step where it has to wait until they were: what they run with until then may
    be more than the pod is to have.
    """

    steps: tuple[Step, ...] = ()
    restart: tuple[str, ...] = ()
    rest: Step | None = None


def plan_resize(
    pod: Pod,
    allocated: Allocation,
    before: Enforced,
    after: Enforced,
    running: Collection[str],
    usage: PodUsage | None = None,
    usages: Mapping[str, PodUsage] | None = None,
) -> ResizePlan | str:
    """The steps from one plan to another, or why they cannot be done now.

    `allocated` is what was set aside before, `running` the containers that run. The pod's cgroup gets the
    greater of both values first and its own values last, so that no container ever has more than its pod.
    """
    changed = [
        name
        for name, plan in after.containers.items()
        if name in running and plan != before.containers.get(name)
    ]
    restart = tuple(name for name in changed if _needs_restart(name, pod, allocated.onto(pod)))
    updates = [name for name in changed if name not in restart]
    error = _below_usage(before, after, updates, None if restart else usage, usages or {})
    if error:
        return error
    steps = []
    grown = _grown(before.pod, after.pod)
    if grown != before.pod:
        steps.append(Step("", grown))
    shrinking = [name for name in updates if _shrinks(before.containers.get(name), after.containers[name])]
    for name in (*shrinking, *(name for name in updates if name not in shrinking)):
        steps.append(Step(name, after.containers[name]))
    last = Step("", after.pod) if after.pod != grown else None
    if last is not None and not restart:
        steps.append(last)
    return ResizePlan(tuple(steps), restart, last if restart else None)


def _needs_restart(name: str, pod: Pod, before: Pod) -> bool:
    """Whether a resource that changes is one that the container has to be restarted for."""
    now = next((c for c in _containers(pod) if c.name == name), None)
    was = next((c for c in _containers(before) if c.name == name), None)
    if now is None or was is None:
        return False
    policies = {policy.resource_name: policy.restart_policy for policy in now.resize_policy}
    return any(
        policies.get(resource) == "RestartContainer"
        for resource in RESIZABLE
        if _effective(now, pod, resource) != _effective(was, before, resource)
    )


def _effective(container: Container, pod: Pod, resource: str) -> tuple[Quantity, Quantity]:
    """Request and limit of a container; where it has no limit, that of the pod as a whole."""
    whole = pod.spec.resources.limits.get(resource, ZERO) if pod.spec.resources is not None else ZERO
    own = container.resources
    return own.requests.get(resource, ZERO), own.limits.get(resource, ZERO) or whole


def _grown(before: PodPlan, after: PodPlan) -> PodPlan:
    """The pod's cgroup while its containers change: as before, and nothing smaller than it is to be."""
    return replace(
        before,
        cpu_shares=max(before.cpu_shares, after.cpu_shares),
        cpu_quota=_wider(before.cpu_quota, after.cpu_quota),
        memory=_wider(before.memory, after.memory),
    )


def _wider(before: int | None, after: int | None) -> int | None:
    """The greater of two limits; no limit is the greatest, but one that is there is never taken away."""
    if before is None or before == UNLIMITED or after is None:
        return before
    return after if after == UNLIMITED else max(before, after)


def _shrinks(before: ContainerPlan | None, after: ContainerPlan) -> bool:
    return before is not None and (
        _is_lower(after.memory_limit, before.memory_limit) or _is_lower(after.cpu_quota, before.cpu_quota)
    )


def _is_lower(after: int, before: int) -> bool:
    """Whether a limit is new or lower; 0 and -1 are no limit."""
    return after > 0 and (before <= 0 or after < before)


def _below_usage(
    before: Enforced,
    after: Enforced,
    updates: Iterable[str],
    usage: PodUsage | None,
    usages: Mapping[str, PodUsage],
) -> str:
    """Why memory limits cannot be lowered: the kernel would kill somebody, or refuse."""
    found = []
    limit = after.pod.memory or 0
    if _is_lower(limit, before.pod.memory or 0) and usage is not None:
        if usage.memory_in_use is None:
            found.append("missing pod memory usage")
        elif usage.memory_in_use >= limit:
            found.append(
                f"attempting to set pod memory limit ({limit}) below current usage ({usage.memory_in_use})"
            )
    for name in updates:
        limit, known = after.containers[name].memory_limit, before.containers.get(name)
        used = usages.get(name)
        if used is None or not _is_lower(limit, known.memory_limit if known is not None else 0):
            continue
        if used.memory_in_use is None:
            found.append(f'missing container "{name}" memory usage')
        elif used.memory_in_use >= limit:
            found.append(
                f'attempting to set container "{name}" memory limit ({limit}) '
                f"below current usage ({used.memory_in_use})"
            )
    if not found:
        return ""
    together = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
    return f"cannot decrease memory limits: {together}"
