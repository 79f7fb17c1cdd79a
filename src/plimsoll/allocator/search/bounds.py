"""Bounds that detect infeasible requests without trying devices.

All bounds are safe: they report infeasibility only if no selection of devices could serve the remaining
requests. A prioritized list counts with the minimum over its subrequests, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.request_matching import AttributeConstraint, RequestPlan, RequestStep
from plimsoll.allocator.search.search_state import NO_VALUES, SearchState
from plimsoll.allocator.search.supply import SupplyBound
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS


class RemainingSteps(NamedTuple):
    """Inputs of the steps from a position on."""

    devices: int  #: mask
    claims: tuple[int, ...]
    constraints: tuple[int, ...]


class SearchBounds:
    """Bounds for the steps of one search, from every position on."""

    __slots__ = (
        "_ahead",
        "_constraints",
        "_counting",
        "_demands",
        "_later",
        "_priced",
        "_shareable",
        "_steps",
        "_supply",
        "failed_step",
    )

    def __init__(
        self,
        steps: Sequence[RequestStep],
        constraints: Sequence[AttributeConstraint],
        devices: NodeDevices,
        usage: DeviceUsage,
        priced: bool,
    ) -> None:
        self._steps = steps
        self._constraints = constraints
        self._shareable = devices.shareable
        self._counting = devices.counting
        self._priced = priced  #: True if devices charge a budget, which any selection reduces
        self._supply = SupplyBound(steps, devices, usage)
        self.failed_step = 0  #: the infeasible step found by `is_infeasible`
        self._demands: dict[int, list[tuple[int, int]]] = {}
        self._later: dict[tuple[int, int], list[RequestPlan]] = {}
        self._ahead: list[RemainingSteps] = []

    def ahead(self, position: int) -> RemainingSteps:
        """Return the inputs of the steps from a position on; computed for all positions at the first call."""
        if not self._ahead:
            devices, claims, constraints = 0, set[int](), set[int]()
            found = [RemainingSteps(0, (), ())]
            for step in reversed(self._steps):
                claims.add(step.claim)
                for plan in step.plans:
                    devices |= plan.candidates | plan.fault_mask
                    constraints.update(plan.constraints)
                found.append(RemainingSteps(devices, tuple(sorted(claims)), tuple(sorted(constraints))))
            self._ahead = found[::-1]
        return self._ahead[position]

    def is_infeasible(self, search_state: SearchState) -> bool:
        """Return whether a request cannot be served alone, or all requests not together."""
        for position, step in enumerate(self._steps):
            if all(_is_short(plan) for plan in step.plans):
                self.failed_step = position
                return True
        self.failed_step = len(self._steps) - 1
        return len(self._steps) > 1 and self.is_overdrawn(0, search_state)

    def is_overdrawn(self, position: int, search_state: SearchState) -> bool:
        """Return whether the steps from a position on need more devices, counters or capacity than are
        left.
        """
        return self.lacks_devices(position, search_state.picked) or self._supply.lacks(position, search_state)

    def exceeds_supply(self, mask: int, missing: int, position: int, search_state: SearchState) -> bool:
        """Return whether the cheapest devices of a mask that a plan still needs exceed the counters left."""
        return bool(self._counting) and self._supply.exceeds_supply(mask, missing, position, search_state)

    def is_independent(self, plan: RequestPlan, position: int) -> bool:
        """Return whether the steps from a position on are independent of the devices of a plan."""
        ahead = self.ahead(position)
        if plan.candidates & (ahead.devices | self._counting) or self._priced:
            return False
        return not any(constraint in plan.constraints for constraint in ahead.constraints)

    def lacks_devices(self, position: int, picked: int) -> bool:
        """Return whether the steps from a position on need more devices than are left."""
        demands = self._demands.get(position)
        if demands is None:
            demands = self._demands[position] = self._sum_demands(position)
        return any((mask & ~picked).bit_count() < count for mask, count in demands)

    def _sum_demands(self, position: int) -> list[tuple[int, int]]:
        """Return masks of devices, and the number needed of each by the remaining steps."""
        needs = [_least_need(step) for step in self._steps[position:]]
        masks = {mask for mask, count in needs if count}
        together = 0
        for mask in masks:
            if not mask & self._shareable:
                together |= mask
        demands = []
        for wide in {together, *masks}:
            if wide & self._shareable:
                count = max(count for mask, count in needs if mask == wide)
            else:
                count = sum(count for mask, count in needs if not mask & ~wide)
            demands.append((wide, count))
        return demands

    def filter_viable(
        self,
        constraint: int,
        state: int,
        position: int,
        plan: RequestPlan,
        number: int,
        mask: int,
        picked: int,
    ) -> int:
        """Return the candidates of a plan with which a constraint can hold to the end.

        `mask` has the candidates that satisfy the constraint so far; `number` devices of the plan are
        selected already.
        """
        table = plan.tables[constraint]
        later = self._later_plans(constraint, position)
        missing = plan.count - number
        if self._constraints[constraint].distinct:
            varied = self._varied_enough(constraint, state, missing, [plan, *later], mask, picked)
            return mask if varied else 0
        viable, rest = 0, _all_bits(table) if state == NO_VALUES else state
        while rest:
            low = rest & -rest
            rest ^= low
            if self._enough(constraint, low.bit_length() - 1, missing, [plan, *later], mask, picked):
                viable |= low
        kept = table.overlapping(viable)
        if missing == 1 and not later:
            kept |= table.opaque
        return mask & kept

    def _enough(
        self, constraint: int, bit: int, missing: int, plans: Sequence[RequestPlan], mask: int, picked: int
    ) -> bool:
        """Return whether the devices with one value suffice for all requests under a constraint."""
        first, *later = plans
        mine = mask & first.tables[constraint].by_bit[bit]
        if mine.bit_count() < missing:
            return False
        union, total, exclusive = mine, missing, not mine & self._shareable
        for plan in later:
            theirs = plan.candidates & plan.tables[constraint].by_bit[bit]
            if not plan.admin:
                theirs &= ~picked
            if theirs.bit_count() < plan.count:
                return False
            union |= theirs
            total += plan.count
            exclusive = exclusive and not (plan.admin or theirs & self._shareable)
        return not exclusive or union.bit_count() >= total

    def _varied_enough(
        self, constraint: int, state: int, missing: int, plans: Sequence[RequestPlan], mask: int, picked: int
    ) -> bool:
        """Return whether there are as many values as devices that must differ in them."""
        first, *later = plans
        if any(not _has_one_value(plan.tables[constraint]) for plan in plans):
            return True
        used = 0 if state == NO_VALUES else state
        found = _values_of(first.tables[constraint], mask) & ~used
        if found.bit_count() < missing:
            return False
        total = missing
        for plan in later:
            theirs = plan.candidates if plan.admin else plan.candidates & ~picked
            found |= _values_of(plan.tables[constraint], theirs) & ~used
            total += plan.count
        return not later or found.bit_count() >= total

    def _later_plans(self, constraint: int, position: int) -> list[RequestPlan]:
        """Return the plans under a constraint that certainly follow a position."""
        known = self._later.get((constraint, position))
        if known is None:
            known = self._later[constraint, position] = [
                step.plans[0]
                for step in self._steps[position + 1 :]
                if not step.optional and constraint in step.plans[0].constraints
            ]
        return known


def _least_need(step: RequestStep) -> tuple[int, int]:
    """Return the devices that a step selects from, and the minimum number it needs."""
    if any(plan.admin for plan in step.plans):
        return 0, 0
    mask = 0
    for plan in step.plans:
        mask |= plan.candidates
    return mask, min(plan.count for plan in step.plans)


def _all_bits(table: AttributeTable) -> int:
    """Return the bits of all values of a table."""
    return (1 << len(table.by_bit)) - 1


def _is_short(plan: RequestPlan) -> bool:
    if plan.all:
        return not plan.devices
    return plan.candidates.bit_count() < plan.count or plan.count > MAX_ALLOCATION_RESULTS


def _has_one_value(table: AttributeTable) -> bool:
    """Return whether every device of a table that has the attribute has exactly one value."""
    return table.scalar and not table.opaque


def _values_of(table: AttributeTable, mask: int) -> int:
    """Return the bits of the values that the devices of a mask have."""
    return sum(1 << bit for bit, having in enumerate(table.by_bit) if having & mask)
