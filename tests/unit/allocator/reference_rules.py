"""Rules of the reference allocator, each from its definition, without shared state.

Slow and obvious on purpose: the reference allocator (`reference_allocator.py`) and the invariants
(`invariants.py`) are made of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil

from plimsoll.allocator.features import Features
from plimsoll.allocator.state import AllocationState
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.node_selection import node_matches
from plimsoll.api.quantity import NANO, Quantity
from plimsoll.api.resource import (
    OPTIONAL_NODE_OPERATIONS,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
    DeviceDerivedAttribute,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceSlice,
)
from plimsoll.cel import (
    DerivedAttribute,
    Environment,
    Selector,
    compile_derived,
    compile_selector,
    flatten,
)
from plimsoll.errors import CelCompileError, CelRuntimeError

INT64_MAX = 2**63 - 1


class InvalidInput(Exception):
    """The input allows no result; has the kind of fault."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass(frozen=True)
class PublishedDevice:
    """Device with its pool and slice."""

    id: DeviceId
    device: Device
    slice: ResourceSlice


def can_be_shared(device: Device, features: Features) -> bool:
    return features.consumable_capacity and device.allow_multiple_allocations is True


# -- selectors


@cache
def compiled(expression: str, consumable_capacity: bool) -> Selector | None:
    try:
        return compile_selector(expression, Environment("stored", consumable_capacity, list_attributes=True))
    except CelCompileError:
        return None


def is_selected(published: PublishedDevice, expressions: Iterable[str], features: Features) -> bool:
    """Return whether every selector matches; stops at the first that does not."""
    for expression in expressions:
        selector = compiled(expression, features.consumable_capacity)
        if selector is None:
            raise InvalidInput("cel-compile")
        outcome = selector.evaluate_exact(flatten(published.device, published.id.driver))
        if outcome.error is not None:
            raise InvalidInput("cel-runtime")
        if not outcome.result:
            return False
    return True


def is_for_node(published: PublishedDevice, node: Node) -> bool:
    """Return whether a device of a slice with per-device node selection is for this node."""
    if not published.slice.spec.per_device_node_selection:
        return True
    device = published.device
    found = node_matches(node, device.node_name, device.all_nodes, device.node_selector)
    if not isinstance(found, bool):
        raise InvalidInput("node-selection")
    return found


# -- taints


def taints_of(published: PublishedDevice, rules: Iterable[DeviceTaintRule]) -> list[DeviceTaint]:
    """Return the taints of a device and those that rules add."""
    taints = list(published.device.taints)
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is None:
            continue
        named = {
            selector.driver: published.id.driver,
            selector.pool: published.id.pool,
            selector.device: published.id.device,
        }
        if all(wanted is None or wanted == actual for wanted, actual in named.items()):
            taints.append(rule.spec.taint)
    return taints


def are_tolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(
            toleration.effect in ("", taint.effect)
            and toleration.key in ("", taint.key)
            and (
                toleration.operator == "Exists"
                or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
            )
            for toleration in tolerations
        )
        for taint in taints
    )


# -- constraints


@cache
def compiled_derived(expression: str, consumable_capacity: bool) -> DerivedAttribute | None:
    try:
        return compile_derived(expression, Environment("stored", consumable_capacity, list_attributes=True))
    except CelCompileError:
        return None


def values_of(
    published: PublishedDevice,
    attribute: str,
    features: Features,
    derived: Iterable[DeviceDerivedAttribute] = (),
) -> frozenset[tuple[str, object]] | None:
    """Return the typed values of an attribute; None if it is absent, empty for a list with lists off."""
    for each in derived:
        if each.name == attribute:
            program = compiled_derived(each.expression, features.consumable_capacity)
            if program is None:
                raise InvalidInput("derived-attribute-compile")
            try:
                result = program.evaluate(flatten(published.device, published.id.driver))
            except CelRuntimeError:
                raise InvalidInput("derived-attribute-runtime") from None
            return frozenset(result.values if features.list_attributes or not result.is_list else ())
    domain, _, name = attribute.rpartition("/")
    found = published.device.attributes.get(attribute)
    if found is None and domain == published.id.driver:
        found = published.device.attributes.get(name)
    if found is None:
        return None
    lists = {
        "int": found.int_values,
        "bool": found.bool_values,
        "string": found.string_values,
        "version": found.version_values,
    }
    scalars = {
        "int": found.int_value,
        "bool": found.bool_value,
        "string": found.string_value,
        "version": found.version_value,
    }
    values: set[tuple[str, object]] = {(kind, one) for kind, one in scalars.items() if one is not None}
    if features.list_attributes:
        values |= {(kind, one) for kind, several in lists.items() for one in several or ()}
    return frozenset(values)


