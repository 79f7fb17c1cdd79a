"""In-place pod resize: feasibility, and the ordered steps to apply it.

Pure functions; nothing is applied here. The sequence of a resize:

1. A pod's spec differs from its `PodAllocation`: `check_resize(pod, allocated, ledger)`.
  - None: nothing to do. Accepted: the spec becomes the allocation (store it, and `ledger.update`), and
    the pod shows `PodResizeInProgress` (`in_progress_condition(pod)`) until step 2 is done.
  - Deferred, Infeasible: the allocation stays; the pod shows `PodResizePending` (`pending_condition(...)`).
    A deferred resize is checked again when the node's ledger or the spec change, an infeasible one when the
    spec changes.
2. `plan_resize(before, after, ...)` returns the steps: for each, call `runtime.update_sandbox` (pod) or
  `runtime.update` (container) with the plan of the step, in this order. If it returns a message instead,
  the resize cannot be applied now: the pod shows it (`in_progress_condition(pod, error)`) and it is
  retried. Containers named in `restart` are restarted with their new plans after the steps, then `rest`
  is applied.
3. When all steps are done, the conditions are removed and an event is emitted (`format_resize_event`).

In the 1.36 form pods with claim charges are not resized at all, as in KEP-5517, "Integration with In-Place
Pod Vertical Scaling"; the API server rejects them too. In the 1.37 form claim charges count towards the
pod-level budget and the node's allocatable amount.

DIFF: a resize beyond the node's allocatable amount is infeasible; upstream defers it indefinitely, and
meanwhile the scheduler considers the node full (test_more_than_the_node_has_is_infeasible).

DIFF: a resize that asks for no more than the pod has is not deferred, even on an overcommitted node
(test_shrinking_is_never_deferred).

DIFF: a container's memory limit that cannot be lowered is reported with the container's usage; upstream
reports the pod's (test_a_limit_below_usage_is_not_set).
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
from plimsoll.ledger.claims import ChargedClaim, read_charged_claims
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.messages import format_admission_message, format_reason
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import compute_demand
from plimsoll.ledger.pod_level_budget import find_budget_violations
from plimsoll.ledger.pools import draw_from_pools
from plimsoll.ledger.qos import BEST_EFFORT, claimed_qos, qos_class
from plimsoll.ledger.requests import PodResourcesOptions, without_status
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.node.admission.allocation import RESIZABLE, PodAllocation
from plimsoll.node.cgroup_planner import PodCgroupPlans
from plimsoll.node.cgroup_plans import ContainerPlan, PodPlan
from plimsoll.node.cgroup_plans.conversions import UNLIMITED
from plimsoll.node.cgroups.values import PodUsage

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"


class ResizeOutcome(StrEnum):
    """Outcome of a resize check."""

    ACCEPTED = "Accepted"
    DEFERRED = "Deferred"  #: cannot be granted now
    INFEASIBLE = "Infeasible"  #: can never be granted on this node


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """Result of a resize check; `message` gives the reason if it was not accepted."""

    outcome: ResizeOutcome
    message: str = ""

    @property
    def accepted(self) -> bool:
        return self.outcome is ResizeOutcome.ACCEPTED


ACCEPTED = ResizeDecision(ResizeOutcome.ACCEPTED)


# -- feasibility


def check_resize(
    pod: Pod, allocated: PodAllocation, ledger: NodeLedger, *, form: Form | None = None
) -> ResizeDecision | None:
    """Check whether a pod can be allocated what its spec asks for now; None if it already is.

    The ledger is the node's, with or without the pod on it; it is not changed. The ledger's feature gates
    decide whether pods can be resized at all.
    """
    before = allocated.apply_to(pod)
    if not is_resized(pod, before):
        return None
    reason_text = _infeasible_reason(pod, before, ledger, form or ledger.options.form)
    if reason_text:
        return ResizeDecision(ResizeOutcome.INFEASIBLE, reason_text)
    reasons = [*_shortages(pod, before, ledger)]
    if not reasons:
        return ACCEPTED
    unresolvable = [reason for reason in reasons if not reason.resolvable]
    reason = (unresolvable or reasons)[0]
    text = format_admission_message(reason) if reason.cause is Cause.INSUFFICIENT else format_reason(reason)
    return ResizeDecision(ResizeOutcome.INFEASIBLE if unresolvable else ResizeOutcome.DEFERRED, text)


def is_resized(pod: Pod, before: Pod) -> bool:
    """Return whether cpu or memory of a container, or at pod level, differ."""
    pairs = zip(_containers(pod), _containers(before), strict=True)
    return any(not _same(now.resources, was.resources) for now, was in pairs) or _pod_level_differs(
        pod, before
    )


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _pod_level_differs(pod: Pod, before: Pod) -> bool:
    now, was = pod.spec.resources, before.spec.resources
    return now is not None and was is not None and not _same(now, was)


def _same(now: ResourceRequirements, was: ResourceRequirements) -> bool:
    return all(
        now.requests.get(name, ZERO) == was.requests.get(name, ZERO)
        and now.limits.get(name, ZERO) == was.limits.get(name, ZERO)
        for name in RESIZABLE
    )


def _infeasible_reason(pod: Pod, before: Pod, ledger: NodeLedger, form: Form) -> str:
    """Return why a resize is infeasible whatever is free, or ""."""
    options = ledger.options
    if not options.use_status:
        return "InPlacePodVerticalScaling is disabled"
    if _pod_level_differs(pod, before) and not options.in_place_pod_level:
        return "InPlacePodLevelResourcesVerticalScaling is disabled"
    charged_claims = read_charged_claims(pod, ledger.profile) if options.count_claims else ()
    if charged_claims and form is Form.V1_36:
        return "pods with node allocatable resource claims cannot be resized"
    if _qos_of(pod, form, options) != _qos_of(before, form, options):
        return "the QoS class cannot be changed by a resize"
    return _changed_draw(pod, before, charged_claims, ledger)


def _qos_of(pod: Pod, form: Form, options: PodResourcesOptions) -> str:
    """Return the QoS class of a pod's resources and claims, whatever its status shows."""
    qos = qos_class(pod.spec, form, pod_level=not options.skip_pod_level)
    return claimed_qos(pod) if qos == BEST_EFFORT and options.claims_in_qos else qos


