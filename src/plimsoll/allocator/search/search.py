"""Backtracking search for the devices of every request.

Tries claims, requests, subrequests and devices in upstream's order (docs/spec/allocator.md, "Search"); the
first complete solution wins. It skips choices that are known to fail:

- devices that no rule distinguishes are tried once (`symmetry.py`);
- a state of the later requests that failed once is not entered again (`_failed`);
- a request whose candidates cannot suffice, alone or together with the later ones, fails before any of them
  is tried (`bounds.py`).

None of this changes which solution is found first. If a candidate could end the search with a fault, only the
second rule applies, so that the fault is found. The search has an explicit stack, counts its steps, and
aborts at its limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.limits import StepBudget, StepCounter
from plimsoll.allocator.request_matching import RequestPlan, RequestSet, RequestStep
from plimsoll.allocator.search.bounds import SearchBounds
from plimsoll.allocator.search.search_state import Pick, SearchState, UndoRecord
from plimsoll.allocator.search.symmetry import group_devices
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS

#: Rejected devices after which the supply bound is evaluated for the rest of a request.
SUPPLY_CHECK_AFTER_REJECTIONS = 64


class SearchEnd(Enum):
    """Result of a search, other than a fault."""

    FOUND = "found"
    NONE = "none"
    ABORTED = "gave up"


class _Signal(Enum):
    FAILED = 0
    EXCEEDED = 1  #: too many devices for the claim, regardless of the selection


class _AlternativeFrame:
    """Stack frame of a prioritized list: the subrequest being tried."""

    __slots__ = ("alternative", "exceeded", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.alternative = 0
        self.exceeded = True


class _DeviceFrame:
    """Stack frame of devices selected for one plan: one of a count, or all at once."""

    __slots__ = ("alternative", "candidates", "number", "plan", "position", "undo")

    def __init__(
        self, position: int, alternative: int, plan: RequestPlan, number: int, candidates: int
    ) -> None:
        self.position = position
        self.alternative = alternative
        self.plan = plan
        self.number = number  #: number of devices of the plan selected before
        self.candidates = candidates  #: mask of devices not tried yet
        self.undo: list[UndoRecord] = []


class Search:
    """One deterministic search over the steps of a request set."""

    __slots__ = (
        "_bounds",
        "_chosen",
        "_classes",
        "_clock",
        "_devices",
        "_exact",
        "_failed",
        "_has_admin",
        "_order",
        "_ordered",
        "_rejections",
        "_search_state",
        "_stack",
        "_steps",
        "_usage",
        "deepest",
    )

    def __init__(
        self,
        order: RequestSet,
        devices: NodeDevices,
        usage: DeviceUsage,
        search_state: SearchState,
        clock: StepCounter | StepBudget,
        steps: Sequence[RequestStep] | None = None,
    ) -> None:
        self._order = order
        self._steps = order.steps if steps is None else tuple(steps)
        self._devices = devices
        self._usage = usage
        self._search_state = search_state
        self._clock = clock
        plans = [plan for step in self._steps for plan in step.plans]
        #: Whether some candidate could end the search with a fault.
        self._exact = any(plan.may_fail or (plan.all and plan.constraints) for plan in plans)
        self._has_admin = any(plan.admin for plan in plans)
        #: Whether the order of devices under a constraint matters: a value that equals nothing is allowed
        #: only as the first.
        self._ordered = any(table.opaque for table in order.tables)
        self._stack: list[_AlternativeFrame | _DeviceFrame] = []
        self._chosen = [0] * len(self._steps)
        # -- learned during the search
        self._classes: list[int] | None = None
        self._failed: dict[object, _Signal] = {}
        self._rejections = 0  #: devices rejected by counters, capacity or budget
        priced = search_state.remaining_budget is not None
        self._bounds = SearchBounds(self._steps, order.constraints, devices, usage, priced)
        #: Furthest position of the search: the failed step, its plan, and the picks before it.
        self.deepest: tuple[int, int, tuple[Pick, ...]] = (-1, 0, ())

    def run(self) -> SearchEnd | AllocationFault:
        """Search until there is a solution, infeasibility, a fault, or the step limit."""
        if not self._exact and self._bounds.is_infeasible(self._search_state):
            self.deepest = (self._bounds.failed_step, 0, ())
            return SearchEnd.NONE
        position = 0
        while True:
            if position == len(self._steps):
                return SearchEnd.FOUND
            outcome = self._enter(position)
            while isinstance(outcome, _Signal):
                if not self._stack:
                    return SearchEnd.NONE
                outcome = self._resume(outcome)
            if not isinstance(outcome, int):
                return outcome
            position = outcome

    @property
    def alternatives(self) -> Sequence[int]:
        """After FOUND: the subrequest that served each step."""
        return self._chosen

    @property
    def picks(self) -> Sequence[Pick]:
        """After FOUND: the devices, in the order of selection."""
        return self._search_state.picks

    @property
    def may_reorder(self) -> bool:
        """True if the order of the requests does not affect the existence of a solution."""
        return not self._exact and not self._has_admin and not self._ordered

    def learn_from(self, other: Search) -> None:
        """Take over the failures of an aborted search over the same steps."""
        self._failed.update(other._failed)

    # -- steps; each returns the next position, a signal to backtrack, or an end

    def _enter(self, position: int) -> int | _Signal | SearchEnd | AllocationFault:
        """Start a request."""
        if self._steps[position].optional:
            self._stack.append(_AlternativeFrame(position))
        return self._start(position, 0)

    def _start(self, position: int, alternative: int) -> int | _Signal | SearchEnd | AllocationFault:
        """Start one plan of a request."""
        self._chosen[position] = alternative
        plan = self._steps[position].plans[alternative]
        if plan.all and not plan.devices:
            return self._fail(position, alternative)
        if self._search_state.counts[plan.claim] + plan.count > MAX_ALLOCATION_RESULTS:
            return self._crossing(position, _Signal.EXCEEDED)
        if plan.count <= 0:
            return position + 1
        if self._failed:
            known = self._failed.get(self._key(position, alternative))
            if known is not None:
                return self._crossing(position, known)
            if not self._exact and self._bounds.is_overdrawn(position, self._search_state):
                return self._fail(position, alternative)
        if plan.all:
            return self._take_all(position, alternative, plan)
        candidates = self._filter(plan, position, plan.candidates | plan.fault_mask, 0)
        frame = _DeviceFrame(position, alternative, plan, 0, candidates)
        self._stack.append(frame)
        return self._advance(frame)

    def _advance(self, frame: _DeviceFrame) -> int | _Signal | SearchEnd | AllocationFault:
        """Select the next candidate of a frame, and continue with the rest of its plan."""
        plan, position = frame.plan, frame.position
        while frame.candidates:
            low = frame.candidates & -frame.candidates
            frame.candidates ^= low
            if self._clock.tick():
                return SearchEnd.ABORTED
            device = low.bit_length() - 1
            if low & plan.fault_mask:
                return self._order.fault_of(plan, device, self._devices)
            if low & plan.derived_faults and self._search_state.has_room(plan, device):
                return self._order.derived_fault_of(plan, device, self._devices)
            undo = self._search_state.take(plan, device)
            if undo is None:
                self._rejections += 1
                continue
            frame.undo = [undo]
            number = frame.number + 1
            missing = plan.count - number
            following = self._filter(plan, position, frame.candidates, number) if missing else 0
            if not self._exact and self._falls_short(position, following, missing):
                self._search_state.undo_picks(frame.plan, frame.undo)
                self._skip_equals(frame, device)
                continue
            if not missing:
                return position + 1
            frame = _DeviceFrame(position, frame.alternative, plan, number, following)
            self._stack.append(frame)
        self._stack.pop()
        return self._fail(position, frame.alternative) if frame.number == 0 else _Signal.FAILED

    def _falls_short(self, position: int, following: int, missing: int) -> bool:
        """Return whether the remainder cannot serve the rest of a plan, or the requests after it.

        The bounds over later requests cost more than a step, so they are evaluated only after a failure.
        """
        if following.bit_count() < missing:
            return True
        if self._failed and self._bounds.lacks_devices(position + 1, self._search_state.picked):
            return True
        return self._rejections > SUPPLY_CHECK_AFTER_REJECTIONS and self._bounds.exceeds_supply(
            following, missing, position + 1, self._search_state
        )

    def _take_all(
        self, position: int, alternative: int, plan: RequestPlan
    ) -> int | _Signal | SearchEnd | AllocationFault:
        """Select every device of a plan, or fail: there are no alternatives."""
        frame = _DeviceFrame(position, alternative, plan, 0, 0)
        for device in plan.devices:
            if self._clock.tick():
                return SearchEnd.ABORTED
            undo = self._search_state.take_required(plan, device)
            if isinstance(undo, AllocationFault):
                return undo
            if undo is None:
                self._search_state.undo_picks(frame.plan, frame.undo)
                return self._fail(position, alternative)
            frame.undo.append(undo)
        self._stack.append(frame)
        return position + 1

    def _resume(self, signal: _Signal) -> int | _Signal | SearchEnd | AllocationFault:
        """Backtrack to the last decision and try the next choice."""
        frame = self._stack[-1]
        if isinstance(frame, _AlternativeFrame):
            return self._next_alternative(frame, signal)
        device = frame.undo[0][0]
        self._search_state.undo_picks(frame.plan, frame.undo)
        if not frame.plan.all and signal is _Signal.FAILED:
            if self._is_unrelated_failure(frame):
                frame = self._unwind(frame)
            elif self._exact or not self._bounds.lacks_devices(frame.position + 1, self._search_state.picked):
                self._skip_equals(frame, device)
                return self._advance(frame)
        self._stack.pop()
        if frame.number == 0:
            self._failed[self._key(frame.position, frame.alternative)] = signal
        return self._crossing(frame.position, signal)

    def _next_alternative(
        self, frame: _AlternativeFrame, signal: _Signal
    ) -> int | _Signal | SearchEnd | AllocationFault:
        frame.exceeded = frame.exceeded and signal is _Signal.EXCEEDED
        frame.alternative += 1
        if frame.alternative < len(self._steps[frame.position].plans):
            return self._start(frame.position, frame.alternative)
        self._stack.pop()
        return self._crossing(frame.position, _Signal.EXCEEDED if frame.exceeded else _Signal.FAILED)

    def _crossing(self, position: int, signal: _Signal) -> _Signal:
        """Return the signal for the frame below; an earlier claim can only see a failure."""
        if self._stack and self._steps[self._stack[-1].position].claim != self._steps[position].claim:
            return _Signal.FAILED
        return signal

    def _fail(self, position: int, alternative: int) -> _Signal:
        """Record that a plan cannot be served in this state."""
        self._failed[self._key(position, alternative)] = _Signal.FAILED
        if position > self.deepest[0]:
            self.deepest = (position, alternative, tuple(self._search_state.picks))
        return _Signal.FAILED

    def _key(self, position: int, alternative: int) -> object:
        """Return the part of the state that the steps from a position on depend on."""
        search_state = self._search_state
        devices, claims, constraints = self._bounds.ahead(position)
        return (
            position,
            alternative,
            search_state.picked & devices,
            tuple([search_state.constraints[number] for number in constraints]),
            tuple([search_state.counts[claim] for claim in claims]),
            tuple([search_state.picked_by[claim] for claim in claims]) if self._has_admin else None,
            tuple(sorted(search_state.shares.items())) if search_state.shares else None,
            tuple(search_state.drawn),
            tuple(search_state.groups),
            tuple(search_state.remaining_budget.left) if search_state.remaining_budget is not None else None,
        )

    def _is_unrelated_failure(self, frame: _DeviceFrame) -> bool:
        """Return whether the failed later requests are independent of the devices of this plan."""
        if self._exact or frame.number + 1 < frame.plan.count:
            return False
        return self._bounds.is_independent(frame.plan, frame.position + 1)

    def _unwind(self, frame: _DeviceFrame) -> _DeviceFrame:
        """Undo all selections of the top frame's plan, down to its first frame."""
        while frame.number:
            self._stack.pop()
            below = self._stack[-1]
            assert isinstance(below, _DeviceFrame)
            frame = below
            self._search_state.undo_picks(frame.plan, frame.undo)
        return frame

    # -- candidates

    def _filter(self, plan: RequestPlan, position: int, mask: int, number: int) -> int:
        """Return the devices of a mask that are free and satisfy the constraints so far."""
        search_state = self._search_state
        mask &= ~search_state.unavailable(plan)
        if not plan.constraints:
            return mask
        # A device with a fault ends the search before constraints are evaluated, one whose derived attribute
        # fails as soon as it satisfies those before.
        faulty = mask & plan.fault_mask
        for constraint in plan.constraints:
            faulty |= mask & plan.tables[constraint].failed
            mask &= search_state.compatible_devices(plan, constraint)
            if mask and not self._exact:
                state = search_state.constraints[constraint]
                mask = self._bounds.filter_viable(
                    constraint, state, position, plan, number, mask, search_state.picked
                )
        return mask | faulty

    def _skip_equals(self, frame: _DeviceFrame, device: int) -> None:
        """Remove the candidates that are equivalent to a device that failed."""
        if self._exact or self._ordered or frame.plan.admin or not frame.candidates:
            return
        search_state = self._search_state
        if self._classes is None:
            plans = [plan for step in self._steps for plan in step.plans]
            self._classes = group_devices(
                plans, self._order.tables, self._devices, self._usage, search_state.remaining_budget
            )
        equals = self._classes[device]
        if self._devices.shareable >> device & 1 and search_state.shares:
            # Devices with shares in this search differ by their shares.
            if device in search_state.shares:
                return
            for shared in search_state.shares:
                equals &= ~(1 << shared)
        frame.candidates &= ~equals