def do_match(values: Sequence[frozenset[tuple[str, object]] | None]) -> bool:
    """Check matchAttribute: all devices have the attribute and a value in common."""
    known = [each for each in values if each is not None]
    return len(known) == len(values) and (len(known) < 2 or bool(frozenset.intersection(*known)))


def do_differ(values: Sequence[frozenset[tuple[str, object]] | None], lists: bool = True) -> bool:
    """Check distinctAttribute: all devices have the attribute and no two have a common value."""
    known = [each for each in values if each is not None]
    return len(known) == len(values) and all(
        (later or lists) and not (later & earlier)
        for index, later in enumerate(known)
        for earlier in known[:index]
    )


# -- capacity


def amount_of(quantity: Quantity | None) -> Fraction:
    return Fraction(0) if quantity is None else Fraction(quantity.nano, NANO)


def consumption(
    requests: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity], fractional: bool
) -> dict[str, Quantity] | None:
    """Return the consumption of every capacity of an unused device; None if it is impossible."""
    if not set(requests) <= set(capacity):
        return None
    taken = {name: _rounded(requests.get(name), entry, fractional) for name, entry in capacity.items()}
    fits = all(
        _is_allowed(taken[name], entry.request_policy, fractional)
        and amount_of(taken[name]) <= amount_of(entry.value)
        for name, entry in capacity.items()
    )
    return taken if fits else None


def _unit(bounds: CapacityRequestPolicyRange, fractional: bool) -> Fraction:
    """Return what the steps of a range are counted in: thousandths if a bound is a fraction and all are."""
    numbers = [amount_of(each) for each in (bounds.min, bounds.max, bounds.step)]
    exact = all((each * 1000).denominator == 1 and abs(each * 1000) <= INT64_MAX for each in numbers)
    fractions = fractional and any(each.denominator > 1 for each in numbers)
    return Fraction(1, 1000) if fractions and exact else Fraction(1)


def _rounded(asked: Quantity | None, entry: DeviceCapacity, fractional: bool) -> Quantity:
    policy = entry.request_policy or CapacityRequestPolicy()
    if asked is None:
        return next(each for each in (policy.default, entry.value, Quantity.of(0)) if each is not None)
    if policy.valid_values:
        return min((value for value in policy.valid_values if value >= asked), default=asked)
    bounds = policy.valid_range
    if bounds is None or bounds.min is None:
        return asked
    if asked < bounds.min:
        return bounds.min
    if bounds.step is None:
        return asked
    unit = _unit(bounds, fractional)
    first, step, wanted = (ceil(amount_of(each) / unit) for each in (bounds.min, bounds.step, asked))
    rounded = first + step * ceil(Fraction(wanted - first, step))
    exact = unit == 1 or (amount_of(asked) / unit).denominator == 1
    if max(wanted, rounded) > INT64_MAX or not exact:
        raise InvalidInput("capacity")
    return Quantity(int(rounded * unit * NANO), bounds.step.format)


def _is_allowed(amount: Quantity, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    if policy is None:
        return True
    default = policy.default
    if default is not None and amount == default and amount.format is default.format:
        return True
    if policy.valid_range is not None:
        bounds = policy.valid_range
        above = bounds.max is not None and amount > bounds.max
        unit = _unit(bounds, fractional)
        over = amount_of(amount) / unit - ceil(amount_of(bounds.min) / unit)
        if unit == 1:
            over = Fraction(ceil(over))
        return not above and (bounds.step is None or over % ceil(amount_of(bounds.step) / unit) == 0)
    return not policy.valid_values or amount in policy.valid_values


def held_amounts(state: AllocationState, id: DeviceId) -> dict[str, Fraction]:
    """Return the amounts held by shares of other claims."""
    holding = state.holding(id)
    if holding is None:
        return {}
    return {name: Fraction(nano, NANO) for name, nano in holding.consumed.items()}


# -- counters


def counters_drawn(device: Device) -> dict[tuple[str, str], Fraction]:
    drawn: dict[tuple[str, str], Fraction] = {}
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (consumption.counter_set, name)
            drawn[key] = drawn.get(key, Fraction(0)) + amount_of(counter.value)
    return drawn


def are_compatible(devices: Sequence[Device], counter_set: str) -> bool:
    """Check compatibility groups: all devices of a counter set have one in common, or none has any."""
    groups = [
        set(consumption.compatibility_groups)
        for device in devices
        for consumption in device.consumes_counters
        if consumption.counter_set == counter_set
    ]
    return not any(groups) or bool(set.intersection(*groups))


def can_skip_operations(published: PublishedDevice, node: Node, features: Features) -> bool:
    """Return whether the node can skip what the driver of a device does not need."""
    return not published.slice.spec.skip_node_operations or (
        features.optional_node_operations and OPTIONAL_NODE_OPERATIONS in node.status.declared_features
    )


def has_shares(state: AllocationState, id: DeviceId) -> bool:
    holding = state.holding(id)
    return holding is not None and bool(holding.shares or holding.recorded)
