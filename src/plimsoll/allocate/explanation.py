"""A refusal as lines of text, for people.

Owns the wording of the reasons in `refusal.py`: one line per request, one per rule that took devices away,
with the device that came closest and its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.allocate.capacity import ABOVE_MAX, NO_VALID_VALUE, OFF_STEP, SHORT, UNDEFINED
from plimsoll.allocate.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    Detail,
    Refusal,
    SelectorRefusal,
    TaintRefusal,
)
from plimsoll.api.quantity import Format, Quantity


def explain_lines(refusal: Refusal) -> Sequence[str]:
    """The tree as lines of text, for people."""
    lines: list[str] = []
    if refusal.allocated_elsewhere is not None:
        return [f"claim {refusal.allocated_elsewhere.claim} is allocated on other nodes"]
    for pool in refusal.pools:
        lines.append(f"pool {pool.pool} is {pool.standing}: {pool.reason}")
    for request in refusal.requests:
        wanted = "all matching" if request.takes_all else str(request.wanted)
        lines.append(
            f"claim {request.claim}, request {request.request}: wants {wanted} of {request.devices} devices, "
            f"{request.left} left" + (" (here the search ended)" if request.blocking else "")
        )
        for removal in request.removals:
            lines.append(
                f"  {removal.count} x {removal.rule.value}: {removal.device}{_detail_text(removal.detail)}"
            )
        if request.largest_group is not None and request.largest_group < request.wanted <= request.left:
            lines.append(f"  at most {request.largest_group} of them satisfy the constraints together")
    if refusal.together:
        lines.append("each request alone could be served; together they cannot")
    return lines


def _detail_text(detail: Detail) -> str:
    match detail:
        case CapacityShortage(rule, name, wanted, had):
            return " " + _CAPACITY_TEXTS[rule].format(name=name, wanted=wanted, had=had)
        case CounterShortage("", "", _, _):
            return " (partitionable devices are switched off)"
        case CounterShortage(counter_set, counter, amount, left):
            return f" counter {counter_set}/{counter}: wants {_plain(amount)}, {_plain(left)} left"
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


_CAPACITY_TEXTS: Mapping[str, str] = {
    UNDEFINED: "has no capacity {name}",
    ABOVE_MAX: "{name}: wants {wanted}, the policy allows at most {had}",
    NO_VALID_VALUE: "{name}: wants {wanted}, the largest valid value is {had}",
    OFF_STEP: "{name}: {wanted} is no whole number of steps of {had}",
    SHORT: "{name}: wants {wanted}, has {had} left",
}


def _plain(nano: int) -> str:
    return str(Quantity(nano, Format.DECIMAL_SI, None))
