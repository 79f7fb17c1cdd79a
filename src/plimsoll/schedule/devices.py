"""Devices and books as one question, node by node.

Owns `try_place`, the exact answer for one node: devices for the claims that wait, chosen so that what they
charge stays below the node's line and inside the pod's own budget, and the bills to book (document 000,
"Joint allocation" and story 4); and `DevicesFilter`, which asks it as seldom as it can. A search that failed
on a node fails there again for every pod of the same shape until something is given back, because taking
more never helps: such refusals are remembered by shape and place (`Memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from plimsoll.allocate import (
    Allocation,
    AllocationState,
    Budget,
    BudgetLine,
    Fault,
    GaveUp,
    Limits,
    Outcome,
    Refusal,
    allocate_claims,
)
from plimsoll.allocate.devices.usage import Usage
from plimsoll.api.core import Node, NodeSelector
from plimsoll.api.forms import device_forms, read_device_class
from plimsoll.api.identity import PoolId
from plimsoll.api.node_selection import NAME_FIELD, selector_matches
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import AllocationResult, DeviceClass, ResourceClaim
from plimsoll.ledger.allowance import allowance_for
from plimsoll.ledger.claims import Bill
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.judge import judge_placement, price_claims
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.texts import render as render_charge
from plimsoll.ledger.verdict import Code, Reason
from plimsoll.schedule.filters.filter import Filter
from plimsoll.schedule.index import Index
from plimsoll.schedule.reasons import NodeReason, Rule, Sentence, render
from plimsoll.schedule.settings import Settings
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task

NewId = Callable[[], str]
#: For how many shapes of pods refusals are remembered.
SHAPES_KEPT = 256
#: How many states of nodes are remembered for a shape.
STATES_KEPT = 1024
#: What makes nodes answer alike: their devices, what is taken of them, and the room they have.
State: TypeAlias = "tuple[object, object, object]"
#: The best a choice of alternatives can score.
BEST = 100


@dataclass(frozen=True, slots=True)
class Fit:
    """A pod fits on a node: what its waiting claims get, what they charge, and how well it was served."""

    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    bills: tuple[Bill, ...] = ()
    rank: int = BEST  #: 100 if every prioritized list got its first alternative, less for later ones
    #: What is taken of each capacity, by driver and name, where devices are to be compared by size.
    sizes: tuple[tuple[tuple[str, str], int], ...] = ()


NO_CLAIMS = Fit()


def try_place(
    task: Task,
    place: int,
    snapshot: Snapshot,
    new_id: NewId,
    settings: Settings | None = None,
    ledger: NodeLedger | None = None,
    explain: bool = False,
) -> Fit | tuple[NodeReason, ...]:
    """Whether a node has the devices and the room for a pod's claims; `ledger` may be another than it has."""
    if not task.claims:
        return NO_CLAIMS
    node = snapshot.node(place)
    for claim in task.claims:
        if not is_usable_on(claim, node):
            return (_ELSEWHERE,)
    ledger = ledger or snapshot.ledger(place)
    charged = snapshot.options.count_claims and charges_node(snapshot, place)
    if not task.waiting:
        return _judge(task, {}, place, snapshot, ledger) if charged else Fit()
    settings = settings or Settings.default()

    def search(budget: Budget | None, state: AllocationState = snapshot.state) -> Outcome:
        return allocate_claims(
            snapshot.inventory,
            state,
            task.waiting,
            node,
            classes=snapshot.classes,
            new_id=new_id,
            budget=budget,
            limits=Limits(settings.search_steps),
            preference=settings.device_preference,
            explain=explain,
        )

    outcome = search(_budget(task, place, snapshot, ledger) if charged else None)
    if charged and isinstance(outcome, Refusal):
        # Are there no devices, or is it only that the node cannot afford them? Users know both sentences.
        unbound = search(None)
        if isinstance(unbound, Allocation):
            judged = _judge(task, _by_name(task, unbound), place, snapshot, ledger)
            if isinstance(judged, Fit):
                return (_refusal(outcome),)
            if not all(reason.resolvable for reason in judged) and len(ledger):
                # These devices cost more than the node has; cheaper ones may be in the hands of others.
                deserted = _budget(task, place, snapshot, NodeLedger(node, snapshot.gates, snapshot.profile))
                if isinstance(search(deserted, _own_devices(task, snapshot)), Allocation):
                    return tuple(replace(reason, code=Code.UNSCHEDULABLE) for reason in judged)
            return judged
    if not isinstance(outcome, Allocation):
        return (_refusal(outcome),)
    allocations = _by_name(task, outcome)
    fit = _judge(task, allocations, place, snapshot, ledger) if charged else Fit(allocations)
    if isinstance(fit, Fit):
        sizes = _sizes(allocations, place, snapshot) if settings.waste_weight else ()
        fit = replace(fit, rank=_rank(task.waiting, outcome.alternatives), sizes=sizes)
    return fit


