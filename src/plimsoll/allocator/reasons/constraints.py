"""Constraints that no choice of the free devices of a node satisfies, although each request has enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.reasons.refusal import GroupShortage, RequestValues, ValueCount
from plimsoll.allocator.request_matching import RequestPlan, RequestSet

#: The alternatives of one request.
Alternatives: TypeAlias = "Sequence[RequestPlan]"


def find_group_shortages(order: RequestSet, shareable: int) -> Iterator[GroupShortage]:
    """Yield the constraints that cannot be satisfied, each on its own; `shareable` are the devices that may
    serve several requests.
    """
    for number, constraint in enumerate(order.constraints):
        covered = [
            [plan for plan in step.plans if plan.candidates.bit_count() >= _count(plan)]
            for step in order.steps
            if all(number in plan.constraints for plan in step.plans)
        ]
        requests = [plans for plans in covered if plans]
        plans = [plan for alternatives in requests for plan in alternatives]
        if not plans or any(
            plan.candidates & (plan.tables[number].opaque | plan.tables[number].failed) for plan in plans
        ):
            continue  # nothing to compare, or values that cannot be compared here
        values = range(len(plans[0].tables[number].values))
        wanted = sum(min(map(_count, alternatives)) for alternatives in requests)
        if constraint.distinct:
            had = sum(any(having(plan, number, value) for plan in plans) for value in values)
            is_met = had >= wanted
        else:
            had = max((_union(plans, number, value).bit_count() for value in values), default=0)
            is_met = any(_has_enough(number, value, requests, shareable) for value in values)
        if not is_met:
            yield GroupShortage(
                order.claims[constraint.claim].metadata.full_name,
                constraint.attribute,
                constraint.distinct,
                tuple(plan.name for plan in plans),
                wanted,
                had,
                index=sum(each.claim == constraint.claim for each in order.constraints[:number]),
                present=tuple(_read_values(plan, number) for plan in plans),
            )


def _has_enough(number: int, value: int, requests: Sequence[Alternatives], shareable: int) -> bool:
    """Return whether enough free devices have one value: for each request, and for all together."""
    union, needed = 0, 0
    for alternatives in requests:
        masks = {plan: having(plan, number, value) for plan in alternatives}
        if any(mask & (-1 if plan.admin else shareable) for plan, mask in masks.items()):
            continue  # one device may serve several requests
        enough = [plan for plan, mask in masks.items() if mask.bit_count() >= _count(plan)]
        if not enough:
            return False
        needed += min(map(_count, enough))
        union |= _union(enough, number, value)
    return union.bit_count() >= needed


def having(plan: RequestPlan, number: int, value: int) -> int:
    """Return the free devices of a plan that have a value of the attribute of a constraint."""
    return plan.tables[number].by_bit[value] & plan.candidates


def _union(plans: Sequence[RequestPlan], number: int, value: int) -> int:
    union = 0
    for plan in plans:
        union |= having(plan, number, value)
    return union


def _count(plan: RequestPlan) -> int:
    return max(plan.count, 1)


def _read_values(plan: RequestPlan, number: int) -> RequestValues:
    table, matching = plan.tables[number], plan.selection.mask
    counts = []
    for bit, of_value in enumerate(table.by_bit):
        if of_value & matching:
            free, total = (of_value & plan.candidates).bit_count(), (of_value & matching).bit_count()
            counts.append(ValueCount(value_texts(table, 1 << bit)[0], free, total))
    counts.sort(key=lambda each: (-each.free, -each.total, each.value))
    return RequestValues(plan.name, _count(plan), tuple(counts), (matching & ~table.has).bit_count())


def value_texts(table: AttributeTable, bits: int) -> tuple[str, ...]:
    """Return values of an attribute as texts."""
    return tuple(
        str(value).lower() if kind == "bool" else str(value)
        for bit, (kind, value) in enumerate(table.values)
        if bits >> bit & 1
    )
