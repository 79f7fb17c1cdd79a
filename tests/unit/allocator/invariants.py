"""Invariants that every allocation must satisfy, checked without a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from plimsoll.allocator import Allocation, DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from tests.unit.allocator import reference_rules as rules
from tests.unit.allocator.reference_allocator import LIMIT, AllocationCase
from tests.unit.allocator.reference_pools import PoolView, gather
from tests.unit.allocator.reference_rules import PublishedDevice

Body = ExactDeviceRequest | DeviceSubRequest


def find_violations(case: AllocationCase, found: Allocation) -> list[str]:
    """Return the rules that an allocation breaks."""
    return list(InvariantChecker(case, found).check())


class InvariantChecker:
    def __init__(self, case: AllocationCase, found: Allocation) -> None:
        self.case = case
        self.found = found
        self.pools = [pool for pool in gather(case.slices, case.node, case.features) if not pool.trouble]
        self.spots = {published.id: published for pool in self.pools for published in pool.spots}
        self.results = [result for each in found.results for result in each.devices.results]

    def check(self) -> Iterator[str]:
        if len(self.found.results) != len(self.case.claims):
            yield "not one allocation per claim"
        unknown = [id_of(result) for result in self.results if id_of(result) not in self.spots]
        if unknown:
            yield f"{unknown} are no devices of this node"
            return
        for number, claim in enumerate(self.case.claims):
            yield from self.check_claim(number, claim, self.found.results[number].devices.results)
        for published in self.spots.values():
            yield from self.check_device(published)
        for pool in self.pools:
            yield from self.check_counters(pool)
        yield from self.check_budget()

    # -- one claim

    def check_claim(
        self, number: int, claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult]
    ) -> Iterator[str]:
        if len(results) > LIMIT:
            yield f"{len(results)} results"
        served: list[str] = []
        bodies: dict[str, Body] = {}
        for position, request in enumerate(claim.spec.devices.requests):
            chosen = self.found.alternatives[number][position]
            name, body = request.name, request.exactly
            request_spec: Body
            if body is None:
                request_spec = request.first_available[chosen]
                name = f"{request.name}/{request_spec.name}"
            else:
                request_spec = body
            bodies[name] = request_spec
            mine = [result for result in results if result.request == name]
            served += [name] * len(mine)
            yield from self.check_request(name, request_spec, mine)
        if served != [result.request for result in results]:
            yield f"results for {[result.request for result in results]}, not for {served}"
        for constraint in claim.spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            concerned = [
                rules.values_of(
                    self.spots[id_of(result)],
                    attribute,
                    self.case.features,
                    bodies[result.request].derived_attributes,
                )
                for result in results
                if not constraint.requests
                or {result.request, result.request.split("/")[0]} & set(constraint.requests)
            ]
            holds = rules.do_match if constraint.match_attribute is not None else self.do_differ
            if not holds(concerned):
                yield f"{constraint} is broken by {concerned}"

    def do_differ(self, values: Sequence[frozenset[tuple[str, object]] | None]) -> bool:
        return rules.do_differ(values, self.case.features.list_attributes)

    def check_request(
        self, name: str, body: Body, results: Sequence[DeviceRequestAllocationResult]
    ) -> Iterator[str]:
        ids = [id_of(result) for result in results]
        if len(set(ids)) < len(ids):
            yield f"{name} has a device twice"
        admin = isinstance(body, ExactDeviceRequest) and body.admin_access is True
        if body.allocation_mode == "All":
            wanted = {id for id, published in self.spots.items() if self.is_wanted(body, published)}
            if not wanted or set(ids) != wanted:
                yield f"{name} has {ids}, all are {wanted}"
        elif len(ids) != body.count:
            yield f"{name} has {len(ids)} devices, wants {body.count}"
        for result in results:
            published = self.spots[id_of(result)]
            if not self.is_selected(body, published):
                yield f"{name} has {published.id}, which is not selected"
            taints = rules.taints_of(published, self.case.taint_rules)
            if self.case.features.device_taints and not rules.are_tolerated(taints, body.tolerations):
                yield f"{name} has {published.id}, whose taints it does not tolerate"
            if not rules.can_skip_operations(published, self.case.node, self.case.features):
                yield f"{name} has {published.id}, whose operations the node cannot skip"
            if result.skip_node_operations != published.slice.spec.skip_node_operations:
                yield f"{name} has {published.id}, but skips {result.skip_node_operations}"
            if bool(result.admin_access) != admin:
                yield f"{name} has {published.id} with the wrong access"
            yield from self.check_amounts(name, body, result, published)

    def check_amounts(
        self, name: str, body: Body, result: DeviceRequestAllocationResult, published: PublishedDevice
    ) -> Iterator[str]:
        features = self.case.features
        if not features.consumable_capacity:
            if result.share_id is not None or result.consumed_capacity:
                yield f"{name} has a share of {published.id}"
            return
        wanted = self.consumption(body, published)
        if wanted is None:
            yield f"{name} has {published.id}, which is too small"
        elif rules.can_be_shared(published.device, features):
            if result.share_id is None or result.consumed_capacity != wanted:
                yield f"{name} consumes {result.consumed_capacity} of {published.id}, not {wanted}"
        elif result.share_id is not None or result.consumed_capacity:
            yield f"{name} has a share of {published.id}, which is not shared"

    def is_selected(self, body: Body, published: PublishedDevice) -> bool:
        device_class = self.case.classes[body.device_class_name]
        selectors = (*device_class.spec.selectors, *body.selectors)
        expressions = [selector.cel.expression for selector in selectors if selector.cel is not None]
        if published.device.binding_conditions and not self.case.features.binding_conditions:
            return False
        return rules.is_selected(published, expressions, self.case.features) and rules.is_for_node(
            published, self.case.node
        )

    def is_wanted(self, body: Body, published: PublishedDevice) -> bool:
        return self.is_selected(body, published) and (
            not self.case.features.consumable_capacity or self.consumption(body, published) is not None
        )

    def consumption(self, body: Body, published: PublishedDevice) -> Mapping[str, Quantity] | None:
        asked = body.capacity.requests if body.capacity else {}
        return rules.consumption(asked, published.device.capacity, self.case.features.fractional_ranges)

    # -- one device

    def check_device(self, published: PublishedDevice) -> Iterator[str]:
        users = [
            (number, result)
            for number, each in enumerate(self.found.results)
            for result in each.devices.results
            if id_of(result) == published.id
        ]
        holding = self.case.state.holding(published.id)
        normal = [number for number, (_, result) in enumerate(users) if not result.admin_access]
        if rules.can_be_shared(published.device, self.case.features):
            if normal and holding is not None and holding.exclusive:
                yield f"{published.id} is held whole by another claim"
            shares = [result.share_id for _, result in users] + list(holding.shares if holding else ())
            if len(set(shares)) < len(shares):
                yield f"{published.id} has the shares {shares}"
            for name, entry in published.device.capacity.items():
                total = rules.held_amounts(self.case.state, published.id).get(name, Fraction(0))
                total += sum(rules.amount_of(result.consumed_capacity[name]) for _, result in users)
                if users and total > rules.amount_of(entry.value):
                    yield f"{total} of {entry.value} {name} of {published.id} are consumed"
            return
        if normal and holding is not None and (holding.exclusive or holding.shares):
            yield f"{published.id} is held by another claim"
        if normal not in ([], [0]):
            yield f"{published.id} is given away {len(users)} times, to {users}"
        if max(Counter(number for number, _ in users).values(), default=0) > 1:
            yield f"{published.id} is in one claim twice"

    # -- sums

    def check_counters(self, pool: PoolView) -> Iterator[str]:
        drawing = [
            result
            for result in self.results
            if id_of(result).pool_id == pool.id and self.spots[id_of(result)].device.consumes_counters
        ]
        if not drawing:
            return
        if not self.case.features.partitionable_devices:
            yield f"{drawing} consume counters"
            return
        left = dict(pool.counters)
        held = [
            published
            for published in (*pool.spots, *pool.elsewhere)
            if self.case.state.holding(published.id) is not None
        ]
        fresh = [self.spots[id_of(result)] for result in drawing]
        shared = {
            published.id: published
            for published in fresh
            if rules.can_be_shared(published.device, self.case.features)
        }
        fresh = [published for published in fresh if published.id not in shared] + [
            published for published in shared.values() if not rules.has_shares(self.case.state, published.id)
        ]
        for published in held + fresh:
            for key, amount in rules.counters_drawn(published.device).items():
                left[key] -= amount
        devices = [published.device for published in held + fresh]
        for counter_set in {each.counter_set for one in fresh for each in one.device.consumes_counters}:
            if not rules.are_compatible(devices, counter_set):
                yield f"devices of {counter_set} in {pool.id} are not compatible"
        if fresh and min(left.values()) < 0:
            yield f"the counters of {pool.id} are overdrawn: {left}"

    def check_budget(self) -> Iterator[str]:
        charge = self.case.charge
        if charge is None:
            return
        charges = [
            charge(self.case.claims[number], result, self.spots[id_of(result)].device)
            for number, each in enumerate(self.found.results)
            for result in each.devices.results
        ]
        for bound in self.case.bounds:
            for resource, amount in bound.items():
                total = sum(each.get(resource, 0) for each in charges)
                if total and total > amount:
                    yield f"{total} of {resource} charged, {amount} left"


def id_of(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
