"""`propose_change`: the next change that brings a pod nearer to a node.

Maps the reasons of the first failing rule to a step and the pod as changed by it. Changes outside the pod and
its claims (such as a driver that publishes nothing) are steps without a changed pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, Refusal, SearchAborted
from plimsoll.allocator.devices.capacity import OFF_STEP, UNDEFINED
from plimsoll.allocator.reasons.refusal import (
    CapacityShortage,
    ConstraintConflict,
    Removal,
    RequestRefusal,
    TaintRefusal,
)
from plimsoll.allocator.reasons.refusal import RefusalRule as DeviceRule
from plimsoll.api.core import Pod, Taint, Toleration
from plimsoll.api.resource import (
    CapacityRequirements,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.ledger.units import from_units
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityMessage
from plimsoll.scheduler.filters.node_declared_features import needed_features
from plimsoll.scheduler.filters.pod_topology_spread import PodTopologySpreadFilter
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.scheduler.filters.volume_binding import VolumeBindingMessage
from plimsoll.scheduler.filters.volume_zone import VolumeZoneMessage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.topology.affinity_terms import read_terms
from plimsoll.tools.amounts import format_exact
from plimsoll.tools.claim_users import pods_using
from plimsoll.tools.device_attributes import DRIVER, attributes_read, value_text
from plimsoll.tools.explain.fixes.fix import FixStep
from plimsoll.tools.explain.pod_reasons import TopologySpreadExplainer, selector_text
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.requests import RequestSelectors, find_request_selectors
from plimsoll.tools.explain.text import FixKind
from plimsoll.tools.node_terms import (
    matches_nothing,
    node_value_text,
    requirement_text,
    taint_text,
    unmet_requirements,
    untolerated_taints,
)

#: Prefix of taints of unhealthy nodes, which pods should not tolerate.
_CONDITION_TAINTS = "node.kubernetes.io/"
#: Labels and fields that identify one node.
_NAMES = frozenset({"kubernetes.io/hostname", "metadata.name"})
#: Factor of the cost of adding devices to a node that has none of the class while others do.
_OTHER_MACHINE = 10


_Request: TypeAlias = "ExactDeviceRequest | DeviceSubRequest"


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """Steps and the pod after them; None if pod and claims stay unchanged."""

    steps: tuple[FixStep, ...]
    pod_info: PodInfo | None = None


def propose_change(
    view: PodView, pod_info: PodInfo, row: int, reasons: Sequence[NodeReason]
) -> ProposedChange | None:
    """Return a change for the first rule that a node fails, or None if none is known."""
    rule = reasons[0].rule
    if rule is Rule.UNSCHEDULABLE:
        node = view.name(row)
        open_pod = tolerating(pod_info.pod, (UNSCHEDULABLE,))
        return ProposedChange(
            (FixStep(FixKind.UNCORDON, {"node": node}, node),), with_pod(pod_info, open_pod)
        )
    if rule is Rule.TAINTS:
        return _propose_for_taints(view, pod_info, row)
    if rule is Rule.NODE_AFFINITY:
        return _propose_for_labels(view, pod_info, row)
    if rule is Rule.DEVICES:
        return _propose_for_devices(view, pod_info, row, reasons)
    if rule is Rule.DECLARED_FEATURES:
        missing = needed_features(pod_info.pod).difference(view.node(row).status.declared_features)
        wanted = {"node": view.name(row), "wanted": tuple(sorted(missing))}
        return ProposedChange((FixStep(FixKind.UPGRADE_NODE, wanted),))
    if rule is Rule.SPREAD:
        return _propose_for_spread(view, pod_info, row)
    if reasons[0].message is InterPodAffinityMessage.AFFINITY:
        return _propose_for_affinity(view, pod_info, row)
    if reasons[0].message in (VolumeBindingMessage.NO_VOLUME, VolumeBindingMessage.NO_CAPACITY):
        text = f'make room for a volume of claim "{reasons[0].facts["claim"]}" on node {view.name(row)}'
        return ProposedChange((FixStep(FixKind.VOLUME, {"text": text}),))
    if reasons[0].message in (VolumeBindingMessage.AFFINITY, VolumeZoneMessage.ZONE):
        return ProposedChange(
            (
                FixStep(
                    FixKind.VOLUME, {"text": "free capacity on a node from which its volumes can be reached"}
                ),
            )
        )
    return None


def with_pod(pod_info: PodInfo, pod: Pod) -> PodInfo:
    return PodInfo(pod, pod_info.claims, pod_info.options, pod_info.profile)


# -- nodes


def tolerating(pod: Pod, taints: Sequence[Taint]) -> Pod:
    """Return the pod with tolerations of these taints."""
    more = tuple(
        Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in taints
    )
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


def _propose_for_taints(view: PodView, pod_info: PodInfo, row: int) -> ProposedChange:
    node = view.node(row)
    taints = untolerated_taints(pod_info.pod, node)
    steps = tuple(
        FixStep(
            FixKind.HEAL_NODE if taint.key.startswith(_CONDITION_TAINTS) else FixKind.TOLERATE,
            {"taint": taint_text(taint), "node": node.metadata.name},
            taint,
        )
        for taint in taints
        if not (node.spec.unschedulable and taint.key == UNSCHEDULABLE.key)  # removed by uncordoning
    )
    return ProposedChange(steps, with_pod(pod_info, tolerating(pod_info.pod, taints)))


def _propose_for_labels(view: PodView, pod_info: PodInfo, row: int) -> ProposedChange:
    node = view.node(row)
    requirements = unmet_requirements(pod_info.pod, node, view.settings)
    steps = tuple(
        FixStep(
            FixKind.GO_ELSEWHERE if requirement.key in _NAMES else FixKind.CHOOSE_LABEL,
            {
                "wanted": requirement_text(requirement),
                "had": node_value_text(requirement, node),
                "node": node.metadata.name,
            },
            requirement,
        )
        for requirement in requirements
    )
    if matches_nothing(pod_info.pod):
        steps += (FixStep(FixKind.DROP_AFFINITY),)
    spec = pod_info.pod.spec
    affinity = spec.affinity
    if affinity is not None and affinity.node_affinity is not None:
        affinity = replace(affinity, node_affinity=replace(affinity.node_affinity, required=None))
    return ProposedChange(
        steps,
        with_pod(pod_info, replace(pod_info.pod, spec=replace(spec, node_selector={}, affinity=affinity))),
    )


def _propose_for_affinity(view: PodView, pod_info: PodInfo, row: int) -> ProposedChange:
    """Propose running the pods that the affinity requires, or dropping the rule."""
    spec, node = pod_info.pod.spec, view.name(row)
    steps = tuple(
        FixStep(
            FixKind.MEET,
            {"node": node, "selector": selector_text(term.selector.selector), "key": term.topology_key},
        )
        for term in read_terms(pod_info.pod).affinity
    )
    affinity = spec.affinity
    assert affinity is not None, "the rule has read it"
    alone = replace(spec, affinity=replace(affinity, pod_affinity=None))
    return ProposedChange(steps, with_pod(pod_info, replace(pod_info.pod, spec=alone)))


def _propose_for_spread(view: PodView, pod_info: PodInfo, row: int) -> ProposedChange | None:
    """Propose room in the domain with the fewest pods, or a larger skew."""
    rule = PodTopologySpreadFilter.pre_filter(pod_info, view.snapshot)
    if not isinstance(rule, PodTopologySpreadFilter):
        return None
    explainer = TopologySpreadExplainer(PodView(view.cluster_state, pod_info, view.settings), rule, [row])
    facts = explainer.facts(row)
    if facts is None:
        return None
    change = SkewChange(str(facts["key"]), facts["skew"], facts["needed"])
    pod = with_skew(pod_info.pod, change)
    return ProposedChange((FixStep(FixKind.RELAX_SPREAD, facts, change),), with_pod(pod_info, pod))


@dataclass(frozen=True, slots=True)
class SkewChange:
    """Change of maxSkew of the constraints with a topology key."""

    key: str
    skew: object
    needed: object


def with_skew(pod: Pod, change: SkewChange) -> Pod:
    """Return the pod with a larger maxSkew."""
    raised = tuple(
        replace(each, max_skew=change.needed)
        if each.topology_key == change.key and each.max_skew == change.skew
        else each
        for each in pod.spec.topology_spread_constraints
    )
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=raised))


# -- charges


def _propose_for_charge(view: PodView, pod_info: PodInfo, row: int, reason: Reason) -> ProposedChange | None:
    name = reason.resource
    match reason.cause:
        case Cause.POD_LEVEL_REQUEST | Cause.POD_LEVEL_LIMIT:
            request = reason.cause is Cause.POD_LEVEL_REQUEST
            facts = {
                "what": "request" if request else "limit",
                "resource": name,
                "capacity": format_exact(name, reason.capacity or 0),
                "wanted": format_exact(name, reason.wanted or 0),
            }
            raised = with_pod(pod_info, with_raised_budget(pod_info.pod, reason))
            return ProposedChange((FixStep(FixKind.RAISE_BUDGET, facts, reason),), raised)
        case Cause.SHARED_BY_SEVERAL | Cause.USED_BY_ANOTHER | Cause.MAPPED_DEVICE_SHARED:
            pods = pods_using(view.cluster_state, reason.namespace, reason.claim, view.pod)
            used: dict[str, object] = {
                "claim": f"{reason.namespace}/{reason.claim}",
                "pods": pods or "the other pod",
            }
            return ProposedChange((FixStep(FixKind.FREE_CLAIM, used, reason),))
    return None


def with_raised_budget(pod: Pod, reason: Reason) -> Pod:
    """Return the pod with the pod-level request or limit that a reason requires."""
    resources = pod.spec.resources
    assert resources is not None, "the reason is about pod-level resources"
    amount = from_units(reason.resource, reason.wanted or 0)
    requests, limits = dict(resources.requests), dict(resources.limits)
    if reason.cause is Cause.POD_LEVEL_REQUEST:
        requests[reason.resource] = amount
    if reason.resource in limits and limits[reason.resource] < amount:
        limits[reason.resource] = amount
    new = replace(resources, requests=requests, limits=limits)
    return replace(pod, spec=replace(pod.spec, resources=new))


# -- devices


def _propose_for_devices(
    view: PodView, pod_info: PodInfo, row: int, reasons: Sequence[NodeReason]
) -> ProposedChange | None:
    for reason in reasons:
        cause = reason.cause
        if isinstance(cause, Reason):
            found = _propose_for_charge(view, pod_info, row, cause)
        elif isinstance(cause, Refusal):
            found = _propose_for_refusal(view, pod_info, row, cause)
        elif isinstance(cause, SearchAborted):
            found = ProposedChange((FixStep(FixKind.RAISE_STEPS, {"steps": cause.steps}),))
        elif isinstance(cause, AllocationFault):
            found = ProposedChange((FixStep(FixKind.CORRECT, {"text": str(cause)}),))
        else:
            found = None
        if found is not None:
            return found
    return None


def _propose_for_refusal(
    view: PodView, pod_info: PodInfo, row: int, refusal: Refusal
) -> ProposedChange | None:
    unserved = [request for request in refusal.requests if not request.served]
    if unserved and not refusal.together:
        if refusal.pools:
            pool = refusal.pools[0]
            facts = {"pool": pool.pool, "standing": pool.status, "why": pool.reason}
            return ProposedChange((FixStep(FixKind.COMPLETE_POOL, facts, pool),))
        # One alternative of a prioritized list is enough.
        head = unserved[0].request.partition("/")[0]
        changes = [
            _propose_for_request(view, pod_info, row, request)
            for request in unserved
            if (request.claim, request.request.partition("/")[0]) == (unserved[0].claim, head)
        ]
        return min(changes, key=lambda change: sum(step.cost for step in change.steps))
    if refusal.groups:
        group = refusal.groups[0]
        details: dict[str, object] = {"requests": group.requests, "attribute": group.attribute}
        details["had"] = group.had
        unconstrained = _unconstrained(pod_info, group.attribute)
        return ProposedChange(
            (FixStep(FixKind.RELAX_CONSTRAINT, details, unconstrained.claims),), unconstrained
        )
    if refusal.dead_end is not None:
        return _propose_for_request(view, pod_info, row, refusal.dead_end.request)
    return None


def _propose_for_request(
    view: PodView, pod_info: PodInfo, row: int, request: RequestRefusal
) -> ProposedChange:
    if not request.devices and not any(each.spec.devices for each in view.snapshot.all(ResourceSlice)):
        return ProposedChange((FixStep(FixKind.NO_DRIVER, {"request": request.request}),))
    if not request.devices or not request.removals:
        return ProposedChange((FixStep(FixKind.ADD_DEVICES, _lack(view, request, row), request),))
    last = max(request.removals, key=lambda removal: list(DeviceRule).index(removal.rule))
    if last.rule is DeviceRule.CLASS_SELECTOR and request.left:  # some devices match, but too few
        return ProposedChange((FixStep(FixKind.ADD_DEVICES, _lack(view, request, row), request),))
    if last.rule is DeviceRule.TAKEN:
        had = {**_lack(view, request, row), "had": request.left + last.count}
        return ProposedChange((FixStep(FixKind.ADD_DEVICES, had, request),))
    return _propose_for_removal(view, pod_info, row, request, last)


def _propose_for_removal(
    view: PodView, pod_info: PodInfo, row: int, request: RequestRefusal, last: Removal
) -> ProposedChange:
    name, detail = request.request, last.detail
    facts: dict[str, object] = {"request": name, "device": last.device}
    match detail:
        case TaintRefusal(taint):
            value = f"={taint.value}" if taint.value else ""
            facts["taint"] = f"{taint.key}{value}:{taint.effect}"
            toleration = DeviceToleration(
                key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
            )
            changed = _changed(
                pod_info, request, lambda body: replace(body, tolerations=(*body.tolerations, toleration))
            )
            return ProposedChange((FixStep(FixKind.TOLERATE_DEVICE, facts, changed.claims),), changed)
        case CapacityShortage(rule, capacity, wanted, had) if rule != UNDEFINED:
            facts |= {"name": capacity, "wanted": wanted, "had": had}
            if rule == OFF_STEP:
                return ProposedChange((FixStep(FixKind.STEP_CAPACITY, facts, request),))
            if had.nano <= 0:
                return ProposedChange((FixStep(FixKind.ADD_DEVICES, _lack(view, request, row), request),))

            def shrunk(body: _Request) -> _Request:
                requests = {**(body.capacity.requests if body.capacity else {}), capacity: had}
                return replace(body, capacity=CapacityRequirements(requests=requests))

            changed = _changed(pod_info, request, shrunk)
            return ProposedChange((FixStep(FixKind.SHRINK_CAPACITY, facts, changed.claims),), changed)
        case ConstraintConflict():
            facts = {
                "requests": (name,),
                "attribute": detail.attribute,
                "had": max(request.largest_group or 1, 1),
            }
            unconstrained = _unconstrained(pod_info, detail.attribute)
            return ProposedChange(
                (FixStep(FixKind.RELAX_CONSTRAINT, facts, unconstrained.claims),), unconstrained
            )
    if last.rule in (DeviceRule.CLASS_SELECTOR, DeviceRule.REQUEST_SELECTOR):
        return _propose_for_selector(view, pod_info, row, request, last)
    return ProposedChange((FixStep(FixKind.ADD_DEVICES, _lack(view, request, row), request),))


def _lack(view: PodView, request: RequestRefusal, row: int) -> dict[str, object]:
    return {
        "request": request.request,
        "wanted": request.wanted,
        "had": request.left,
        "node": view.name(row),
    }


def _propose_for_selector(
    view: PodView, pod_info: PodInfo, row: int, request: RequestRefusal, last: Removal
) -> ProposedChange:
    selectors = find_request_selectors(view, request)
    devices = view.snapshot.inventory.devices_for(view.node(row))
    of_class = last.rule is DeviceRule.CLASS_SELECTOR
    expression = getattr(last.detail, "expression", "")
    shown, facts = "", dict[str, object]()
    if not isinstance(devices, AllocationFault):
        number = devices.index.get(last.device.pool_id, {}).get(last.device.device)
        if number is not None:
            entry = devices.entries[number]
            values = attributes_read(expression, entry.id.driver, entry.device)
            if of_class and values == [(DRIVER, entry.id.driver)]:  # a device of another driver is not near
                return ProposedChange((_propose_driver(view, request, row, selectors),))
            shown = "".join(f" has {name}={value_text(value)}" for name, value in values[:1])
            shown += "".join(f", {name}={value_text(value)}" for name, value in values[1:])
    facts = {"request": request.request, "device": last.device, "attributes": shown}
    if of_class:
        facts |= {"device_class": selectors.device_class, "near": ""}
        return ProposedChange((FixStep(FixKind.RELAX_CLASS, facts, last),))
    facts |= {"expression": expression, "count": last.count}
    index = getattr(last.detail, "index", 0)
    changed = _changed(
        pod_info,
        request,
        lambda body: replace(
            body, selectors=tuple(each for number, each in enumerate(body.selectors) if number != index)
        ),
    )
    return ProposedChange((FixStep(FixKind.RELAX_SELECTOR, facts, changed.claims),), changed)


def _propose_driver(view: PodView, request: RequestRefusal, row: int, selectors: RequestSelectors) -> FixStep:
    """Return the step for a node without devices of a class: its driver, other nodes, or another class."""
    facts = {**_lack(view, request, row), "device_class": selectors.device_class}
    former = [driver for driver in _drivers_seen(view, row) if _names(selectors.class_selectors, driver)]
    if former:
        return FixStep(FixKind.RUN_DRIVER, facts | {"driver": former[0]}, request)
    for other in view.snapshot.rows():
        devices = view.snapshot.inventory.devices_for(view.node(other))
        if not isinstance(devices, AllocationFault) and devices.select(selectors.class_selectors, ()).mask:
            return FixStep(FixKind.ADD_DEVICES, facts, request, _OTHER_MACHINE)
    return FixStep(FixKind.NO_CLASS_DEVICES, facts, request)


def is_other_machine(step: FixStep) -> bool:
    """Return whether a node would have to become another machine: any other change is nearer."""
    return step.kind is FixKind.ADD_DEVICES and step.times == _OTHER_MACHINE


def _names(expressions: Sequence[str], driver: str) -> bool:
    return any(driver in expression for expression in expressions)


def _drivers_seen(view: PodView, row: int) -> list[str]:
    """Return the drivers that run or have run on a node: they have slices or allocated devices there."""
    node = view.name(row)
    published = {each.spec.driver for each in view.snapshot.all(ResourceSlice) if each.spec.node_name == node}
    allocated = {
        result.driver
        for claim in view.snapshot.all(ResourceClaim)
        for result in claim.allocation_results
        if result.pool == node
    }
    return sorted(published | allocated)


def _changed(pod_info: PodInfo, request: RequestRefusal, change: Callable[[_Request], _Request]) -> PodInfo:
    """Return the pod with one request of one claim changed."""
    head, _, tail = request.request.partition("/")

    def claim_with(claim: ResourceClaim) -> ResourceClaim:
        if claim.metadata.full_name != request.claim:
            return claim
        requests = []
        for each in claim.spec.devices.requests:
            if each.name == head and not tail and each.exactly is not None:
                each = replace(each, exactly=change(each.exactly))
            elif each.name == head:
                subs = tuple(change(sub) if sub.name == tail else sub for sub in each.first_available)
                each = replace(each, first_available=subs)
            requests.append(each)
        devices = replace(claim.spec.devices, requests=tuple(requests))
        return replace(claim, spec=replace(claim.spec, devices=devices))

    return PodInfo(pod_info.pod, tuple(map(claim_with, pod_info.claims)), pod_info.options, pod_info.profile)


def _unconstrained(pod_info: PodInfo, attribute: str) -> PodInfo:
    def claim_with(claim: ResourceClaim) -> ResourceClaim:
        kept = tuple(
            each
            for each in claim.spec.devices.constraints
            if attribute not in (each.match_attribute, each.distinct_attribute)
        )
        devices = replace(claim.spec.devices, constraints=kept)
        return replace(claim, spec=replace(claim.spec, devices=devices))

    return PodInfo(pod_info.pod, tuple(map(claim_with, pod_info.claims)), pod_info.options, pod_info.profile)