def _own_devices(task: Task, snapshot: Snapshot) -> AllocationState:
    """What would be held if there were no other pods."""
    return AllocationState.of(task.claims, snapshot.features.consumable_capacity)


def _by_name(task: Task, allocation: Allocation) -> dict[str, AllocationResult]:
    return {c.metadata.name: result for c, result in zip(task.waiting, allocation.results, strict=True)}


def _judge(
    task: Task,
    allocations: Mapping[str, AllocationResult],
    place: int,
    snapshot: Snapshot,
    ledger: NodeLedger,
) -> Fit | tuple[NodeReason, ...]:
    """What the books say to these allocations."""
    claims = {claim.metadata.name: claim for claim in task.claims}
    judged = judge_placement(ledger, task.pod, claims, allocations, snapshot.pricing(place))
    if not judged.verdict.fits:
        return tuple(map(_of_ledger, judged.verdict.reasons))
    return Fit(allocations, judged.bills or ())


def is_usable_on(claim: ResourceClaim, node: Node) -> bool:
    """Whether a claim's devices, if it has any yet, can be used on a node."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return True
    return selector_matches(allocation.node_selector, node) is True


def charges_node(snapshot: Snapshot, place: int) -> bool:
    """Whether any device of a node could charge the node; where none does, the books have nothing to say."""
    return snapshot.index(Chargers).at(place, snapshot)


class Chargers(Index):
    """Which nodes have devices with mappings, found out once per state of the node's devices.

    A class that says in an annotation what its devices charge concerns all nodes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bool]] = {}
        self._classes: set[str] = set()

    def object_set(self, new: Any, old: Any) -> None:
        if isinstance(new, DeviceClass):
            if read_device_class(new).charges:
                self._classes.add(new.metadata.name)
            else:
                self._classes.discard(new.metadata.name)

    def object_removed(self, old: Any) -> None:
        if isinstance(old, DeviceClass):
            self._classes.discard(old.metadata.name)

    def at(self, place: int, snapshot: Snapshot) -> bool:
        if self._classes:
            return True
        devices = snapshot.inventory.devices_for(snapshot.node(place))
        known = self._known.get(place)
        if known is None or known[0] is not devices:
            any_mapped = isinstance(devices, Fault) or any(device_forms(e.device) for e in devices.entries)
            known = self._known[place] = (devices, any_mapped)
        return known[1]


def _budget(task: Task, place: int, snapshot: Snapshot, ledger: NodeLedger) -> Budget:
    pricing = snapshot.pricing(place)
    bills: list[Bill] = []
    if len(task.waiting) < len(task.claims):
        claims = {claim.metadata.name: claim for claim in task.claims}
        bills = [b for b in price_claims(task.pod, claims, {}, pricing) if isinstance(b, Bill)]
    allowance = allowance_for(ledger, task.pod, pricing, bills)
    return Budget(allowance.charge, [BudgetLine(name, left) for name, left in allowance.bounds.items()])


def _rank(claims: Sequence[ResourceClaim], alternatives: Sequence[Sequence[int]]) -> int:
    """How far up the prioritized lists the choice is, 100 for the first of every list."""
    best = got = 0
    for claim, chosen in zip(claims, alternatives, strict=True):
        for request, number in zip(claim.spec.devices.requests, chosen, strict=True):
            best += len(request.first_available)
            got += len(request.first_available) - number if request.first_available else 0
    return got * BEST // best if best else BEST


def _sizes(
    allocations: Mapping[str, AllocationResult], place: int, snapshot: Snapshot
) -> tuple[tuple[tuple[str, str], int], ...]:
    """What allocations take of each capacity: all of it, or what a share consumes."""
    devices = snapshot.inventory.devices_for(snapshot.node(place))
    sizes: dict[tuple[str, str], int] = {}
    for allocation in allocations.values():
        for result in allocation.devices.results:
            taken = {name: amount.nano for name, amount in result.consumed_capacity.items()}
            if result.share_id is None and not isinstance(devices, Fault):
                entry = devices.entries[devices.index[PoolId(result.driver, result.pool)][result.device]]
                taken = {name: (c.value or ZERO).nano for name, c in entry.device.capacity.items()}
            for name, amount in taken.items():
                key = (result.driver, name)
                sizes[key] = sizes.get(key, 0) + amount
    return tuple(sizes.items())


