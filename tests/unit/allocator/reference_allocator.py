"""Reference allocator: plain recursion over claims, requests, subrequests and devices.

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
from tests.unit.allocator import reference_rules as rules
from tests.unit.allocator.reference_pools import gather
from tests.unit.allocator.reference_rules import InvalidInput, PublishedDevice

LIMIT = 32

Charge = Callable[[ResourceClaim, DeviceRequestAllocationResult, Device], Mapping[str, int]]


@dataclass(frozen=True)
class AllocationCase:
    """Input of an allocation."""

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
class ReferenceRequest:
    """A request, or one alternative of a prioritized list."""

    claim: int
    name: str
    parent: str
    body: ExactDeviceRequest | DeviceSubRequest
    expressions: tuple[str, ...]
    count: int
    everything: tuple[PublishedDevice, ...] | None = None  #: with All: the devices it must get

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
class SelectedDevice:
    """Device selected for a request."""

    request_spec: ReferenceRequest
    published: PublishedDevice
    consumed: Mapping[str, Quantity]  #: of a device that can be shared


class StepLimitExceeded(Exception):
    """The reference allocator has made more attempts than allowed."""


class _TooMany(Exception):
    """The claim would get more results than it can hold, whichever devices are chosen."""


def solve(case: AllocationCase, attempts: int = 50_000) -> tuple[SelectedDevice, ...] | None:
    """Return the first solution, or None; raises InvalidInput, or StepLimitExceeded."""
    return ReferenceAllocator(case, attempts).solve()


class ReferenceAllocator:
    """Search for one allocation case."""

    def __init__(self, case: AllocationCase, attempts: int) -> None:
        self.case = case
        self.features = case.features
        self.attempts = attempts
        self.pools = gather(case.slices, case.node, case.features)
        self.spots = [published for pool in self.pools for published in pool.spots]

    def solve(self) -> tuple[SelectedDevice, ...] | None:
        self.wishes = list(self.read())
        try:
            found = self.place(0, 0, ())
        except _TooMany:
            found = None
        if found is None:
            if any(pool.trouble == "invalid" for pool in self.pools):
                raise InvalidInput("invalid-pools")
            return None
        for number in range(len(self.case.claims)):
            check_node_selectors([taken.published for taken in found if taken.request_spec.claim == number])
        return found

    # -- reading claims

    def read(self) -> Iterator[list[list[ReferenceRequest]]]:
        """Return claim -> request -> alternatives."""
        for number, claim in enumerate(self.case.claims):
            wishes: list[list[ReferenceRequest]] = []
            for request in claim.spec.devices.requests:
                bodies: list[ExactDeviceRequest | DeviceSubRequest] = [
                    body for body in (request.exactly, *request.first_available) if body is not None
                ]
                if request.first_available and not self.features.prioritized_list:
                    raise InvalidInput("feature-prioritized-list")
                if not self.features.consumable_capacity and any(body.capacity for body in bodies):
                    raise InvalidInput("feature-consumable-capacity")
                if request.exactly is not None:
                    wishes.append([self.read_wish(number, request.name, "", request.exactly)])
                else:
                    wishes.append(
                        [
                            self.read_wish(number, sub.name, request.name, sub)
                            for sub in request.first_available
                        ]
                    )
            if (
                sum(min(request_spec.count for request_spec in alternatives) for alternatives in wishes)
                > LIMIT
            ):
                raise InvalidInput("too-many-devices")
            for constraint in claim.spec.devices.constraints:
                if constraint.match_attribute is None and constraint.distinct_attribute is None:
                    raise InvalidInput("unsupported-constraint")
            yield wishes

    def read_wish(
        self, number: int, name: str, parent: str, body: ExactDeviceRequest | DeviceSubRequest
    ) -> ReferenceRequest:
        if body.derived_attributes and not self.features.derived_attributes:
            raise InvalidInput("feature-derived-attributes")
        if any(selector.cel is None for selector in body.selectors):
            raise InvalidInput("unsupported-selector")
        if getattr(body, "admin_access", None) is not None and not self.features.admin_access:
            raise InvalidInput("feature-admin-access")
        if not body.device_class_name:
            raise InvalidInput("missing-class-name")
        device_class = self.case.classes.get(body.device_class_name)
        if device_class is None:
            raise InvalidInput("class-not-found")
        selectors = (*device_class.spec.selectors, *body.selectors)
        expressions = tuple(selector.cel.expression for selector in selectors if selector.cel is not None)
        request_spec = ReferenceRequest(number, name, parent, body, expressions, body.count)
        if body.allocation_mode == "ExactCount":
            return request_spec
        if body.allocation_mode != "All":
            raise InvalidInput("unsupported-mode")
        everything: tuple[PublishedDevice, ...] = ()
        for pool in self.pools:
            if pool.trouble:
                raise InvalidInput(f"all-{pool.trouble}-pool")
            everything += tuple(
                published for published in pool.spots if self.is_wanted(request_spec, published)
            )
        return ReferenceRequest(number, name, parent, body, expressions, len(everything), everything)

    def is_wanted(self, request_spec: ReferenceRequest, published: PublishedDevice) -> bool:
        """Return whether All includes this device: selected, and large enough if unused."""
        return self.is_selectable(request_spec, published) and (
            not self.features.consumable_capacity or self.consumption(request_spec, published) is not None
        )

    # -- search

    def place(
        self, claim: int, request: int, taken: tuple[SelectedDevice, ...]
    ) -> tuple[SelectedDevice, ...] | None:
        """Allocate from a request on."""
        if claim == len(self.wishes):
            return taken
        if request == len(self.wishes[claim]):
            try:
                return self.place(claim + 1, 0, taken)
            except _TooMany:
                return None
        if not self.case.claims[claim].spec.devices.requests[request].first_available:
            return self.fill(self.wishes[claim][request][0], request, 0, 0, taken)
        always_too_many = True
        for request_spec in self.wishes[claim][request]:
            try:
                found = self.fill(request_spec, request, 0, 0, taken)
            except _TooMany:
                continue
            always_too_many = False
            if found is not None:
                return found
        if always_too_many:
            raise _TooMany
        return None

    def fill(
        self,
        request_spec: ReferenceRequest,
        request: int,
        number: int,
        start: int,
        taken: tuple[SelectedDevice, ...],
    ) -> tuple[SelectedDevice, ...] | None:
        """Allocate the devices of a request from the given number on, then continue with the next request."""
        if request_spec.everything == ():
            return None
        if number >= request_spec.count:
            return self.place(request_spec.claim, request + 1, taken)
        if (
            sum(each.request_spec.claim == request_spec.claim for each in taken) + request_spec.count - number
            > LIMIT
        ):
            raise _TooMany
        if request_spec.everything is not None:
            more = self.take(request_spec, request_spec.everything[number], taken)
            return None if more is None else self.fill(request_spec, request, number + 1, 0, more)
        for index in range(start, len(self.spots)):
            published = self.spots[index]
            if self.unavailable(request_spec, published, taken) or not self.is_selectable(
                request_spec, published
            ):
                continue
            more = self.take(request_spec, published, taken)
            if more is not None:
                found = self.fill(request_spec, request, number + 1, index + 1, more)
                if found is not None:
                    return found
        return None

    def take(
        self, request_spec: ReferenceRequest, published: PublishedDevice, taken: tuple[SelectedDevice, ...]
    ) -> tuple[SelectedDevice, ...] | None:
        """Return the selection with one more device, or None if a rule forbids it."""
        self.attempts -= 1
        if self.attempts < 0:
            raise StepLimitExceeded
        consumed: Mapping[str, Quantity] | None = {}
        if self.features.consumable_capacity:
            consumed = self.consumption(request_spec, published)
        shared = rules.can_be_shared(published.device, self.features)
        more = (
            *taken,
            SelectedDevice(request_spec, published, consumed if consumed is not None and shared else {}),
        )
        if self.unavailable(request_spec, published, taken) or not rules.can_skip_operations(
            published, self.case.node, self.features
        ):
            return None
        if not self.counters_hold(more):
            return None
        if self.features.device_taints and not rules.are_tolerated(
            rules.taints_of(published, self.case.taint_rules), request_spec.body.tolerations
        ):
            return None
        fits = consumed is not None and self.capacity_holds(published, consumed, taken)
        if request_spec.everything is None and not fits:
            return None
        if not self.constraints_hold(request_spec.claim, more):
            if request_spec.everything is not None:
                raise InvalidInput("all-constraint")
            return None
        return more if fits and self.budget_holds(more) else None

    # -- rules

    def unavailable(
        self, request_spec: ReferenceRequest, published: PublishedDevice, taken: Sequence[SelectedDevice]
    ) -> bool:
        shared = rules.can_be_shared(published.device, self.features)
        if request_spec.admin:
            return not shared and any(
                each.request_spec.claim == request_spec.claim and each.published.id == published.id
                for each in taken
            )
        holding = self.case.state.holding(published.id)
        if holding is not None and (holding.exclusive or (holding.shares and not shared)):
            return True
        return not shared and any(each.published.id == published.id for each in taken)

    def is_selectable(self, request_spec: ReferenceRequest, published: PublishedDevice) -> bool:
        if published.device.binding_conditions and not self.features.binding_conditions:
            return False
        return rules.is_selected(published, request_spec.expressions, self.features) and rules.is_for_node(
            published, self.case.node
        )

    def consumption(
        self, request_spec: ReferenceRequest, published: PublishedDevice
    ) -> Mapping[str, Quantity] | None:
        capacity = published.device.capacity
        return rules.consumption(request_spec.capacity, capacity, self.features.fractional_ranges)

    def capacity_holds(
        self, published: PublishedDevice, consumed: Mapping[str, Quantity], taken: Sequence[SelectedDevice]
    ) -> bool:
        """Return whether an amount fits next to the shares of other claims and of this search."""
        used = rules.held_amounts(self.case.state, published.id)
        for name, amount in consumed.items():
            total = used.get(name, Fraction(0)) + rules.amount_of(amount)
            for each in taken:
                if each.published.id == published.id:
                    total += rules.amount_of(each.consumed.get(name))
            if total > rules.amount_of(published.device.capacity[name].value):
                return False
        return True

    def counters_hold(self, taken: Sequence[SelectedDevice]) -> bool:
        """Return whether the counters of the last device's pool suffice for all their consumers."""
        last = taken[-1].published
        if not last.device.consumes_counters:
            return True
        if not self.features.partitionable_devices:
            return False
        if not self.draws(taken, len(taken) - 1):
            return True
        pool = next(pool for pool in self.pools if pool.id == last.id.pool_id)
        left = dict(pool.counters)
        drawing = [
            published.device
            for published in (*pool.spots, *pool.elsewhere)
            if self.case.state.holding(published.id) is not None
        ]
        drawing += [
            each.published.device
            for index, each in enumerate(taken)
            if each.published.id.pool_id == pool.id and self.draws(taken, index)
        ]
        for device in drawing:
            for key, amount in rules.counters_drawn(device).items():
                left[key] -= amount
        compatible = all(
            rules.are_compatible(drawing, each.counter_set) for each in last.device.consumes_counters
        )
        return compatible and all(amount >= 0 for amount in left.values())

    def draws(self, taken: Sequence[SelectedDevice], index: int) -> bool:
        """Return whether a device draws its counters: only the first share of a shareable device does."""
        published = taken[index].published
        if not rules.can_be_shared(published.device, self.features):
            return True
        return not rules.has_shares(self.case.state, published.id) and all(
            each.published.id != published.id for each in taken[:index]
        )

    def constraints_hold(self, claim: int, taken: Sequence[SelectedDevice]) -> bool:
        for constraint in self.case.claims[claim].spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            under = [
                rules.values_of(
                    each.published, attribute, self.features, each.request_spec.body.derived_attributes
                )
                for each in taken
                if each.request_spec.claim == claim and is_named(constraint.requests, each.request_spec)
            ]
            if constraint.match_attribute is None:
                holds = rules.do_differ(under, self.features.list_attributes)
            else:
                holds = rules.do_match(under)
            if not holds:
                return False
        return True

    def budget_holds(self, taken: Sequence[SelectedDevice]) -> bool:
        """Return whether the last device's charge fits every bound after the devices before it."""
        if self.case.charge is None:
            return True
        charges = [self.charge_of(each) for each in taken]
        return all(
            not charges[-1].get(resource) or sum(charge.get(resource, 0) for charge in charges) <= amount
            for bound in self.case.bounds
            for resource, amount in bound.items()
        )

    def charge_of(self, taken: SelectedDevice) -> Mapping[str, int]:
        assert self.case.charge is not None
        claim = self.case.claims[taken.request_spec.claim]
        return self.case.charge(claim, result_of(taken), taken.published.device)


def is_named(requests: Sequence[str], request_spec: ReferenceRequest) -> bool:
    """Return whether a constraint over these requests concerns a request."""
    return (
        not requests
        or request_spec.full_name in requests
        or (request_spec.parent or request_spec.name) in requests
    )


def result_of(taken: SelectedDevice) -> DeviceRequestAllocationResult:
    driver, pool, device = taken.published.id
    return DeviceRequestAllocationResult(
        request=taken.request_spec.full_name,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=True if taken.request_spec.admin else None,
        tolerations=taken.request_spec.body.tolerations,
        consumed_capacity=dict(taken.consumed),
    )


def check_node_selectors(spots: Sequence[PublishedDevice]) -> None:
    """Check that a claim with devices of several selector terms has no node selector."""
    for published in spots:
        source = published.device if published.slice.spec.per_device_node_selection else published.slice.spec
        if source.node_name is not None or published.device.binds_to_node:
            return
        if source.node_selector is not None and len(source.node_selector.node_selector_terms) > 1:
            raise InvalidInput("node-selector-terms")
