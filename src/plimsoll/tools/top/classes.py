"""Class rows: devices of each DeviceClass, and how many of them can still be allocated.

What can be allocated is found by the allocator (`class_availability.py`); devices and capacity are those of
the device rows. Partitions of devices have rows of their own, by the attribute that names their type: the one
that the slice declares (`partitionTypeAttribute`), else one called `profile`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll.allocator.availability import FREE, PARTLY, SHARED, TAKEN, device_state, find_availability
from plimsoll.allocator.devices.capacity import capacity_value
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.tools.class_availability import AvailabilitySearch, make_claim
from plimsoll.tools.cluster_state import ClusterState

PROFILE = "profile"


class CapacityLeft(NamedTuple):
    """Capacity of the shareable devices of a class: total, remaining, and most remaining on one device."""

    total: Quantity
    left: Quantity
    most: Quantity


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Partitions of one type in a class."""

    type: str
    devices: int
    free: int  #: that can be allocated if no other partition is
    most: int  #: on one node

    def as_json(self) -> dict[str, Any]:
        return {"type": self.type, "devices": self.devices, "free": self.free, "mostOnOneNode": self.most}


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Devices of one class."""

    device_class: str
    devices: int = 0  #: offered devices that the class selects
    held: int = 0  #: of these, in use by claims
    free: int = 0  #: that can still be allocated, on all nodes
    nodes: Mapping[str, int] = field(default_factory=dict)  #: node -> devices that one pod can get there
    capacity: Mapping[str, CapacityLeft] = field(default_factory=dict)
    partitions: tuple[PartitionRow, ...] = ()
    unknown: int = 0  #: nodes in too many different states to be searched
    problem: str = ""  #: reason why the class selects nothing

    @property
    def most(self) -> int:
        return max(self.nodes.values(), default=0)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.device_class,
            "devices": self.devices,
            "held": self.held,
            "free": self.free,
            "mostOnOneNode": self.most,
            "nodes": [{"node": node, "free": count} for node, count in sorted(self.nodes.items())],
            "capacity": [
                {
                    "name": name,
                    "whole": str(each.total),
                    "left": str(each.left),
                    "mostOnOneDevice": str(each.most),
                }
                for name, each in self.capacity.items()
            ],
            "partitions": [each.as_json() for each in self.partitions],
            "unknownNodes": self.unknown,
            "problem": self.problem or None,
        }


def class_rows(cluster_state: ClusterState, name: str = "") -> list[ClassRow]:
    """Return the rows of all classes, or of one, by name."""
    snapshot = cluster_state.snapshot
    search = AvailabilitySearch(snapshot)
    pools = [
        (devices, DeviceUsage(devices, snapshot.state)) for devices, _ in snapshot.inventory.cluster_pools()
    ]
    names = sorted(snapshot.classes) if not name else [each for each in snapshot.classes if each == name]
    return [_row(cluster_state, each, pools, search) for each in names]


def devices_of_class(cluster_state: ClusterState, name: str) -> set[DeviceId]:
    """Return the offered devices that a class selects; none if there is no such class."""
    snapshot, found = cluster_state.snapshot, set[DeviceId]()
    if name not in snapshot.classes:
        return found
    for devices, _ in snapshot.inventory.cluster_pools():
        usage = DeviceUsage(devices, snapshot.state)
        selected = find_availability(make_claim(name, 1), snapshot.classes, devices, usage)
        if not isinstance(selected, AllocationFault):
            (request,) = selected.values()
            found |= {devices.entries[number].id for number in bit_numbers(request.matching)}
    return found


def shared_capacity(cluster_state: ClusterState, name: str) -> dict[str, CapacityLeft]:
    """Return what is left of the capacities of the shareable devices of a class."""
    snapshot, capacity = cluster_state.snapshot, dict[str, CapacityLeft]()
    for devices, _ in snapshot.inventory.cluster_pools():
        usage = DeviceUsage(devices, snapshot.state)
        found = find_availability(make_claim(name, 1), snapshot.classes, devices, usage)
        if isinstance(found, AllocationFault):
            continue
        (request,) = found.values()
        for number in bit_numbers(request.matching):
            if devices.entries[number].shareable:
                is_free = device_state(devices, usage, number) in (FREE, PARTLY, SHARED)
                _add_capacity(capacity, devices.entries[number], usage, number, is_free=is_free)
    return capacity


def free_by_class(
    cluster_state: ClusterState, names: Iterable[str] | None = None
) -> dict[str, dict[str, int]]:
    """Return {node: {class: devices that one pod can get there}} of all nodes or of some, without zeros."""
    snapshot = cluster_state.snapshot
    found: dict[str, dict[str, int]] = {}
    if not snapshot.classes:
        return found
    rows = None if names is None else [row for row in map(snapshot.row_of, names) if row is not None]
    search = AvailabilitySearch(snapshot, rows)
    for name in sorted(snapshot.classes):
        for node, count in search.find(name).nodes.items():
            found.setdefault(node, {})[name] = count
    return found


def _row(
    cluster_state: ClusterState,
    name: str,
    pools: list[tuple[NodeDevices, DeviceUsage]],
    search: AvailabilitySearch,
) -> ClassRow:
    claim, classes = make_claim(name, 1), cluster_state.snapshot.classes
    devices = held = 0
    capacity: dict[str, CapacityLeft] = {}
    types: dict[tuple[str, str, str], int] = {}
    problem = ""
    matching: dict[object, int] = {}  #: devices that match, by the content of a pool
    for pool, usage in pools:
        mask = None if pool.signature is None else matching.get(pool.signature)
        if mask is None:
            found = find_availability(claim, classes, pool, usage)
            if isinstance(found, AllocationFault):
                problem = problem or str(found)
                continue
            (request,) = found.values()
            mask = matching[pool.signature] = request.matching
        for number in bit_numbers(mask):
            state = device_state(pool, usage, number)
            entry = pool.entries[number]
            devices += 1
            held += state in (TAKEN, PARTLY, SHARED)
            if entry.shareable:
                _add_capacity(capacity, entry, usage, number, is_free=state in (FREE, PARTLY, SHARED))
            if (kind := _partition_type(entry)) is not None:
                types[kind] = types.get(kind, 0) + 1
    available = search.find(name)
    partitions = []
    for (driver, attribute, value), count in sorted(types.items()):
        part = search.find(name, _type_selector(driver, attribute, value))
        partitions.append(PartitionRow(value, count, part.total, part.most))
    shown = tuple(partitions) if len(partitions) > 1 else ()
    return ClassRow(
        name, devices, held, available.total, available.nodes, capacity, shown, available.unknown, problem
    )


def _add_capacity(
    capacity: dict[str, CapacityLeft], entry: DeviceEntry, usage: DeviceUsage, number: int, *, is_free: bool
) -> None:
    consumed = usage.consumed.get(number, {})
    for name, each in entry.device.capacity.items():
        value = capacity_value(each)
        left = Quantity(max(0, value.nano - consumed.get(name, 0)) if is_free else 0, value.format)
        before = capacity.get(name)
        if before is None:
            capacity[name] = CapacityLeft(value, left, left)
        else:
            total, rest, most = before
            capacity[name] = CapacityLeft(total + value, rest + left, max(most, left))


def _partition_type(entry: DeviceEntry) -> tuple[str, str, str] | None:
    """Return driver, attribute and value that name the type of a partition; None for other devices."""
    if not entry.draw:
        return None
    declared = entry.view.slice.spec.partition_type_attribute
    for name, attribute in entry.device.attributes.items():
        domain, _, own = name.rpartition("/")
        is_type = own == PROFILE if not declared else declared in (name, f"{entry.id.driver}/{name}")
        if is_type and attribute.string_value is not None:
            return entry.id.driver, f"{domain or entry.id.driver}/{own}", attribute.string_value
    return None


def _type_selector(driver: str, attribute: str, value: str) -> str:
    domain, _, name = attribute.rpartition("/")
    place = f"device.attributes[{json.dumps(domain)}]"
    parts = (
        f"device.driver == {json.dumps(driver)}",
        f"{json.dumps(name)} in {place}",
        f"{place}.{name} == {json.dumps(value)}",
    )
    return " && ".join(parts)
