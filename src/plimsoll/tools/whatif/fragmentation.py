"""`Fragmentation`: the largest pod and claim that still fit on one node, and stranded resources.

Stranded are resources on nodes without free devices, and devices on nodes without capacity for a
pod. Devices that exclude each other are not added up (`tools/availability`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS
from plimsoll.ledger.units import CPU, MEMORY, PODS
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.availability import Availability, closed_reason
from plimsoll.tools.availability.node_stock import KnownCounts, NodeStock
from plimsoll.tools.whatif.totals import FreeByNode


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
    most: int
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
    """Contribution of one node that takes pods to the fragmentation."""

    free: Mapping[str, int]  #: amounts past the line count as 0
    full: bool  #: no free CPU, memory or pods
    devices: Mapping[str, int]  #: free devices by driver, as many as can be allocated together
    own: Mapping[str, int]  #: the same of devices that no other node can use
    shared: tuple[DeviceId, ...]  #: other free devices
    has_devices: bool
    classes: Mapping[str, int]  #: devices of each class that one pod can get


def read_node_fragments(
    snapshot: Snapshot, free_by_node: FreeByNode, known: Mapping[str, NodeFragments] | None = None
) -> dict[str, NodeFragments]:
    """Return what each node that takes pods contributes. `known` is that of some nodes."""
    known = known or {}
    rows = [
        row
        for row in snapshot.rows()
        if snapshot.node(row).metadata.name in known or not closed_reason(snapshot.node(row))
    ]
    availability = Availability(
        snapshot, [row for row in rows if snapshot.node(row).metadata.name not in known]
    )
    stocks = {stock.name: stock for stock, _ in availability.stocks}
    by_class = {each.device_class: each.nodes for each in availability.all_classes()}
    found: dict[str, NodeFragments] = {}
    for row in rows:
        name = snapshot.node(row).metadata.name
        if name in known:
            found[name] = known[name]
            continue
        free_of_node = free_by_node[name]
        free = {key: units if units > 0 else 0 for key, units in free_of_node.items()}
        full = any(not free.get(key, 0) for key in (CPU, MEMORY, PODS) if key in free_of_node)
        stock = stocks.get(name)
        devices, own, shared = ({}, {}, ()) if stock is None else _free_devices(stock)
        classes = {each: nodes[name] for each, nodes in by_class.items() if name in nodes}
        found[name] = NodeFragments(free, full, devices, own, shared, stock is not None, classes)
    return found


def _free_devices(stock: NodeStock) -> tuple[dict[str, int], dict[str, int], tuple[DeviceId, ...]]:
    """Return the free devices of a node by driver, those of its own by driver, and the others."""
    devices = stock.count_by_driver(stock.free)
    shared = stock.free & ~stock.own
    if not shared:
        return devices, devices, ()
    ids = tuple(stock.devices.entries[number].id for number in bit_numbers(shared))
    return devices, stock.count_by_driver(stock.free & stock.own), ids


def _count_shared(snapshot: Snapshot, nodes: Iterable[NodeFragments]) -> Counter[str]:
    """Return the free devices that several nodes can use by driver, each counted once."""
    found: Counter[str] = Counter()
    ids = {id for node in nodes for id in node.shared}
    for pool in {id.pool_id for id in ids}:
        stock = NodeStock(snapshot, snapshot.inventory.cluster_pool(pool), KnownCounts())
        found.update(stock.count_by_driver(stock.mask_of(id for id in ids if id.pool_id == pool)))
    return found


def find_fragments(snapshot: Snapshot, nodes: Mapping[str, NodeFragments]) -> Fragmentation:
    """Compute the fragmentation of a cluster from what each node contributes."""
    most: dict[str, tuple[int, str]] = {}
    free, without_devices, without_capacity = (Counter[str]() for _ in range(3))
    devices = _count_shared(snapshot, nodes.values())
    most_devices: dict[str, int] = {}
    nodes_without_devices = nodes_without_capacity = 0
    for name, node in nodes.items():
        free.update(node.free)
        devices.update(node.own)
        for key, units in node.free.items():
            if key not in most or units > most[key][0]:
                most[key] = (units, name)
        free_devices_here = sum(node.devices.values())
        for driver, count in node.devices.items():
            most_devices[driver] = max(most_devices.get(driver, 0), count)
        if node.has_devices and not free_devices_here and not node.full:
            nodes_without_devices += 1
            without_devices.update({key: node.free.get(key, 0) for key in (CPU, MEMORY)})
        if node.full and any(node.own.values()):
            nodes_without_capacity += 1
            without_capacity.update(node.own)
    pieces = tuple(
        LargestFree(key, *most[key], free[key]) for key in sorted(most, key=resource_order) if key != PODS
    )
    return Fragmentation(
        pieces,
        tuple(_largest_claims(snapshot, nodes)),
        devices,
        most_devices,
        without_devices,
        nodes_without_devices,
        without_capacity,
        nodes_without_capacity,
    )


def _largest_claims(snapshot: Snapshot, nodes: Mapping[str, NodeFragments]) -> Iterator[LargestClaim]:
    for name in sorted(snapshot.classes):
        counts = [min(MAX_ALLOCATION_RESULTS, node.classes.get(name, 0)) for node in nodes.values()]
        most = max(counts, default=0)
        yield LargestClaim(name, most, counts.count(most) if most else 0)
