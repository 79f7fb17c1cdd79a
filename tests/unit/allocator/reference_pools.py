"""Pools of the reference allocator: newest generation, complete and consistent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from plimsoll.allocator.features import Features
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.node_selection import node_matches
from plimsoll.api.resource import ResourceSlice
from tests.unit.allocator import reference_rules as rules
from tests.unit.allocator.reference_rules import InvalidInput, PublishedDevice


@dataclass(frozen=True)
class PoolView:
    """Pool as seen from a node."""

    id: PoolId
    trouble: str = ""  #: "", "incomplete" or "invalid"
    spots: tuple[PublishedDevice, ...] = ()
    elsewhere: tuple[PublishedDevice, ...] = ()  #: devices of other nodes
    counters: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)


def gather(slices: Sequence[ResourceSlice], node: Node, features: Features) -> list[PoolView]:
    """Return the pools of the node in search order, including unusable ones."""
    own = [each for each in slices if each.spec.node_name == node.metadata.name]
    free = [each for each in slices if not each.spec.node_name]
    relevant: dict[PoolId, list[ResourceSlice]] = {}
    for each in own + free:
        spec = each.spec
        if not features.partitionable_devices and (
            spec.per_device_node_selection is not None or spec.shared_counters
        ):
            continue
        if is_relevant(each, node):
            relevant.setdefault(PoolId(spec.driver, spec.pool.name), []).append(each)
    pools = []
    for id, members in relevant.items():
        newest = max(each.spec.pool.generation for each in members)
        pool = build_pool(
            id, [each for each in members if each.spec.pool.generation == newest], slices, features
        )
        if pool is not None:
            pools.append(pool)
    return sorted(
        pools,
        key=lambda pool: (any(published.device.binding_conditions for published in pool.spots), pool.id),
    )


def is_relevant(slice: ResourceSlice, node: Node) -> bool:
    spec = slice.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        asked = [(spec.node_name, spec.all_nodes, spec.node_selector)]
    elif spec.per_device_node_selection:
        asked = [(each.node_name, each.all_nodes, each.node_selector) for each in spec.devices or ()]
    else:
        asked = []
    for name, everywhere, selector in asked:
        found = node_matches(node, name, everywhere, selector)
        if not isinstance(found, bool):
            raise InvalidInput("node-selection")
        if found:
            return True
    return False


def build_pool(
    id: PoolId, members: Sequence[ResourceSlice], everything: Sequence[ResourceSlice], features: Features
) -> PoolView | None:
    """Build a pool from its newest slices; None if a newer generation is not complete here yet."""
    wanted, generation = members[0].spec.pool.resource_slice_count, members[0].spec.pool.generation
    others: list[ResourceSlice] = []
    if not features.compatibility_groups and any(
        consumption.compatibility_groups
        for each in everything
        if (each.spec.driver, each.spec.pool.name, each.spec.pool.generation) == (*id, generation)
        for device in each.spec.devices or ()
        for consumption in device.consumes_counters
    ):
        return PoolView(id, "incomplete")
    if len(members) != wanted:
        known = [each for each in everything if (each.spec.driver, each.spec.pool.name) == id]
        if any(each.spec.pool.generation > generation for each in known):
            return None
        known = [each for each in known if each.spec.pool.generation == generation]
        if len(known) != wanted:
            return PoolView(id, "incomplete")
        others = [each for each in known if each not in members]
    spots = devices_of(id, sorted(members, key=lambda each: each.metadata.name))
    elsewhere = devices_of(id, others)
    names = [published.id for published in spots]
    if len(set(names)) < len(names):
        return PoolView(id, "invalid")
    if not features.partitionable_devices:
        return PoolView(id, "", spots)
    sets = [counters for each in (*members, *others) for counters in each.spec.shared_counters or ()]
    counters = {
        (each.name, name): rules.amount_of(counter.value)
        for each in sets
        for name, counter in each.counters.items()
    }
    drawing = [each for published in spots + elsewhere for each in published.device.consumes_counters]
    set_names = {each.name for each in sets}
    if (
        len(set_names) < len(sets)
        or any(each.counter_set not in set_names for each in drawing)
        or any((each.counter_set, name) not in counters for each in drawing for name in each.counters)
    ):
        return PoolView(id, "invalid")
    return PoolView(id, "", spots, elsewhere, counters)


def devices_of(id: PoolId, slices: Sequence[ResourceSlice]) -> tuple[PublishedDevice, ...]:
    return tuple(
        PublishedDevice(DeviceId(*id, device.name), device, each)
        for each in slices
        for device in each.spec.devices or ()
    )
