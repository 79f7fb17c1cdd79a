"""Whether an allocation respects every rule, looked at from the outside: no search, no order of trying."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from plimsoll.allocator import Allocation, DeviceId
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from tests.unit.allocator import naive_rules as rules
from tests.unit.allocator.naive import LIMIT, Question
from tests.unit.allocator.naive_pools import PoolView, gather
from tests.unit.allocator.naive_rules import Spot

Body = ExactDeviceRequest | DeviceSubRequest


def breaches(question: Question, found: Allocation) -> list[str]:
    """The rules that an allocation breaks."""
    return list(Checker(question, found).look())


class Checker:
    def __init__(self, question: Question, found: Allocation) -> None:
        self.question = question
        self.found = found
        self.pools = [
            pool for pool in gather(question.slices, question.node, question.features) if not pool.trouble
        ]
        self.spots = {spot.id: spot for pool in self.pools for spot in pool.spots}
        self.results = [result for each in found.results for result in each.devices.results]

    def look(self) -> Iterator[str]:
        if len(self.found.results) != len(self.question.claims):
            yield "not one allocation per claim"
        unknown = [id_of(result) for result in self.results if id_of(result) not in self.spots]
        if unknown:
            yield f"{unknown} are no devices of this node"
            return
        for number, claim in enumerate(self.question.claims):
            yield from self.look_at_claim(number, claim, self.found.results[number].devices.results)
        for spot in self.spots.values():
            yield from self.look_at_device(spot)
        for pool in self.pools:
            yield from self.look_at_counters(pool)
        yield from self.look_at_budget()

    # -- one claim

    def look_at_claim(
        self, number: int, claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult]
    ) -> Iterator[str]:
        if len(results) > LIMIT:
            yield f"{len(results)} results"
        served: list[str] = []
        for position, request in enumerate(claim.spec.devices.requests):
            chosen = self.found.alternatives[number][position]
            name, body = request.name, request.exactly
            wish: Body
            if body is None:
                wish = request.first_available[chosen]
                name = f"{request.name}/{wish.name}"
            else:
                wish = body
            mine = [result for result in results if result.request == name]
            served += [name] * len(mine)
            yield from self.look_at_request(name, wish, mine)
        if served != [result.request for result in results]:
            yield f"results for {[result.request for result in results]}, not for {served}"
        for constraint in claim.spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            concerned = [
                rules.values_of(self.spots[id_of(result)], attribute, self.question.features)
                for result in results
                if not constraint.requests
                or {result.request, result.request.split("/")[0]} & set(constraint.requests)
            ]
            holds = rules.do_match if constraint.match_attribute is not None else rules.do_differ
            if not holds(concerned):
                yield f"{constraint} is broken by {concerned}"

    def look_at_request(
        self, name: str, body: Body, results: Sequence[DeviceRequestAllocationResult]
    ) -> Iterator[str]:
        ids = [id_of(result) for result in results]
        if len(set(ids)) < len(ids):
            yield f"{name} has a device twice"
        admin = isinstance(body, ExactDeviceRequest) and body.admin_access is True
        if body.allocation_mode == "All":
            wanted = {id for id, spot in self.spots.items() if self.is_wanted(body, spot)}
            if not wanted or set(ids) != wanted:
                yield f"{name} has {ids}, all are {wanted}"
        elif len(ids) != body.count:
            yield f"{name} has {len(ids)} devices, wants {body.count}"
        for result in results:
            spot = self.spots[id_of(result)]
            if not self.is_selected(body, spot):
                yield f"{name} has {spot.id}, which is not selected"
            taints = rules.taints_of(spot, self.question.taint_rules)
            if self.question.features.device_taints and not rules.are_tolerated(taints, body.tolerations):
                yield f"{name} has {spot.id}, whose taints it does not tolerate"
            if bool(result.admin_access) != admin:
                yield f"{name} has {spot.id} with the wrong access"
            yield from self.look_at_amounts(name, body, result, spot)

    def look_at_amounts(
        self, name: str, body: Body, result: DeviceRequestAllocationResult, spot: Spot
    ) -> Iterator[str]:
        features = self.question.features
        if not features.consumable_capacity:
            if result.share_id is not None or result.consumed_capacity:
                yield f"{name} has a share of {spot.id}"
            return
        wanted = rules.consumption(body.capacity.requests if body.capacity else {}, spot.device.capacity)
        if wanted is None:
            yield f"{name} has {spot.id}, which is too small"
        elif rules.can_be_shared(spot.device, features):
            if result.share_id is None or result.consumed_capacity != wanted:
                yield f"{name} consumes {result.consumed_capacity} of {spot.id}, not {wanted}"
        elif result.share_id is not None or result.consumed_capacity:
            yield f"{name} has a share of {spot.id}, which is not shared"

    def is_selected(self, body: Body, spot: Spot) -> bool:
        device_class = self.question.classes[body.device_class_name]
        selectors = (*device_class.spec.selectors, *body.selectors)
        expressions = [selector.cel.expression for selector in selectors if selector.cel is not None]
        if spot.device.binding_conditions and not self.question.features.binding_conditions:
            return False
        return rules.is_selected(spot, expressions, self.question.features) and rules.is_for_node(
            spot, self.question.node
        )

    def is_wanted(self, body: Body, spot: Spot) -> bool:
        asked = body.capacity.requests if body.capacity else {}
        return self.is_selected(body, spot) and (
            not self.question.features.consumable_capacity
            or rules.consumption(asked, spot.device.capacity) is not None
        )

    # -- one device

    def look_at_device(self, spot: Spot) -> Iterator[str]:
        users = [
            (number, result)
            for number, each in enumerate(self.found.results)
            for result in each.devices.results
            if id_of(result) == spot.id
        ]
        holding = self.question.state.holding(spot.id)
        normal = [number for number, (_, result) in enumerate(users) if not result.admin_access]
        if rules.can_be_shared(spot.device, self.question.features):
            if normal and holding is not None and holding.exclusive:
                yield f"{spot.id} is held whole by another claim"
            shares = [result.share_id for _, result in users] + list(holding.shares if holding else ())
            if len(set(shares)) < len(shares):
                yield f"{spot.id} has the shares {shares}"
            for name, entry in spot.device.capacity.items():
                total = rules.held_amounts(self.question.state, spot.id).get(name, Fraction(0))
                total += sum(rules.amount_of(result.consumed_capacity[name]) for _, result in users)
                if users and total > rules.amount_of(entry.value):
                    yield f"{total} of {entry.value} {name} of {spot.id} are consumed"
            return
        if normal and holding is not None and (holding.exclusive or holding.shares):
            yield f"{spot.id} is held by another claim"
        if normal not in ([], [0]):
            yield f"{spot.id} is given away {len(users)} times, to {users}"
        if max(Counter(number for number, _ in users).values(), default=0) > 1:
            yield f"{spot.id} is in one claim twice"

    # -- sums

    def look_at_counters(self, pool: PoolView) -> Iterator[str]:
        drawing = [
            result
            for result in self.results
            if id_of(result).pool_id == pool.id and self.spots[id_of(result)].device.consumes_counters
        ]
        if not drawing:
            return
        if not self.question.features.partitionable_devices:
            yield f"{drawing} consume counters"
            return
        left = dict(pool.counters)
        held = [
            spot
            for spot in (*pool.spots, *pool.elsewhere)
            if self.question.state.holding(spot.id) is not None
        ]
        fresh = [self.spots[id_of(result)] for result in drawing]
        shared = {spot.id: spot for spot in fresh if rules.can_be_shared(spot.device, self.question.features)}
        fresh = [spot for spot in fresh if spot.id not in shared] + [
            spot for spot in shared.values() if not rules.has_shares(self.question.state, spot.id)
        ]
        for spot in held + fresh:
            for key, amount in rules.counters_drawn(spot.device).items():
                left[key] -= amount
        if fresh and min(left.values()) < 0:
            yield f"the counters of {pool.id} are overdrawn: {left}"

    def look_at_budget(self) -> Iterator[str]:
        charge = self.question.charge
        if charge is None:
            return
        charges = [
            charge(self.question.claims[number], result, self.spots[id_of(result)].device)
            for number, each in enumerate(self.found.results)
            for result in each.devices.results
        ]
        for bound in self.question.bounds:
            for resource, amount in bound.items():
                total = sum(each.get(resource, 0) for each in charges)
                if total and total > amount:
                    yield f"{total} of {resource} charged, {amount} left"


def id_of(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