def _refusal(outcome: object) -> NodeReason:
    # DIFF: upstream takes a shortage of devices for one that preemption cannot help, because its dry runs
    # leave victims' claims allocated; here they are freed. test_devices_of_victims_are_freed
    if isinstance(outcome, Fault):
        code = Code.UNRESOLVABLE if outcome.node_scoped else Code.ERROR
        return NodeReason(Rule.DEVICES, Sentence.TOLD, code, {"text": str(outcome)}, outcome)
    if isinstance(outcome, GaveUp):
        return NodeReason(Rule.DEVICES, Sentence.GAVE_UP, Code.ERROR, {"steps": outcome.steps}, outcome)
    return NodeReason(Rule.DEVICES, Sentence.CANNOT_ALLOCATE, Code.UNSCHEDULABLE, {}, outcome)


def _of_ledger(reason: Reason) -> NodeReason:
    return NodeReason(Rule.DEVICES, Sentence.TOLD, reason.code, {"text": render_charge(reason)}, reason)


_ELSEWHERE = NodeReason(Rule.DEVICES, Sentence.CLAIM_ELSEWHERE, Code.UNRESOLVABLE)


class Memory(Index):
    """What exact searches found out, by shape of pod and place, until something is given back there.

    That a node refuses stays true when more is taken; the reason that is told may be the one of before.

    `refused_at` is the stamp of the snapshot when the search failed; it counts while the place's `freed`
    stamp is not newer. `rank` is the best that prioritized lists can still get, as the last search saw it.
    """

    def __init__(self) -> None:
        self._shapes: dict[bytes, Shape] = {}
        self._size = 0

    def grown(self, size: int) -> None:
        self._size = size
        self._shapes.clear()

    def object_set(self, new: Any, old: Any) -> None:
        if isinstance(new, DeviceClass):
            self._shapes.clear()  # a class is part of what was asked

    def clear(self) -> None:
        self._shapes.clear()

    def node_removed(self, place: int, node: Node) -> None:
        self.forget(place)

    def forget(self, place: int) -> None:
        """What is known of a place does not hold any more."""
        for shape in self._shapes.values():
            shape.clear(place)

    def shape(self, key: bytes) -> Shape:
        known = self._shapes.pop(key, None) or Shape(self._size)
        self._shapes[key] = known  # the newest last
        if len(self._shapes) > SHAPES_KEPT:
            del self._shapes[next(iter(self._shapes))]
        return known


class Shape:
    """The findings for pods of one shape. Alike reasons have one number, so that they can be counted."""

    __slots__ = ("_numbers", "kinds", "ranked_at", "ranks", "reasons", "refused_at", "states")

    def __init__(self, size: int) -> None:
        self.refused_at: Column = np.full(size, -1, dtype=np.int64)
        self.ranked_at: Column = np.full(size, -1, dtype=np.int64)
        self.ranks: Column = np.full(size, BEST, dtype=np.int64)
        self.kinds: Column = np.zeros(size, dtype=np.int64)
        self.reasons: list[tuple[NodeReason, ...]] = []
        self._numbers: dict[tuple[tuple[str, Code], ...], int] = {}
        self.states: dict[State, tuple[NodeReason, ...]] = {}

    def remember(self, state: State, reasons: tuple[NodeReason, ...]) -> None:
        """Nodes in this state refuse pods of this shape."""
        self.states[state] = reasons
        if len(self.states) > STATES_KEPT:
            del self.states[next(iter(self.states))]

    def refuse(self, place: int, stamp: int, reasons: tuple[NodeReason, ...]) -> None:
        told = tuple((render(reason), reason.code) for reason in reasons)
        number = self._numbers.get(told)
        if number is None:
            number = self._numbers[told] = len(self.reasons)
            self.reasons.append(reasons)
        self.refused_at[place] = stamp
        self.kinds[place] = number

    def clear(self, place: int) -> None:
        self.refused_at[place] = self.ranked_at[place] = -1


