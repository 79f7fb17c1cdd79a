"""Statements about device allocation: request, device, rule, numbers.

Converts the refusal of a node (Refusal, AllocationFault or SearchAborted of the allocator, Reasons of the
ledger) into statements. Numbers come from these values and from the devices, never from texts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from plimsoll.allocator import AllocationFault, DeviceId, Refusal, SearchAborted, is_allocation_usable
from plimsoll.allocator.devices.capacity import ABOVE_MAX, NO_VALID_VALUE, OFF_STEP, SHORT, UNDEFINED
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.reasons.explanation import group_conflict_text, node_operations_text
from plimsoll.allocator.reasons.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    GroupConflict,
    NodeOperationsRefusal,
    PluginConflict,
    RefusalRule,
    Removal,
    RequestRefusal,
    TaintRefusal,
)
from plimsoll.api.node_selection import selector_matches
from plimsoll.api.quantity import NANO, Format, Quantity
from plimsoll.ledger.messages import format_reason as render_charge
from plimsoll.ledger.units import to_unit
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.profile import SelectorErrors
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.claim_users import holders_of, pods_using, unused_claims
from plimsoll.tools.explain.constraints import describe_constraint
from plimsoll.tools.explain.extended_resources import name_request
from plimsoll.tools.explain.node_reasons import describe_shortage, measure_shortage
from plimsoll.tools.explain.pod_reasons import terms_text
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.selection import (
    SELECTOR_RULES,
    RequestSelectors,
    describe_selectors,
    driver_names,
    find_request_selectors,
    may_serve,
    without_other_drivers,
)
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.facts import AmountFact, compared_amounts
from plimsoll.tools.node_terms import taint_text

#: Devices listed by name.
MAX_NAMED = 3
_CAPACITY = {
    UNDEFINED: StatementKind.CAPACITY_UNDEFINED,
    ABOVE_MAX: StatementKind.CAPACITY_MAX,
    NO_VALID_VALUE: StatementKind.CAPACITY_VALID,
    OFF_STEP: StatementKind.CAPACITY_STEP,
    SHORT: StatementKind.CAPACITY_SHORT,
}
_FAR = 10**9
_MEBI = 1 << 20


# -- equality and distance of refusals


def signature(reasons: Sequence[NodeReason]) -> Hashable:
    """Return a key that is equal for refusals by the same rules, regardless of numbers."""
    return tuple((reason.message, reason.code, _cause_signature(reason.cause)) for reason in reasons)


def _cause_signature(cause: object) -> Hashable:
    if isinstance(cause, Refusal):
        requests = tuple(
            (
                request.claim,
                request.request,
                bool(request.devices),
                *map(_removal_kind, request.removals),
            )
            for request in cause.requests
            if not request.served
        )
        pools = tuple(sorted({(pool.pool.driver, pool.status) for pool in cause.pools}))
        groups = tuple((group.attribute, group.requests) for group in cause.groups)
        return requests, cause.together, groups, pools
    if isinstance(cause, Reason):
        return cause.cause, cause.resource, cause.claim, cause.resolvable
    return str(cause) if isinstance(cause, AllocationFault) else ()


def _removal_kind(removal: Removal) -> Hashable:
    detail = removal.detail
    if isinstance(detail, CapacityShortage):
        return removal.rule, detail.rule, detail.name
    if isinstance(detail, TaintRefusal):
        return removal.rule, detail.taint.key
    if isinstance(detail, CounterShortage):
        return removal.rule, detail.counter
    return removal.rule


def distance(reasons: Sequence[NodeReason]) -> int:
    """Return the distance of a node from passing: missing devices, or the missing share of an amount."""
    return sum(_distance(reason.cause) for reason in reasons)


def _distance(cause: object) -> int:
    if isinstance(cause, Refusal):
        if cause.allocated_elsewhere is not None:
            return _FAR
        missing = sum(_missing(request) for request in cause.requests if not request.served)
        return missing if not cause.together else 0
    if isinstance(cause, Reason):
        return measure_shortage(cause)
    return _FAR


def _missing(request: RequestRefusal) -> int:
    """Return the missing devices in millionths; failing at a later rule counts as nearer."""
    last = max((list(RefusalRule).index(removal.rule) for removal in request.removals), default=-1)
    return (max(request.wanted, 1) - min(request.left, request.wanted)) * 1_000_000 - last


# -- statements


def describe_reasons(view: PodView, reasons: Sequence[NodeReason], row: int) -> tuple[Statement, ...]:
    """Return the statements about devices and charges on one node."""
    reasons = without_other_drivers(view, reasons, row)
    return tuple(branch for reason in reasons for branch in _describe_reason(view, reason, row))


def _describe_reason(view: PodView, reason: NodeReason, row: int) -> Iterator[Statement]:
    cause = reason.cause
    if reason.message is DeviceMessage.CLAIM_ELSEWHERE:
        yield from _elsewhere(view, row)
    elif isinstance(cause, Refusal):
        yield from describe_refusal(view, cause, row)
    elif isinstance(cause, Reason):
        yield _describe_charge(view, cause, row)
    elif isinstance(cause, AllocationFault) and cause.is_selector_error:
        yield from _describe_selector_error(view, cause)
    elif isinstance(cause, SearchAborted):
        yield Statement(StatementKind.GAVE_UP, {"steps": cause.steps})


def _describe_selector_error(view: PodView, fault: AllocationFault) -> Iterator[Statement]:
    """Show the expression, the device and the error of a selector or derived attribute."""
    facts = fault.facts
    where = Statement(StatementKind.FAILS_ON, {"device": facts["device"], "error": str(facts["error"])})
    if "attribute" in facts:
        named = {key: facts[key] for key in ("claim", "request", "attribute", "expression")}
        yield Statement(StatementKind.DERIVED_FAILS, named, (where,))
    else:
        owner = f"class {facts['class']}" if facts["class"] else f"claim {facts['claim']}"
        yield Statement(
            StatementKind.SELECTOR_FAILS,
            {"owner": owner, "index": facts["index"], "expression": facts["expression"]},
            (where,),
        )
    if view.settings.selector_errors is SelectorErrors.PENDING and len(view.snapshot) > 1:
        yield Statement(StatementKind.OTHERS_NOT_TRIED)


def _elsewhere(view: PodView, row: int) -> Iterator[Statement]:
    for claim in view.pod_info.claims:
        allocation = claim.status.allocation
        if allocation is None or is_allocation_usable(allocation, view.node(row)):
            continue
        selector = allocation.node_selector
        if selector is None or selector_matches(selector, view.node(row)) is True:
            yield Statement(StatementKind.CANNOT_SKIP, {"claim": claim.metadata.full_name})
        else:
            where = terms_text(selector)
            yield Statement(StatementKind.ELSEWHERE, {"claim": claim.metadata.full_name, "where": where})


def _describe_charge(view: PodView, reason: Reason, row: int) -> Statement:
    name = reason.resource
    match reason.cause:
        case Cause.INSUFFICIENT | Cause.TOO_MANY_PODS:
            return describe_shortage(view, reason, row)
        case Cause.SHARED_BY_SEVERAL | Cause.USED_BY_ANOTHER | Cause.MAPPED_DEVICE_SHARED:
            full = f"{reason.namespace}/{reason.claim}"
            pods = pods_using(view.cluster_state, reason.namespace, reason.claim, view.pod)
            return Statement(StatementKind.CLAIM_USED, {"claim": full, "pods": pods or ("another pod",)})
        case Cause.POOL_EXHAUSTED:
            facts = _amounts(reason, "had", "capacity", "wanted")
            return Statement(StatementKind.POOL_EXHAUSTED, {"claim": reason.claim, "resource": name, **facts})
        case Cause.POD_LEVEL_REQUEST | Cause.POD_LEVEL_LIMIT:
            facts = _amounts(reason, "capacity", "wanted")
            what = "request" if reason.cause is Cause.POD_LEVEL_REQUEST else "limit"
            return Statement(StatementKind.POD_LEVEL, {"what": what, "resource": name, **facts})
    return Statement(StatementKind.TEXT, {"text": render_charge(reason)})


def _amounts(reason: Reason, *parts: str) -> dict[str, AmountFact]:
    """Return the amounts of a reason as facts."""
    return compared_amounts(reason.resource, **{part: getattr(reason, part) or 0 for part in parts})


def describe_refusal(view: PodView, refusal: Refusal, row: int) -> Iterator[Statement]:
    """Yield the statements of a refusal, with the values of the devices."""
    explained: set[tuple[str, str]] = set()
    for shortage in refusal.groups:
        yield describe_constraint(view, shortage, row)
        explained |= {(shortage.claim, request) for request in shortage.requests}
    for pool in refusal.pools:
        yield Statement(StatementKind.POOL, {"pool": pool.pool, "standing": pool.status, "why": pool.reason})
    for request in refusal.requests:
        if not request.served and (request.claim, request.request) not in explained:
            yield _describe_request(view, request, row)
    if not refusal.together or explained:
        return
    children: tuple[Statement, ...] = ()
    if refusal.dead_end is not None:
        held = tuple(f"{request} gets {device}" for _, request, device in refusal.dead_end.held)
        inner = _describe_request(view, refusal.dead_end.request, row)
        children = (Statement(StatementKind.STUCK, {"held": held}, (inner,)) if held else inner,)
    several = refusal.has_several_requests
    yield Statement(StatementKind.TOGETHER if several else StatementKind.DEVICES_TOGETHER, {}, children)


def _describe_request(view: PodView, request: RequestRefusal, row: int) -> Statement:
    facts: dict[str, object] = {
        "claim": request.claim,
        "request": name_request(view.pod, request.claim, request.request),
        "wanted": "all matching" if request.takes_all else request.wanted,
        "left": request.left,
        "devices": request.devices,
    }
    selectors = find_request_selectors(view, request)
    devices = view.snapshot.inventory.devices_for(view.node(row))
    if not request.devices:
        drivers = driver_names(selectors)
        if isinstance(devices, AllocationFault) or not devices.pools or not drivers:
            return Statement(StatementKind.NO_DEVICES, facts)
        unusable = any(may_serve(selectors, pool.id.driver) for pool in devices.pools)
        facts |= {"driver": " or ".join(drivers), "usable": "usable " if unusable else ""}
        return Statement(StatementKind.NO_DRIVER, facts)
    children: list[Statement] = []
    for removal in request.removals:
        if removal.rule in SELECTOR_RULES and not isinstance(devices, AllocationFault):
            children += describe_selectors(selectors, devices, removal)
        else:
            children.append(_describe_removal(view, removal, devices, selectors))
    if request.conflict is not None:
        device, conflict = request.conflict
        inner = _describe_conflict(Removal(RefusalRule.CONSTRAINT, 1, device, conflict), conflict)
        children.append(Statement(StatementKind.AT_MOST, {"count": request.largest_group or 0}, (inner,)))
    return Statement(StatementKind.REQUEST, facts, tuple(children))


def _describe_removal(
    view: PodView,
    removal: Removal,
    devices: NodeDevices | AllocationFault,
    selectors: RequestSelectors,
) -> Statement:
    count, device, detail = removal.count, removal.device, removal.detail
    facts: dict[str, object] = {"count": count, "device": device}
    match detail:
        case CapacityShortage(rule, name, wanted, had):
            return Statement(_CAPACITY[rule], facts | {"name": name, "wanted": wanted, "had": had})
        case CounterShortage("", "", _, _):
            return Statement(StatementKind.COUNTERS_OFF, facts)
        case CounterShortage(counter_set, counter, amount, left):
            numbers = {"wanted": _format_counter(amount), "had": _format_counter(left)}
            return Statement(
                StatementKind.COUNTER, facts | {"counter": f"{counter_set}/{counter}", **numbers}
            )
        case GroupConflict():
            return Statement(StatementKind.COMPATIBILITY, facts | {"conflict": group_conflict_text(detail)})
        case NodeOperationsRefusal():
            return Statement(StatementKind.NODE_OPERATIONS, facts | {"problem": node_operations_text(detail)})
        case ConstraintConflict():
            return _describe_conflict(removal, detail)
        case BudgetShortage(line, resource, amount, left):
            limits = [to_unit(resource, Quantity(nano)) for nano in (amount, left)]
            amounts = compared_amounts(resource, wanted=limits[0], had=limits[1])
            return Statement(StatementKind.BUDGET, facts | {"resource": resource, "line": line, **amounts})
        case PluginConflict(resource):
            return Statement(StatementKind.PLUGIN, facts | {"resource": resource})
        case TaintRefusal(taint):
            return Statement(StatementKind.DEVICE_TAINT, facts | {"taint": taint_text(taint)})
    if removal.rule is RefusalRule.TAKEN:
        return Statement(
            StatementKind.TAKEN, {"count": count}, tuple(_describe_holders(view, devices, selectors))
        )
    if removal.rule is RefusalRule.FAILED and not isinstance(devices, AllocationFault):
        return Statement(StatementKind.FAILED, facts, tuple(_describe_failures(selectors, devices)))
    return Statement(_BARE[removal.rule], facts)


_BARE = {
    RefusalRule.PICKED: StatementKind.PICKED,
    RefusalRule.BINDING: StatementKind.BINDING_OFF,
    RefusalRule.NODE: StatementKind.NOT_FOR_NODE,
    RefusalRule.FAILED: StatementKind.FAILED,
}


def _describe_failures(selectors: RequestSelectors, devices: NodeDevices) -> Iterator[Statement]:
    """Yield the errors of selectors, each with the first device. Devices that are allocated can have some,
    too; kube-scheduler does not evaluate these, and the pod will fail when they are free.
    """
    errors: dict[tuple[bool, int, str], DeviceId] = {}
    for number, failure in devices.select(selectors.class_selectors, selectors.selectors).failures.items():
        errors.setdefault((failure.of_class, failure.index, str(failure.error)), devices.entries[number].id)
    for (of_class, index, error), device in list(errors.items())[:MAX_NAMED]:
        expressions = selectors.class_selectors if of_class else selectors.selectors
        facts: dict[str, object] = {
            "owner": f"class {selectors.device_class}" if of_class else f"request {selectors.name}",
            "index": index,
            "expression": expressions[index] if index < len(expressions) else "node selection of the device",
        }
        where = Statement(StatementKind.FAILS_ON, {"device": device, "error": error})
        yield Statement(StatementKind.SELECTOR_FAILS, facts, (where,))


def _describe_holders(
    view: PodView, devices: NodeDevices | AllocationFault, selectors: RequestSelectors
) -> Iterator[Statement]:
    """Yield the claims that hold the matching devices."""
    if isinstance(devices, AllocationFault):
        return
    matching = devices.select(selectors.class_selectors, selectors.selectors).mask
    taken = read_usage(view.snapshot, devices).taken & matching
    unused = {claim.metadata.key for claim in unused_claims(view.cluster_state)}
    held = holders_of(view.cluster_state, {devices.entries[row].id for row in bit_numbers(taken)})
    in_order = sorted(held.items(), key=lambda item: (item[1].metadata.key not in unused, item[0]))
    for device, claim in in_order[:MAX_NAMED]:
        kind = StatementKind.TAKEN_UNUSED if claim.metadata.key in unused else StatementKind.TAKEN_BY
        yield Statement(kind, {"device": device, "claim": claim.metadata.full_name})


def _describe_conflict(removal: Removal, conflict: ConstraintConflict) -> Statement:
    facts: dict[str, object] = {
        "count": removal.count,
        "device": removal.device,
        "attribute": conflict.attribute,
        "values": conflict.values,
    }
    if not conflict.values:
        return Statement(StatementKind.CONSTRAINT_NONE, facts)
    if conflict.other is None:
        return Statement(StatementKind.CONSTRAINT, facts)
    kind = StatementKind.DISTINCT if conflict.distinct else StatementKind.MATCH
    return Statement(kind, facts | {"other": conflict.other, "theirs": conflict.other_values})


def _format_counter(nano: int) -> Quantity:
    """Format a counter amount; multiples of Mi are most likely memory and written as such."""
    form = Format.BINARY_SI if nano and nano % (_MEBI * NANO) == 0 else Format.DECIMAL_SI
    return Quantity(nano, form, None)
