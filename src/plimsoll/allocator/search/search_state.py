"""State of a search: devices selected so far, with exact undo.

Tracks selected devices, shares and the capacity they consume, counters, compatibility groups, the values seen
by constraints, results per claim, and the budget. `take` selects a device for a plan if all of these allow
it; `undo_picks` restores the state exactly (docs/spec/allocator.md, "Search", "Constraints", "Consumable
capacity" and "Shared counters").
"""

from __future__ import annotations

from operator import add, gt
from typing import NamedTuple, TypeAlias

from plimsoll.allocator.devices.capacity import Consumption
from plimsoll.allocator.devices.groups import are_compatible
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import ALL_CONSTRAINT, AllocationFault
from plimsoll.allocator.node_budget import RemainingBudget
from plimsoll.allocator.request_matching import RequestPlan, RequestSet

NO_VALUES = -1  #: state of a constraint without devices so far

#: A selected device: the plan and the device number.
Pick: TypeAlias = "tuple[RequestPlan, int]"


class UndoRecord(NamedTuple):
    """State before selecting a device."""

    device: int
    picked: int
    picked_by: int
    constraints: tuple[int, ...]
    share: tuple[int, ...] | None
    draws: bool
    groups: tuple[int, ...]
    charges: tuple[int, ...] | None


