"""Check of an existing allocation against its claim, by the rules of the search.

`find_violations` compares the results of an allocated claim with what the claim requests: the number of
devices, selectors, constraints and consumed capacity. `find_misplaced_devices` finds devices that the node of
a pod cannot use. A scheduler never causes a violation; manual changes, other schedulers, and later changes of
slices or classes do. Devices that are not published and classes that do not exist are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.allocator.devices.attributes import (
    AttributeSource,
    AttributeTable,
    Values,
    build_tables,
    read_derived,
    read_published,
)
from plimsoll.allocator.devices.capacity import compute_consumed_amount
from plimsoll.allocator.devices.node_devices import selector_environment
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.features import Features
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.node_selection import node_matches
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import (
    ALL,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from plimsoll.cel import Environment, ProgramCache
from plimsoll.errors import CelCompileError


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device of a slice."""

    view: SliceView
    index: int  #: position in the slice

    @property
    def device(self) -> Device:
        return self.view.devices[self.index]

    def is_on(self, node: Node) -> bool:
        """Return whether a node can use the device; an invalid node selector matches no node."""
        spec = self.view.slice.spec
        source = self.device if spec.per_device_node_selection else spec
        return node_matches(node, source.node_name, source.all_nodes, source.node_selector) is True


FindDevice: TypeAlias = "Callable[[DeviceId], PublishedDevice | None]"


@dataclass(frozen=True, slots=True)
class CountMismatch:
    """A request with another number of devices than it asks for; None stands for at least one."""

    request: str
    allocated: int
    requested: int | None


@dataclass(frozen=True, slots=True)
class UnknownRequest:
    """Devices for a request that the claim does not have."""

    request: str
    allocated: int


@dataclass(frozen=True, slots=True)
class AlternativesMixed:
    """A prioritized list with devices of several subrequests."""

    request: str
    subrequests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelectorUnmet:
    """A device that a selector does not match, or cannot be evaluated for (`error`)."""

    request: str
    device: DeviceId
    device_class: str  #: class of the selector; "" if it is of the request
    index: int
    expression: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ConstraintBroken:
    """A constraint that the devices of a claim violate, with their values of the attribute."""

    index: int
    constraint: DeviceConstraint
    values: tuple[tuple[DeviceId, tuple[str | int, ...] | None], ...]  #: None: the attribute is not set


@dataclass(frozen=True, slots=True)
class ConsumedTooLittle:
    """A share that consumes less of a capacity than its request needs."""

    request: str
    device: DeviceId
    share: str
    capacity: str
    consumed: Quantity
    needed: Quantity  #: the requested amount, rounded by the request policy, or the default
    requested: Quantity | None


CountViolation: TypeAlias = "CountMismatch | UnknownRequest | AlternativesMixed"
Violation: TypeAlias = "CountViolation | SelectorUnmet | ConstraintBroken | ConsumedTooLittle"


def find_violations(
    claim: ResourceClaim,
    find_device: FindDevice,
    classes: Mapping[str, DeviceClass],
    features: Features,
    programs: ProgramCache,
) -> Iterator[Violation]:
    """Yield every way in which the allocation of a claim differs from what it requests."""
    if claim.status.allocation is None:
        return
    bodies = dict(device_requests(claim))
    yield from _check_counts(claim, bodies)
    found = [(result, find_device(DeviceId.of(result))) for result in claim.allocation_results]
    published = [(result, device) for result, device in found if device is not None]
    environment = selector_environment(features)

    for result, device in published:
        body = bodies.get(result.request)
        if body is None:
            continue
        device_class = classes.get(body.device_class_name)
        groups: list[tuple[str, Sequence[DeviceSelector]]] = [("", body.selectors)]
        if device_class is not None:
            groups.insert(0, (device_class.metadata.name, device_class.spec.selectors))
        for class_name, selectors in groups:
            for index, selector in enumerate(selectors):
                expression = selector.expression
                unmet = _evaluate(expression, device, environment, programs)
                if unmet is not None:
                    id = DeviceId.of(result)
                    yield SelectorUnmet(result.request, id, class_name, index, expression, unmet)
        if features.consumable_capacity and device.device.allow_multiple_allocations:
            yield from _check_consumption(result, device.device, body, features.fractional_ranges)
    for index, constraint in enumerate(claim.spec.devices.constraints):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        wanted = set(constraint.requests)
        values = [
            (
                DeviceId.of(result),
                _values_of(device, attribute, bodies.get(result.request), features, programs),
            )
            for result, device in published
            if attribute
            and (not wanted or result.request in wanted or result.request.partition("/")[0] in wanted)
        ]
        if values:
            yield from _check_constraint(index, constraint, values, features)