class DevicesFilter(Filter):
    """Claims: devices and what they charge."""

    rule = Rule.DEVICES

    def __init__(
        self, task: Task, snapshot: Snapshot, new_id: NewId = lambda: "", settings: Settings | None = None
    ) -> None:
        super().__init__(task, snapshot)
        self._new_id = new_id
        self._settings = settings
        self._shape = snapshot.index(Memory).shape(task.shape)

    def candidates(self) -> Mask:
        """The places where a search may still succeed."""
        mask = self._shape.refused_at < self.snapshot.freed
        for claim in self.task.claims:
            if claim.status.allocation is not None:
                mask &= self._usable(claim)
        return mask

    def ranks(self) -> Column:
        """The best rank that alternatives can have, place by place."""
        current = self._shape.ranked_at >= self.snapshot.freed
        return np.where(current, self._shape.ranks, BEST)

    def attempt(self, place: int) -> Fit | tuple[NodeReason, ...]:
        """Ask about one place exactly, and remember the answer."""
        found = self.answer(place)
        if isinstance(found, Fit):
            self._shape.ranks[place] = found.rank
            self._shape.ranked_at[place] = self.snapshot.freed[place]
        else:
            self._shape.refuse(place, int(self.snapshot.freed[place]), found)
        return found

    def answer(self, place: int) -> Fit | tuple[NodeReason, ...]:
        """Ask about one place exactly; only what holds for every node in the same state is remembered."""
        state = self._state(place) if self._shape.states else None
        known = self._shape.states.get(state) if state is not None else None
        found = known or try_place(self.task, place, self.snapshot, self._new_id, self._settings)
        if not isinstance(found, Fit):
            state = state or self._state(place)
            if state is not None:
                self._shape.remember(state, found)
        return found

    def short_of_devices(self) -> Mask:
        """The places that are known to have too few devices, whatever their books say."""
        told = [any(r.sentence is Sentence.CANNOT_ALLOCATE for r in each) for each in self._shape.reasons]
        current = self._shape.refused_at >= self.snapshot.freed
        return current & np.array([*told, False], dtype=np.bool_)[self._shape.kinds]

    def feasible(self) -> Mask:
        mask = self.candidates() & self.snapshot.alive
        for place in np.flatnonzero(mask).tolist():
            mask[place] = isinstance(self.attempt(place), Fit)
        return mask

    def why_not(self, place: int) -> tuple[NodeReason, ...]:
        found = try_place(self.task, place, self.snapshot, self._new_id, self._settings, explain=True)
        return () if isinstance(found, Fit) else found

    def tally(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        self._ask(removed)
        counts = np.bincount(self._shape.kinds[removed], minlength=len(self._shape.reasons)).tolist()
        groups: dict[str, tuple[NodeReason, int]] = {}
        for reasons, count in zip(self._shape.reasons, counts, strict=True):
            for reason in reasons if count else ():
                text = render(reason)
                groups[text] = (reason, groups.get(text, (reason, 0))[1] + count)
        return list(groups.values())

    def resolvable(self, removed: Mask) -> Mask:
        self._ask(removed)
        helps = [all(reason.resolvable for reason in reasons) for reasons in self._shape.reasons]
        return removed & np.array([*helps, False], dtype=np.bool_)[self._shape.kinds]

    def _state(self, place: int) -> State | None:
        """What an answer depends on beside the shape of the pod; None where that is more than can be said.

        Nodes with the same devices, of which the same is taken, and with the same room fail alike.
        """
        if len(self.task.waiting) < len(self.task.claims):
            return None
        devices = self.snapshot.inventory.devices_for(self.snapshot.node(place))
        likeness = None if isinstance(devices, Fault) else devices.likeness
        if likeness is None or isinstance(devices, Fault):
            return None
        room: object = None
        if self.snapshot.options.count_claims and charges_node(self.snapshot, place):
            ledger = self.snapshot.ledger(place)
            room = (tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items())))
        return (likeness, Usage(devices, self.snapshot.state).likeness, room)

    def _ask(self, removed: Mask) -> None:
        """See to it that there is an answer for each of these places."""
        unknown = removed & (self._shape.refused_at < self.snapshot.freed)
        for place in np.flatnonzero(unknown).tolist():
            self.attempt(place)

    def _usable(self, claim: ResourceClaim) -> Mask:
        mask = np.zeros(self.snapshot.size, dtype=np.bool_)
        allocation = claim.status.allocation
        name = None if allocation is None else _only_node(allocation.node_selector)
        places = self.snapshot.places() if name is None else [self.snapshot.place_of(name)]
        for place in places:
            if place is not None:
                mask[place] = is_usable_on(claim, self.snapshot.node(place))
        return mask


def _only_node(selector: NodeSelector | None) -> str | None:
    """The name of the only node a selector can match, where that is plain to see."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for requirement in selector.node_selector_terms[0].match_fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.values[0]
    return None
