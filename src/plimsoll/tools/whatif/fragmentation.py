"""`Fragmentation`: the largest pod and claim that still fit on one node, and stranded resources.

Stranded are resources on nodes whose devices are all allocated, and devices on nodes without capacity for a
pod. All numbers are exact; a class whose devices are in too many different states is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.allocator import AllocationFault, Inventory
from plimsoll.allocator.availability import is_allocatable
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.ledger.units import CPU, MEMORY, PODS
from plimsoll.scheduler.devices import node_state
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.class_availability import largest_claim_count
from plimsoll.tools.whatif.totals import FreeByNode

#: Node states evaluated per class.
STATES_MAX = 256
CLASSES_MAX = 16


@dataclass(frozen=True, slots=True)
class LargestFree:
    """Largest free amount of a resource on one node, and the total."""

    resource: str
    most: int
    node: str
    free: int

    def as_json(self) -> dict[str, Any]:
        most, free = format_amount(self.resource, self.most), format_amount(self.resource, self.free)
        return {"resource": self.resource, "mostOnOneNode": most, "node": self.node, "free": free}


@dataclass(frozen=True, slots=True)
class LargestClaim:
    """Largest claim for devices of a class that fits on one node."""

    device_class: str
    most: int | None  #: None: too many different nodes
    nodes: int = 0  #: on how many nodes such a claim fits

    def as_json(self) -> dict[str, Any]:
        return {"deviceClass": self.device_class, "mostOnOneNode": self.most, "nodes": self.nodes}


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Fragmentation of the free resources and devices."""

    pieces: tuple[LargestFree, ...] = ()
    classes: tuple[LargestClaim, ...] = ()
    free_devices: Mapping[str, int] = field(default_factory=dict)  #: by driver
    most_devices: Mapping[str, int] = field(default_factory=dict)  #: by driver, on one node
    #: Free resources of nodes that have devices, of which none is free.
    without_devices: Mapping[str, int] = field(default_factory=dict)
    nodes_without_devices: int = 0
    #: Free devices by driver, of nodes without free CPU, memory or pods.
    without_room: Mapping[str, int] = field(default_factory=dict)
    nodes_without_room: int = 0

    def as_json(self) -> dict[str, Any]:
        resources = sorted(self.without_devices, key=resource_order)
        return {
            "largest": [piece.as_json() for piece in self.pieces],
            "largestClaim": [piece.as_json() for piece in self.classes],
            "freeDevices": dict(sorted(self.free_devices.items())),
            "mostDevicesOnOneNode": dict(sorted(self.most_devices.items())),
            "stranded": {
                "nodesWithoutFreeDevices": self.nodes_without_devices,
                "resources": {name: format_amount(name, self.without_devices[name]) for name in resources},
                "nodesWithoutRoom": self.nodes_without_room,
                "devices": dict(sorted(self.without_room.items())),
            },
        }


@dataclass(frozen=True, slots=True)
class NodeFragments:
    """Contribution of one schedulable node to the fragmentation."""

    free: Mapping[str, int]  #: amounts past the line count as 0
    full: bool  #: no free CPU, memory or pods
    devices: Mapping[str, int]  #: free devices by driver
    has_devices: bool
    state: object = None  #: equal for nodes on which equal claims fit; None if it is not known


def read_node_fragments(
    snapshot: Snapshot, free_by_node: FreeByNode, known: Mapping[str, NodeFragments] | None = None
) -> dict[str, NodeFragments]:
    """Return what each node contributes; unschedulable nodes are left out. `known` is that of some nodes."""
    known = known or {}
    found: dict[str, NodeFragments] = {}
    counted: _FreeDevices = {}
    inventory = snapshot.inventory
    for row in snapshot.rows():
        node = snapshot.node(row)
        name = node.metadata.name
        if name in known:
            found[name] = known[name]
        elif not node.spec.unschedulable:
            free_of_node = free_by_node[name]
            free = {key: units if units > 0 else 0 for key, units in free_of_node.items()}
            full = any(not free.get(key, 0) for key in (CPU, MEMORY, PODS) if key in free_of_node)
            devices, has_devices, usage = _free_devices(snapshot, inventory, row, counted)
            state = node_state(snapshot, row, usage=usage) if snapshot.classes else None
            found[name] = NodeFragments(free, full, devices, has_devices, state)
    return found


def find_fragments(snapshot: Snapshot, nodes: Mapping[str, NodeFragments]) -> Fragmentation:
    """Compute the fragmentation of a cluster from what each node contributes."""
    most: dict[str, tuple[int, str]] = {}
    free: dict[str, int] = {}
    devices: dict[str, int] = {}
    most_devices: dict[str, int] = {}
    without_devices: dict[str, int] = {}
    without_capacity: dict[str, int] = {}
    nodes_without_devices = nodes_without_capacity = 0
    #: Node state -> the first node with it, and the number of nodes.
    states: dict[object, tuple[str, int]] = {}
    for name, node in nodes.items():
        for key, units in node.free.items():
            free[key] = free.get(key, 0) + units
            if key not in most or units > most[key][0]:
                most[key] = (units, name)
        state = node.state or name
        first, count = states.get(state, (name, 0))
        states[state] = (first, count + 1)
        free_devices_here = sum(node.devices.values())
        for driver, count in node.devices.items():
            devices[driver] = devices.get(driver, 0) + count
            most_devices[driver] = max(most_devices.get(driver, 0), count)
        if node.has_devices and not free_devices_here and not node.full:
            nodes_without_devices += 1
            for key in (CPU, MEMORY):
                without_devices[key] = without_devices.get(key, 0) + node.free.get(key, 0)
        if node.full and free_devices_here:
            nodes_without_capacity += 1
            for driver, count in node.devices.items():
                without_capacity[driver] = without_capacity.get(driver, 0) + count
    pieces = tuple(
        LargestFree(key, *most[key], free[key]) for key in sorted(most, key=resource_order) if key != PODS
    )
    return Fragmentation(
        pieces,
        tuple(_largest_claims(snapshot, states)),
        devices,
        most_devices,
        without_devices,
        nodes_without_devices,
        without_capacity,
        nodes_without_capacity,
    )


#: Free devices by driver, by content and usage of the devices of a node.
_FreeDevices: TypeAlias = "dict[tuple[object, ...], dict[str, int]]"


def _free_devices(
    snapshot: Snapshot, inventory: Inventory, row: int, known: _FreeDevices
) -> tuple[dict[str, int], bool, DeviceUsage | None]:
    """Count the free devices of a node by driver; also return whether it has any devices, and their usage."""
    devices = inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault):
        return {}, False, None
    usage = DeviceUsage(devices, snapshot.state)
    key = (devices.signature or row, usage.signature, usage.blocked, devices.elsewhere)
    found = known.get(key)
    if found is None:
        found = known[key] = {}
        for number, entry in enumerate(devices.entries):
            if is_allocatable(devices, usage, number):
                found[entry.id.driver] = found.get(entry.id.driver, 0) + 1
    return found, bool(devices.all), usage


# -- the largest claim


def _largest_claims(snapshot: Snapshot, states: Mapping[object, tuple[str, int]]) -> Iterator[LargestClaim]:
    rows = [(snapshot.row_of(name), count) for name, count in states.values()]
    for name in sorted(snapshot.classes)[:CLASSES_MAX]:
        if len(states) > STATES_MAX:
            yield LargestClaim(name, None)
            continue
        found = [(largest_claim_count(name, snapshot, row), count) for row, count in rows if row is not None]
        most = max((most for most, _ in found), default=0)
        yield LargestClaim(name, most, sum(count for each, count in found if each == most) if most else 0)