def find_misplaced_devices(claim: ResourceClaim, node: Node, find_device: FindDevice) -> Iterator[DeviceId]:
    """Yield the devices of a claim that a node cannot use."""
    for id in dict.fromkeys(map(DeviceId.of, claim.allocation_results)):
        device = find_device(id)
        if device is not None and not device.is_on(node):
            yield id


# -- number of devices


def _check_counts(
    claim: ResourceClaim, bodies: Mapping[str, ExactDeviceRequest | DeviceSubRequest]
) -> Iterator[CountViolation]:
    allocated: dict[str, int] = {}
    for result in claim.allocation_results:
        allocated[result.request] = allocated.get(result.request, 0) + 1
    for name, count in allocated.items():
        if name not in bodies:
            yield UnknownRequest(name, count)
    for request in claim.spec.devices.requests:
        names = [name for name in _names(request) if name in allocated]
        if len(names) > 1:
            yield AlternativesMixed(request.name, tuple(names))
        elif names or request.exactly is not None:
            name = names[0] if names else request.name
            body, have = bodies[name], allocated.get(name, 0)
            # Devices may have been added since all of them were allocated.
            if body.allocation_mode == ALL:
                if not have:
                    yield CountMismatch(name, 0, None)
            elif have != (body.count or 1):
                yield CountMismatch(name, have, body.count or 1)
        elif request.first_available:
            yield CountMismatch(request.name, 0, None)


def _names(request: DeviceRequest) -> list[str]:
    """Return the names that results of a request can have."""
    if request.exactly is not None:
        return [request.name]
    return [f"{request.name}/{alternative.name}" for alternative in request.first_available]


# -- selectors


def _evaluate(
    expression: str, device: PublishedDevice, environment: Environment, programs: ProgramCache
) -> str | None:
    """Return None if a selector matches a device, else its error, or "" if it is false."""
    try:
        matches = device.view.matches(programs.compile(expression, environment))
    except CelCompileError as error:
        return str(error)
    if device.index in matches.errors:
        return str(matches.errors[device.index])
    return None if device.index in matches else ""


# -- capacity


def _check_consumption(
    result: DeviceRequestAllocationResult,
    device: Device,
    body: ExactDeviceRequest | DeviceSubRequest,
    fractional: bool,
) -> Iterator[ConsumedTooLittle]:
    requests = body.capacity.requests if body.capacity is not None else {}
    for name, entry in device.capacity.items():
        requested = requests.get(name)
        # What was the default at the time of the allocation is not known: the driver may have changed it.
        if requested is None and name in result.consumed_capacity:
            continue
        needed = compute_consumed_amount(requested, entry, fractional)
        consumed = result.consumed_capacity.get(name, ZERO)
        if needed is not None and consumed < needed:
            yield ConsumedTooLittle(
                result.request, DeviceId.of(result), result.share_id or "", name, consumed, needed, requested
            )


# -- constraints


def _values_of(
    device: PublishedDevice,
    attribute: str,
    body: ExactDeviceRequest | DeviceSubRequest | None,
    features: Features,
    programs: ProgramCache,
) -> Values:
    """Return the values that a device has for a request: derived by it, or published."""
    lists = features.list_attributes
    for derived in body.derived_attributes if body is not None else ():
        if derived.name == attribute:
            try:
                program = programs.compile_derived(derived.expression, selector_environment(features))
            except CelCompileError:
                return None
            return read_derived([device.view.derive(program)[device.index]], lists).values[0]
    return read_published([(device.view.slice.spec.driver, device.device)], attribute, lists).values[0]


def _check_constraint(
    index: int, constraint: DeviceConstraint, values: Sequence[tuple[DeviceId, Values]], features: Features
) -> Iterator[ConstraintBroken]:
    (table,) = build_tables([AttributeSource([each for _, each in values])], features.list_attributes)
    if not _is_satisfied(table, len(values), distinct=constraint.match_attribute is None):
        found = tuple(
            (id, None if each is None else tuple(value for _, value in each)) for id, each in values
        )
        yield ConstraintBroken(index, constraint, found)


def _is_satisfied(table: AttributeTable, count: int, distinct: bool) -> bool:
    """Return whether the devices of a table satisfy a constraint together."""
    sets = [bits for bits in table.sets if bits is not None]
    if len(sets) < count:
        return False
    if count == 1:
        return True
    if not distinct:
        common = sets[0]
        for bits in sets[1:]:
            common &= bits
        return bool(common)
    # A value that differs from nothing is allowed only as the first, as in the search.
    if table.unequal >> 1:
        return False
    return sum(bits.bit_count() for bits in sets) == len(table.values)
