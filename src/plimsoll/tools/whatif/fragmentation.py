"""`Fragmentation`: the largest pod and claim that still fit on one node, and stranded resources.

Stranded are resources on nodes whose devices are all allocated, and devices on nodes without room for a pod.
A sum of 8 free devices may mean at most 2 on one node. All numbers are exact; a class whose devices are in
too many different states is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS, ResourceClaim
from plimsoll.ledger.units import CPU, MEMORY, PODS
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit, charges_node
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.top.nodes import format_amount, resource_order
from plimsoll.tools.whatif.totals import FreeByNode

#: Node states evaluated per class.
STATES_MAX = 256
CLASSES_MAX = 16
_BARRED = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class LargestFree:
    """The largest free amount of a resource on one node, and the total."""

    resource: str
    most: int
    node: str
    free: int

    def as_json(self) -> dict[str, Any]:
        most, free = format_amount(self.resource, self.most), format_amount(self.resource, self.free)
        return {"resource": self.resource, "mostOnOneNode": most, "node": self.node, "free": free}


@dataclass(frozen=True, slots=True)
class LargestClaim:
    """The largest claim for devices of a class that still fits on one node."""

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
    #: Free devices by driver, of nodes without cpu, memory or room for one more pod.
    without_room: Mapping[str, int] = field(default_factory=dict)
    nodes_without_room: int = 0

    def as_json(self) -> dict[str, Any]:
        stranded = sorted(self.without_devices, key=resource_order)
        return {
            "largest": [piece.as_json() for piece in self.pieces],
            "largestClaim": [piece.as_json() for piece in self.classes],
            "freeDevices": dict(sorted(self.free_devices.items())),
            "mostDevicesOnOneNode": dict(sorted(self.most_devices.items())),
            "stranded": {
                "nodesWithoutFreeDevices": self.nodes_without_devices,
                "resources": {name: format_amount(name, self.without_devices[name]) for name in stranded},
                "nodesWithoutRoom": self.nodes_without_room,
                "devices": dict(sorted(self.without_room.items())),
            },
        }


def find_fragments(snapshot: Snapshot, rooms: FreeByNode) -> Fragmentation:
    """Compute the fragmentation of a cluster; unschedulable nodes are left out."""
    most: dict[str, tuple[int, str]] = {}
    free: dict[str, int] = {}
    devices: dict[str, int] = {}
    most_devices: dict[str, int] = {}
    stranded: dict[str, int] = {}
    roomless: dict[str, int] = {}
    deviceless_nodes = roomless_nodes = 0
    open_places = [place for place in snapshot.rows() if not snapshot.node(place).spec.unschedulable]
    for place in open_places:
        node = snapshot.node(place)
        name = node.metadata.name
        room = {key: max(0, units) for key, units in rooms[name].items()}
        for key, units in room.items():
            free[key] = free.get(key, 0) + units
            if key not in most or units > most[key][0]:
                most[key] = (units, name)
        here, has_devices = _free_devices(snapshot, place)
        count_here = sum(here.values())
        for driver, count in here.items():
            devices[driver] = devices.get(driver, 0) + count
            most_devices[driver] = max(most_devices.get(driver, 0), count)
        full = any(not room.get(key, 0) for key in (CPU, MEMORY, PODS) if key in rooms[name])
        if has_devices and not count_here and not full:
            deviceless_nodes += 1
            for key in (CPU, MEMORY):
                stranded[key] = stranded.get(key, 0) + room.get(key, 0)
        if full and count_here:
            roomless_nodes += 1
            for driver, count in here.items():
                roomless[driver] = roomless.get(driver, 0) + count
    pieces = tuple(
        LargestFree(key, *most[key], free[key]) for key in sorted(most, key=resource_order) if key != PODS
    )
    return Fragmentation(
        pieces,
        tuple(_largest_claims(snapshot, open_places)),
        devices,
        most_devices,
        stranded,
        deviceless_nodes,
        roomless,
        roomless_nodes,
    )


def _free_devices(snapshot: Snapshot, place: int) -> tuple[dict[str, int], bool]:
    """Count the allocatable devices of a node by driver; also return whether it has any devices."""
    devices = snapshot.inventory.devices_for(snapshot.node(place))
    if isinstance(devices, AllocationFault):
        return {}, False
    usage = DeviceUsage(devices, snapshot.state)
    found: dict[str, int] = {}
    for number in _handed_out(devices, usage):
        driver = devices.entries[number].id.driver
        found[driver] = found.get(driver, 0) + 1
    return found, bool(devices.entries)


def _handed_out(devices: NodeDevices, usage: DeviceUsage) -> Iterator[int]:
    for number, entry in enumerate(devices.entries):
        if (usage.taken | usage.blocked) >> number & 1:
            continue
        if any(taint.effect in _BARRED for taint in entry.device.taints):
            continue
        if entry.shareable and any(left <= 0 for left in usage.free(number)):
            continue
        yield number


# -- the largest claim


def _largest_claims(snapshot: Snapshot, places: list[int]) -> Iterator[LargestClaim]:
    names = sorted(snapshot.classes)[:CLASSES_MAX]
    #: Nodes on which the same claims fit: one of them, and how many there are.
    states: dict[object, tuple[int, int]] = {}
    for place in places if names else ():
        state = _state(snapshot, place)
        first, count = states.get(state, (place, 0))
        states[state] = (first, count + 1)
    for name in names:
        if len(states) > STATES_MAX:
            yield LargestClaim(name, None)
            continue
        found = [(_most_at(name, snapshot, place), count) for place, count in states.values()]
        most = max((most for most, _ in found), default=0)
        yield LargestClaim(name, most, sum(count for each, count in found if each == most) if most else 0)


def _most_at(name: str, snapshot: Snapshot, place: int) -> int:
    """Return the largest number of devices of a class that one claim can get on a node."""
    low, high = 0, MAX_ALLOCATION_RESULTS
    while low < high:
        middle = (low + high + 1) // 2
        answer = DynamicResourcesFilter(_task_for(name, middle, snapshot), snapshot).search_uncached(place)
        if isinstance(answer, NodeFit):
            low = middle
        else:
            high = middle - 1
    return low


def _task_for(name: str, count: int, snapshot: Snapshot) -> PodInfo:
    """Return a pod that requests only `count` devices of a class."""
    request = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    meta = {"name": "largest", "namespace": "default", "uid": "whatif/largest"}
    claim = codec.convert({"metadata": meta, "spec": spec}, ResourceClaim)
    entry = {"name": "r", "resourceClaimName": "largest"}
    container = {"name": "c", "resources": {"claims": [{"name": "r"}]}}
    tree = {"metadata": meta, "spec": {"resourceClaims": [entry], "containers": [container]}}
    return PodInfo(codec.convert(tree, Pod), (claim,), snapshot.options)


def _state(snapshot: Snapshot, place: int) -> object:
    """Return a key that is equal for nodes on which the same claims fit."""
    devices = snapshot.inventory.devices_for(snapshot.node(place))
    if isinstance(devices, AllocationFault) or devices.signature is None:
        return place
    room: object = None
    if snapshot.options.count_claims and charges_node(snapshot, place):
        ledger = snapshot.ledger(place)
        room = (tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items())))
    return devices.signature, DeviceUsage(devices, snapshot.state).signature, room