class SearchState:
    """Mutable state of a search."""

    __slots__ = (
        "_available",
        "_devices",
        "_entries",
        "_order",
        "_usage",
        "constraints",
        "counts",
        "distinct",
        "drawn",
        "groups",
        "picked",
        "picked_by",
        "picks",
        "remaining_budget",
        "shares",
    )

    def __init__(
        self,
        order: RequestSet,
        devices: NodeDevices,
        usage: DeviceUsage,
        remaining_budget: RemainingBudget | None,
    ) -> None:
        self._order = order
        self._devices = devices
        self._entries = devices.entries
        self._usage = usage
        self._available = usage.available
        self.remaining_budget = remaining_budget
        self.distinct = [constraint.distinct for constraint in order.constraints]
        self.picks: list[Pick] = []
        self.picked = 0  #: mask of devices selected exclusively
        self.picked_by = [0] * len(order.claims)  #: the same by claim
        self.counts = [0] * len(order.claims)  #: results per claim
        self.constraints = [NO_VALUES] * len(order.constraints)  #: bits of the values, by constraint
        self.drawn = [0] * len(usage.available)  #: amount drawn from each counter
        self.groups = list(usage.groups)  #: compatibility groups left, by counter set
        self.shares: dict[int, tuple[int, ...]] = {}  #: device -> (number of shares, amount per capacity)

    def compatible_devices(self, plan: RequestPlan, constraint: int) -> int:
        """Return the mask of devices that a constraint admits now for a plan."""
        state, table = self.constraints[constraint], plan.tables[constraint]
        if state == NO_VALUES:
            return table.has
        if self.distinct[constraint]:
            return table.has & ~(table.unequal | table.overlapping(state))
        return table.overlapping(state)

    def unavailable(self, plan: RequestPlan) -> int:
        """Return the mask of devices selected by this search that the plan cannot use."""
        return self.picked_by[plan.claim] if plan.admin else self.picked

    def needs_counters(self, device: int) -> bool:
        """Return whether a device consumes counters that no share of it consumes yet."""
        # DIFF: Kubernetes 1.36 draws again if the earlier share has no capacity; 1.37 and Plimsoll do not.
        # Test: test_a_persisted_share_draws_its_counters_once
        return bool(self._entries[device].draw) and self._is_first_use(device)

    def groups_fit(self, device: int) -> bool:
        """Return whether a device is compatible with those in use and those selected."""
        groups = self._entries[device].groups
        return not groups or not self._is_first_use(device) or are_compatible(groups, self.groups)

    def has_room(self, plan: RequestPlan, device: int) -> bool:
        """Return whether groups, counters and capacity allow a candidate."""
        if not self.groups_fit(device) or (self.needs_counters(device) and not self.counters_suffice(device)):
            return False
        share = self.shares.get(device)
        if share is None:
            return True
        wanted = plan.consumptions[self._entries[device].capacity]
        assert isinstance(wanted, Consumption)
        return not any(map(gt, map(add, share[1:], wanted.nano), self._usage.free(device)))

    def _is_first_use(self, device: int) -> bool:
        """Return whether no share of a device is in use."""
        return not (device in self.shares or self._usage.shared >> device & 1)

    def counters_suffice(self, device: int) -> bool:
        return all(
            self.drawn[counter] + amount <= self._available[counter]
            for counter, amount in self._entries[device].draw
        )

    def take(self, plan: RequestPlan, device: int) -> UndoRecord | None:
        """Select a candidate for a plan; None if groups, counters, capacity or budget do not allow it."""
        entry = self._entries[device]
        share = self.shares.get(device)
        draws = bool(entry.draw) and self.needs_counters(device)
        if draws and not self.counters_suffice(device):
            return None
        groups = entry.groups if entry.groups and self._is_first_use(device) else ()
        if groups and not are_compatible(groups, self.groups):
            return None
        consumed = None
        if entry.shareable:
            wanted = plan.consumptions[entry.capacity]
            assert isinstance(wanted, Consumption)
            if share is None:
                consumed = (1, *wanted.nano)
            else:
                consumed = (share[0] + 1, *map(add, share[1:], wanted.nano))
                if any(map(gt, consumed[1:], self._usage.free(device))):
                    return None
        charges = None
        if self.remaining_budget is not None:
            charges = self.remaining_budget.charges(plan, device)
            if not self.remaining_budget.fits(charges):
                return None
            self.remaining_budget.subtract(charges)
        claim = plan.claim
        states = tuple([self.constraints[number] for number in plan.constraints])
        before = tuple([self.groups[number] for number, _ in groups])
        undo = UndoRecord(device, self.picked, self.picked_by[claim], states, share, draws, before, charges)
        for number, mask in groups:
            self.groups[number] &= mask
        if draws:
            for counter, amount in entry.draw:
                self.drawn[counter] += amount
        if consumed is None:
            self.picked |= 1 << device
            self.picked_by[claim] |= 1 << device
        else:
            self.shares[device] = consumed
        for number in plan.constraints:
            self.constraints[number] = self._joined(plan, number, device)
        self.counts[claim] += 1
        self.picks.append((plan, device))
        return undo

    def take_required(self, plan: RequestPlan, device: int) -> UndoRecord | AllocationFault | None:
        """Select a device for allocation mode All, after the checks that other candidates passed before."""
        flag = 1 << device
        if flag & (self.unavailable(plan) | self._usage.blocked):
            return None
        if not plan.admin and flag & self._usage.taken:
            return None
        if not self.groups_fit(device) or (self.needs_counters(device) and not self.counters_suffice(device)):
            return None
        if flag & plan.tainted:
            return None
        for constraint in plan.constraints:
            if flag & plan.tables[constraint].failed:
                return self._order.derived_fault_of(plan, device, self._devices)
            if not flag & self.compatible_devices(plan, constraint):
                # A request for all devices under a constraint that they violate can never be satisfied.
                facts = {"claim": self._order.claims[plan.claim].metadata.full_name, "request": plan.request}
                return AllocationFault(ALL_CONSTRAINT, {**facts, "device": self._entries[device].id})
        if plan.consumptions and device in self._usage.consumed:
            wanted = plan.consumptions[self._entries[device].capacity]
            assert isinstance(wanted, Consumption)
            if not self._usage.fits(device, wanted.nano):
                return None
        return self.take(plan, device)

    def undo_picks(self, plan: RequestPlan, undo: list[UndoRecord]) -> None:
        """Undo the selections of a plan, newest first, and empty the list."""
        while undo:
            device, picked, picked_by, states, share, draws, groups, charges = undo.pop()
            self.picks.pop()
            self.counts[plan.claim] -= 1
            for number, state in zip(plan.constraints, states, strict=True):
                self.constraints[number] = state
            if draws:
                for counter, amount in self._entries[device].draw:
                    self.drawn[counter] -= amount
            if groups:
                for (number, _), state in zip(self._entries[device].groups, groups, strict=True):
                    self.groups[number] = state
            self.picked, self.picked_by[plan.claim] = picked, picked_by
            if share is not None:
                self.shares[device] = share
            else:
                self.shares.pop(device, None)
            if charges is not None and self.remaining_budget is not None:
                self.remaining_budget.restore(charges)

    def _joined(self, plan: RequestPlan, constraint: int, device: int) -> int:
        """Return the state of a constraint with one more device."""
        # DIFF: Kubernetes 1.36 stores one value per request under distinctAttribute and cannot undo a
        # narrowed list under matchAttribute; 1.37 and Plimsoll keep and restore all of them.
        # Tests: test_distinct_holds_for_three_devices_of_one_request, test_a_list_match_is_undone_exactly
        state = self.constraints[constraint]
        values = plan.tables[constraint].sets[device]
        assert values is not None
        if state == NO_VALUES:
            return values
        return state | values if self.distinct[constraint] else state & values
