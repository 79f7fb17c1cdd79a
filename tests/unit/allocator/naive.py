"""The allocator's twin: plain recursion over claims, requests, alternatives and devices.

Same rules, same order, none of the shortcuts: no masks, nothing remembered, nothing skipped, every rule asked
again at every step about everything taken so far. What it finds first is what the allocator must find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from plimsoll.allocator.features import Features
from plimsoll.allocator.state import AllocationState
from plimsoll.api.core import Node
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from tests.unit.allocator import naive_rules as rules
from tests.unit.allocator.naive_pools import gather
from tests.unit.allocator.naive_rules import Broken, Spot

LIMIT = 32

Charge = Callable[[ResourceClaim, DeviceRequestAllocationResult, Device], Mapping[str, int]]


@dataclass(frozen=True)
class Question:
    """Everything that an allocation depends on."""

    slices: Sequence[ResourceSlice]
    claims: Sequence[ResourceClaim]
    node: Node
    classes: Mapping[str, DeviceClass]
    state: AllocationState = field(default_factory=AllocationState)
    features: Features = field(default_factory=Features)
    taint_rules: Sequence[DeviceTaintRule] = ()
    charge: Charge | None = None
    bounds: Sequence[Mapping[str, int]] = ()


@dataclass(frozen=True)
class Wish:
    """A request, or one alternative of a prioritized list."""

    claim: int
    name: str
    parent: str
    body: ExactDeviceRequest | DeviceSubRequest
    expressions: tuple[str, ...]
    count: int
    everything: tuple[Spot, ...] | None = None  #: with All: the devices it must get

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def admin(self) -> bool:
        return isinstance(self.body, ExactDeviceRequest) and self.body.admin_access is True

    @property
    def capacity(self) -> Mapping[str, Quantity]:
        return self.body.capacity.requests if self.body.capacity is not None else {}


@dataclass(frozen=True)
class Taken:
    """A device for a wish."""

    wish: Wish
    spot: Spot
    consumed: Mapping[str, Quantity]  #: of a device that can be shared


class TooLong(Exception):
    """The twin has made more attempts than it was allowed."""


class _TooMany(Exception):
    """The claim would get more results than it can hold, whichever devices are chosen."""


def solve(question: Question, attempts: int = 50_000) -> tuple[Taken, ...] | None:
    """The first solution, or None; raises Broken, or TooLong after so many attempts."""
    return Twin(question, attempts).solve()


class Twin:
    """One question, being answered."""

    def __init__(self, question: Question, attempts: int) -> None:
        self.question = question
        self.features = question.features
        self.attempts = attempts
        self.pools = gather(question.slices, question.node, question.features)
        self.spots = [spot for pool in self.pools for spot in pool.spots]

    def solve(self) -> tuple[Taken, ...] | None:
        self.wishes = list(self.read())
        try:
            found = self.place(0, 0, ())
        except _TooMany:
            found = None
        if found is None:
            if any(pool.trouble == "invalid" for pool in self.pools):
                raise Broken("invalid-pools")
            return None
        for number in range(len(self.question.claims)):
            check_node_selectors([taken.spot for taken in found if taken.wish.claim == number])
        return found

    # -- reading claims

    def read(self) -> Iterator[list[list[Wish]]]:
        """Claim -> request -> alternatives."""
        for number, claim in enumerate(self.question.claims):
            wishes: list[list[Wish]] = []
            for request in claim.spec.devices.requests:
                bodies: list[ExactDeviceRequest | DeviceSubRequest] = [
                    body for body in (request.exactly, *request.first_available) if body is not None
                ]
                if request.first_available and not self.features.prioritized_list:
                    raise Broken("feature-prioritized-list")
                if not self.features.consumable_capacity and any(body.capacity for body in bodies):
                    raise Broken("feature-consumable-capacity")
                if request.exactly is not None:
                    wishes.append([self.read_wish(number, request.name, "", request.exactly)])
                else:
                    wishes.append(
                        [
                            self.read_wish(number, sub.name, request.name, sub)
                            for sub in request.first_available
                        ]
                    )
            if sum(min(wish.count for wish in alternatives) for alternatives in wishes) > LIMIT:
                raise Broken("too-many-devices")
            for constraint in claim.spec.devices.constraints:
                if constraint.match_attribute is None and constraint.distinct_attribute is None:
                    raise Broken("unsupported-constraint")
            yield wishes

    def read_wish(
        self, number: int, name: str, parent: str, body: ExactDeviceRequest | DeviceSubRequest
    ) -> Wish:
        if any(selector.cel is None for selector in body.selectors):
            raise Broken("unsupported-selector")
        if getattr(body, "admin_access", None) is not None and not self.features.admin_access:
            raise Broken("feature-admin-access")
        if not body.device_class_name:
            raise Broken("missing-class-name")
        device_class = self.question.classes.get(body.device_class_name)
        if device_class is None:
            raise Broken("class-not-found")
        selectors = (*device_class.spec.selectors, *body.selectors)
        expressions = tuple(selector.cel.expression for selector in selectors if selector.cel is not None)
        wish = Wish(number, name, parent, body, expressions, body.count)
        if body.allocation_mode == "ExactCount":
            return wish
        if body.allocation_mode != "All":
            raise Broken("unsupported-mode")
        everything: tuple[Spot, ...] = ()
        for pool in self.pools:
            if pool.trouble:
                raise Broken(f"all-{pool.trouble}-pool")
            everything += tuple(spot for spot in pool.spots if self.is_wanted(wish, spot))
        return Wish(number, name, parent, body, expressions, len(everything), everything)

    def is_wanted(self, wish: Wish, spot: Spot) -> bool:
        """Whether All means this device: it is selected, and large enough were it unused."""
        return self.is_selectable(wish, spot) and (
            not self.features.consumable_capacity
            or rules.consumption(wish.capacity, spot.device.capacity) is not None
        )

    # -- searching

    def place(self, claim: int, request: int, taken: tuple[Taken, ...]) -> tuple[Taken, ...] | None:
        """Serve everything from a request on."""
        if claim == len(self.wishes):
            return taken
        if request == len(self.wishes[claim]):
            try:
                return self.place(claim + 1, 0, taken)
            except _TooMany:
                return None
        if not self.question.claims[claim].spec.devices.requests[request].first_available:
            return self.fill(self.wishes[claim][request][0], request, 0, 0, taken)
        always_too_many = True
        for wish in self.wishes[claim][request]:
            try:
                found = self.fill(wish, request, 0, 0, taken)
            except _TooMany:
                continue
            always_too_many = False
            if found is not None:
                return found
        if always_too_many:
            raise _TooMany
        return None

    def fill(
        self, wish: Wish, request: int, number: int, start: int, taken: tuple[Taken, ...]
    ) -> tuple[Taken, ...] | None:
        """Take the devices of a wish from the given number on, then go on with the next request."""
        if wish.everything == ():
            return None
        if number >= wish.count:
            return self.place(wish.claim, request + 1, taken)
        if sum(each.wish.claim == wish.claim for each in taken) + wish.count - number > LIMIT:
            raise _TooMany
        if wish.everything is not None:
            more = self.take(wish, wish.everything[number], taken)
            return None if more is None else self.fill(wish, request, number + 1, 0, more)
        for index in range(start, len(self.spots)):
            spot = self.spots[index]
            if self.unavailable(wish, spot, taken) or not self.is_selectable(wish, spot):
                continue
            more = self.take(wish, spot, taken)
            if more is not None:
                found = self.fill(wish, request, number + 1, index + 1, more)
                if found is not None:
                    return found
        return None

    def take(self, wish: Wish, spot: Spot, taken: tuple[Taken, ...]) -> tuple[Taken, ...] | None:
        """What is taken with one device more, or None if a rule forbids it."""
        self.attempts -= 1
        if self.attempts < 0:
            raise TooLong
        consumed: Mapping[str, Quantity] | None = {}
        if self.features.consumable_capacity:
            consumed = rules.consumption(wish.capacity, spot.device.capacity)
        shared = rules.can_be_shared(spot.device, self.features)
        more = (*taken, Taken(wish, spot, consumed if consumed is not None and shared else {}))
        if self.unavailable(wish, spot, taken) or not self.counters_hold(more):
            return None
        if self.features.device_taints and not rules.are_tolerated(
            rules.taints_of(spot, self.question.taint_rules), wish.body.tolerations
        ):
            return None
        if not self.constraints_hold(wish.claim, more):
            if wish.everything is not None:
                raise Broken("all-constraint")
            return None
        if consumed is None or not self.capacity_holds(spot, consumed, taken):
            return None
        return more if self.budget_holds(more) else None

    # -- rules

    def unavailable(self, wish: Wish, spot: Spot, taken: Sequence[Taken]) -> bool:
        shared = rules.can_be_shared(spot.device, self.features)
        if wish.admin:
            return not shared and any(
                each.wish.claim == wish.claim and each.spot.id == spot.id for each in taken
            )
        holding = self.question.state.holding(spot.id)
        if holding is not None and (holding.exclusive or (holding.shares and not shared)):
            return True
        return not shared and any(each.spot.id == spot.id for each in taken)

    def is_selectable(self, wish: Wish, spot: Spot) -> bool:
        if spot.device.binding_conditions and not self.features.binding_conditions:
            return False
        return rules.is_selected(spot, wish.expressions, self.features) and rules.is_for_node(
            spot, self.question.node
        )

    def capacity_holds(self, spot: Spot, consumed: Mapping[str, Quantity], taken: Sequence[Taken]) -> bool:
        """Whether an amount fits beside what the shares of other claims and of this search have taken."""
        used = rules.held_amounts(self.question.state, spot.id)
        for name, amount in consumed.items():
            total = used.get(name, Fraction(0)) + rules.amount_of(amount)
            for each in taken:
                if each.spot.id == spot.id:
                    total += rules.amount_of(each.consumed.get(name))
            if total > rules.amount_of(spot.device.capacity[name].value):
                return False
        return True

    def counters_hold(self, taken: Sequence[Taken]) -> bool:
        """Whether the counters of the last device's pool suffice for everything that draws on them."""
        last = taken[-1].spot
        if not last.device.consumes_counters:
            return True
        if not self.features.partitionable_devices:
            return False
        if not self.draws(taken, len(taken) - 1):
            return True
        pool = next(pool for pool in self.pools if pool.id == last.id.pool_id)
        left = dict(pool.counters)
        drawing = [
            spot.device
            for spot in (*pool.spots, *pool.elsewhere)
            if self.question.state.holding(spot.id) is not None
        ]
        drawing += [
            each.spot.device
            for index, each in enumerate(taken)
            if each.spot.id.pool_id == pool.id and self.draws(taken, index)
        ]
        for device in drawing:
            for key, amount in rules.counters_drawn(device).items():
                left[key] -= amount
        return all(amount >= 0 for amount in left.values())

    def draws(self, taken: Sequence[Taken], index: int) -> bool:
        """Whether a device draws its counters: only the first share of one that can be shared does."""
        spot = taken[index].spot
        if not rules.can_be_shared(spot.device, self.features):
            return True
        return not rules.has_shares(self.question.state, spot.id) and all(
            each.spot.id != spot.id for each in taken[:index]
        )

    def constraints_hold(self, claim: int, taken: Sequence[Taken]) -> bool:
        for constraint in self.question.claims[claim].spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            holds = rules.do_differ if constraint.match_attribute is None else rules.do_match
            under = [
                rules.values_of(each.spot, attribute, self.features)
                for each in taken
                if each.wish.claim == claim and is_named(constraint.requests, each.wish)
            ]
            if not holds(under):
                return False
        return True

    def budget_holds(self, taken: Sequence[Taken]) -> bool:
        """Whether the last device's charge fits into every bound beside those of the devices before it."""
        if self.question.charge is None:
            return True
        charges = [self.charge_of(each) for each in taken]
        return all(
            not charges[-1].get(resource) or sum(charge.get(resource, 0) for charge in charges) <= amount
            for bound in self.question.bounds
            for resource, amount in bound.items()
        )

    def charge_of(self, taken: Taken) -> Mapping[str, int]:
        assert self.question.charge is not None
        claim = self.question.claims[taken.wish.claim]
        return self.question.charge(claim, result_of(taken), taken.spot.device)


def is_named(requests: Sequence[str], wish: Wish) -> bool:
    """Whether a constraint over these requests concerns a wish."""
    return not requests or wish.full_name in requests or (wish.parent or wish.name) in requests


def result_of(taken: Taken) -> DeviceRequestAllocationResult:
    driver, pool, device = taken.spot.id
    return DeviceRequestAllocationResult(
        request=taken.wish.full_name,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=True if taken.wish.admin else None,
        tolerations=taken.wish.body.tolerations,
        consumed_capacity=dict(taken.consumed),
    )


def check_node_selectors(spots: Sequence[Spot]) -> None:
    """A claim of which a device is bound to selectors with several terms has no node selector."""
    for spot in spots:
        source = spot.device if spot.slice.spec.per_device_node_selection else spot.slice.spec
        if source.node_name is not None or spot.device.binds_to_node:
            return
        if source.node_selector is not None and len(source.node_selector.node_selector_terms) > 1:
            raise Broken("node-selector-terms")
