"""Text form of a refusal.

One line per request, and one per rule that removed devices, with the closest device and its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.allocator.devices.capacity import ABOVE_MAX, NO_VALID_VALUE, OFF_STEP, SHORT, UNDEFINED
from plimsoll.allocator.reasons.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    GroupConflict,
    NodeOperationsRefusal,
    Refusal,
    RemovalDetail,
    RequestRefusal,
    SelectorRefusal,
    TaintRefusal,
)
from plimsoll.api.quantity import Format, Quantity
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS

MAX_LISTED_DEVICES = 4  #: maximum number of devices listed for a dead end


def explain_lines(refusal: Refusal) -> Sequence[str]:
    """Format a refusal as lines of text."""
    if refusal.allocated_elsewhere is not None:
        return [f"claim {refusal.allocated_elsewhere.claim} is allocated on other nodes"]
    lines = [f"pool {pool.pool} is {pool.status}: {pool.reason}" for pool in refusal.pools]
    for request in refusal.requests:
        # A request that could be served is listed only if the conflict is between requests.
        if refusal.together or not request.served:
            lines += _request_lines(request)
    if refusal.together:
        lines.append(
            "each request alone could be served; together they cannot"
            if refusal.has_several_requests
            else "each device alone could be had; together they cannot"
        )
    for group in refusal.groups:
        if len(group.requests) == 1:
            continue  # the lines of the request name two of its devices
        names = ", ".join(group.requests)
        if group.distinct:
            lines.append(
                f"claim {group.claim}, requests {names}: need {group.wanted} values of {group.attribute}, "
                f"there are {group.had}"
            )
        else:
            lines.append(
                f"claim {group.claim}, requests {names}: need {group.wanted} devices with one value of "
                f"{group.attribute}, at most {group.had} have it"
            )
    if refusal.dead_end is not None:
        held = ", ".join(
            f"{request} had {device}" for _, request, device in refusal.dead_end.held[:MAX_LISTED_DEVICES]
        )
        more = len(refusal.dead_end.held) - MAX_LISTED_DEVICES
        lines.append(f"once {held}" + (f" and {more} more" if more > 0 else "") + ":")
        lines += [f"  {line}" for line in _request_lines(refusal.dead_end.request)]
    return lines


def _request_lines(request: RequestRefusal) -> list[str]:
    wanted = "all matching" if request.takes_all else str(request.wanted)
    lines = [
        f"claim {request.claim}, request {request.request}: wants {wanted} of {request.devices} devices, "
        f"{request.left} left"
    ]
    for removal in request.removals:
        text = _detail_text(removal.detail)
        lines.append(f"  {removal.count} x {removal.rule.value}: {removal.device}{text}")
    if request.conflict is not None:
        device, conflict = request.conflict
        lines.append(
            f"  at most {request.largest_group} of them go together: {device}{_detail_text(conflict)}"
        )
    return lines


def _detail_text(detail: RemovalDetail) -> str:
    match detail:
        case CapacityShortage(rule, name, wanted, had):
            return " " + _CAPACITY_TEXTS[rule].format(name=name, wanted=wanted, had=had)
        case CounterShortage("", "", _, _):
            return " (partitionable devices are switched off)"
        case CounterShortage(counter_set, counter, amount, left):
            return f" counter {counter_set}/{counter}: wants {_plain(amount)}, {_plain(left)} left"
        case GroupConflict():
            return " " + group_conflict_text(detail)
        case NodeOperationsRefusal():
            return " " + node_operations_text(detail)
        case ConstraintConflict(attribute, _, (), _):
            return f" has no attribute {attribute}"
        case ConstraintConflict(attribute, distinct, values, other, other_values):
            relation = "must differ from" if distinct else "must match"
            against = f" {relation} {other} ({', '.join(other_values)})" if other else ""
            return f" {attribute}={', '.join(values)}{against}"
        case BudgetShortage(line, resource, amount, left):
            return f" {resource}: charges {amount}, {line} leaves {left}"
        case TaintRefusal(taint):
            value = f"={taint.value}" if taint.value else ""
            return f" {taint.key}{value}:{taint.effect}"
        case SelectorRefusal(index, expression):
            return f" #{index} {expression}"
    return ""


def group_conflict_text(conflict: GroupConflict) -> str:
    """Format a conflict of compatibility groups."""
    mine = f"is in {_groups_text(conflict.groups)}"
    theirs = f"are in {_groups_text(conflict.others)}" if conflict.agree else "have none in common"
    return f"{mine} of counter set {conflict.counter_set}, the devices in use {theirs}"


def _groups_text(groups: Sequence[str]) -> str:
    if not groups:
        return "no group"
    return f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"


def node_operations_text(refusal: NodeOperationsRefusal) -> str:
    """Format why a device whose driver skips node operations cannot be used."""
    skipped = f"skips {', '.join(refusal.operations)}"
    if refusal.enabled:
        return f"{skipped}, the node does not declare {OPTIONAL_NODE_OPERATIONS}"
    return f"{skipped}, the feature gate {OPTIONAL_NODE_OPERATIONS} is disabled"


_CAPACITY_TEXTS: Mapping[str, str] = {
    UNDEFINED: "has no capacity {name}",
    ABOVE_MAX: "{name}: wants {wanted}, the policy allows at most {had}",
    NO_VALID_VALUE: "{name}: wants {wanted}, the largest valid value is {had}",
    OFF_STEP: "{name}: {wanted} is no whole number of steps of {had}",
    SHORT: "{name}: wants {wanted}, has {had} left",
}


def _plain(nano: int) -> str:
    return str(Quantity(nano, Format.DECIMAL_SI, None))