def _changed_draw(pod: Pod, before: Pod, charged_claims: Iterable[ChargedClaim], ledger: NodeLedger) -> str:
    """Return an error if a resize changes the draw from pools, which only the scheduler can change."""
    charges = [charged_claim.charge for charged_claim in charged_claims]
    options = without_status(ledger.options)
    drawn, was = (draw_from_pools(each, charges, options, {}, overdraw=True) for each in (pod, before))
    assert isinstance(drawn, dict)
    assert isinstance(was, dict)
    for (claim, resource), amount in drawn.items():
        if amount != was.get((claim, resource), ZERO):
            return (
                f"claim {claim}: the amount of {resource} drawn from it was fixed when the pod was scheduled"
            )
    return ""


def _shortages(pod: Pod, before: Pod, ledger: NodeLedger) -> Iterable[Reason]:
    """Yield what the pod-level budget or the node lacks for a resize."""
    others = ledger.without(pod)
    options = without_status(others.options)
    charged_claims = read_charged_claims(pod, others.profile) if options.count_claims else ()
    charges = [charged_claim.charge for charged_claim in charged_claims]
    limits = others.profile.budget_limits or options.form is not Form.V1_36
    yield from find_budget_violations(pod, charges, options, limits)
    # Pods that are admitted stay; only growth can be too much.
    demand = compute_demand(others, pod, charged_claims, options)
    had = compute_demand(others, before, charged_claims, options)
    grows = {name: amount for name, amount in demand.items() if amount > had.get(name, 0)}
    for reason in find_request_shortages(grows, others.allocatable, others.requested, 0):
        if reason.cause is Cause.INSUFFICIENT:
            yield reason


# -- conditions and events


def pending_condition(pod: Pod, decision: ResizeDecision) -> Condition:
    """Return the condition of a pod whose resize is deferred or infeasible."""
    return _condition(PENDING, pod, decision.outcome.value, decision.message)


def in_progress_condition(pod: Pod, error: str = "") -> Condition:
    """Return the condition of a pod whose resize is being applied, or failed for now."""
    return _condition(IN_PROGRESS, pod, "Error" if error else "", error)


def _condition(type: str, pod: Pod, reason: str, message: str) -> Condition:
    return Condition(
        type=type,
        status="True",
        reason=reason,
        message=message,
        observed_generation=pod.metadata.generation,
    )


def format_resize_event(pod: Pod, what: str, error: str = "") -> str:
    """Format the message of a resize event; `what`: started, completed, error, Deferred or Infeasible."""
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


# -- steps


@dataclass(frozen=True, slots=True)
class ResizeStep:
    """One step of a resize: the plan of a container, or (without a name) of the pod's cgroup."""

    container: str
    plan: ContainerPlan | PodPlan


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """Ordered steps of a resize, then the containers to restart.

    `rest` is the pod's own last step if it has to follow the restarts: until then containers may use more
    than the pod is to have.
    """

    steps: tuple[ResizeStep, ...] = ()
    restart: tuple[str, ...] = ()
    rest: ResizeStep | None = None


def plan_resize(
    pod: Pod,
    allocated: PodAllocation,
    before: PodCgroupPlans,
    after: PodCgroupPlans,
    running: Collection[str],
    usage: PodUsage | None = None,
    usages: Mapping[str, PodUsage] | None = None,
) -> ResizePlan | str:
    """Plan the steps from one plan to another; return a message if they cannot be applied now.

    `allocated` is the allocation before the resize, `running` the running containers. The pod's cgroup first
    gets the greater of both values and its final values last, so that no container ever exceeds its pod.
    """
    changed = [
        name
        for name, plan in after.containers.items()
        if name in running and plan != before.containers.get(name)
    ]
    restart = tuple(name for name in changed if _needs_restart(name, pod, allocated.apply_to(pod)))
    updates = [name for name in changed if name not in restart]
    error = _below_usage(before, after, updates, None if restart else usage, usages or {})
    if error:
        return error
    steps = []
    widest = _widest(before.pod, after.pod)
    if widest != before.pod:
        steps.append(ResizeStep("", widest))
    shrinking = [name for name in updates if _shrinks(before.containers.get(name), after.containers[name])]
    for name in (*shrinking, *(name for name in updates if name not in shrinking)):
        steps.append(ResizeStep(name, after.containers[name]))
    last = ResizeStep("", after.pod) if after.pod != widest else None
    if last is not None and not restart:
        steps.append(last)
    return ResizePlan(tuple(steps), restart, last if restart else None)


def _needs_restart(name: str, pod: Pod, before: Pod) -> bool:
    """Return whether a changed resource requires a restart of the container."""
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
    """Return request and limit of a container; without a limit, that of the pod level."""
    pod_limit = pod.spec.resources.limits.get(resource, ZERO) if pod.spec.resources is not None else ZERO
    own = container.resources
    return own.requests.get(resource, ZERO), own.limits.get(resource, ZERO) or pod_limit


def _widest(before: PodPlan, after: PodPlan) -> PodPlan:
    """Return the pod's cgroup while its containers change: no value below the old or the new one."""
    return replace(
        before,
        cpu_shares=max(before.cpu_shares, after.cpu_shares),
        cpu_quota=_wider(before.cpu_quota, after.cpu_quota),
        memory=_wider(before.memory, after.memory),
    )


def _wider(before: int | None, after: int | None) -> int | None:
    """Return the greater of two limits; unlimited is the greatest, but an existing limit is never removed."""
    if before is None or before == UNLIMITED or after is None:
        return before
    return after if after == UNLIMITED else max(before, after)


def _shrinks(before: ContainerPlan | None, after: ContainerPlan) -> bool:
    return before is not None and (
        _is_lower(after.memory_limit, before.memory_limit) or _is_lower(after.cpu_quota, before.cpu_quota)
    )


def _is_lower(after: int, before: int) -> bool:
    """Return whether a limit is new or lower; 0 and -1 mean no limit."""
    return after > 0 and (before <= 0 or after < before)


def _below_usage(
    before: PodCgroupPlans,
    after: PodCgroupPlans,
    updates: Iterable[str],
    usage: PodUsage | None,
    usages: Mapping[str, PodUsage],
) -> str:
    """Return why memory limits cannot be lowered (the kernel would kill a process, or refuse), or ""."""
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
