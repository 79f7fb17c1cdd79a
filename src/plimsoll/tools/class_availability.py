"""Availability of device classes: how many devices of a class can still be allocated, by node.

The numbers are found by the scheduler's own search: the largest claim of a class that fits on a node, with
counters, compatibility, taints and what devices charge to the node. Choices that exclude each other, such as
the partitions of a GPU, are not added up. Nodes in equal states are searched once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.availability import find_availability
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS, ResourceClaim
from plimsoll.ledger.units import PODS
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit, node_state
from plimsoll.scheduler.devices.charging_nodes import charges_node
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Node states that are searched per class; further ones are counted as unknown.
STATES_MAX = 1024
#: Devices of a class on one node up to which the search counts.
DEVICES_MAX = 8 * MAX_ALLOCATION_RESULTS


@dataclass(frozen=True, slots=True)
class ClassAvailability:
    """Devices of a class that can still be allocated."""

    device_class: str
    selector: str = ""  #: further CEL selector, for a part of the devices
    nodes: Mapping[str, int] = field(default_factory=dict)  #: node -> devices that one pod can get there
    total: int = 0  #: on all nodes; a device that several nodes can use counts once
    unknown: int = 0  #: nodes that were not searched

    @property
    def most(self) -> int:
        """Devices that one pod can get."""
        return max(self.nodes.values(), default=0)


@dataclass(frozen=True, slots=True)
class _NodeGroup:
    """Nodes in the same state."""

    rows: Sequence[int]
    shares_devices: bool  #: True if its devices may be those of other nodes too


class AvailabilitySearch:
    """Search of what can still be allocated in one snapshot; unavailable nodes are left out."""

    def __init__(self, snapshot: Snapshot, rows: Sequence[int] | None = None) -> None:
        self._snapshot = snapshot
        self._groups = list(_group_nodes(snapshot, rows))

    def find(self, device_class: str, selector: str = "") -> ClassAvailability:
        """Count the devices of a class, or of those that a CEL selector matches too."""
        snapshot = self._snapshot
        nodes: dict[str, int] = {}
        total = unknown = searched = shared_sum = 0
        shared: set[DeviceId] = set()
        claim = make_claim(device_class, 1, selector)
        for group in self._groups:
            found = _available(claim, snapshot, group.rows[0])
            if found is None:
                continue
            devices, available = found
            if searched >= STATES_MAX:
                unknown += len(group.rows)
                continue
            if _is_independent(snapshot, group.rows[0], devices, available):
                count = available.bit_count()
            else:
                searched += 1
                bound = min(available.bit_count(), DEVICES_MAX)
                count = largest_count(device_class, snapshot, group.rows[0], bound, selector)
            if not count:
                continue
            nodes |= {snapshot.node(row).metadata.name: count for row in group.rows}
            if group.shares_devices:
                shared_sum += count
                shared |= {devices.entries[number].id for number in bit_numbers(available)}
            else:
                total += count * len(group.rows)
        total += min(shared_sum, len(shared))
        return ClassAvailability(device_class, selector, nodes, total, unknown)


def _available(claim: ResourceClaim, snapshot: Snapshot, row: int) -> tuple[NodeDevices, int] | None:
    """Return the devices of a node and the mask of those that can be allocated, each alone; None if there are
    none.
    """
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault) or not devices.entries:
        return None
    usage = DeviceUsage(devices, snapshot.state)
    found = find_availability(claim, snapshot.classes, devices, usage)
    if isinstance(found, AllocationFault):
        return None
    (request,) = found.values()
    available = request.available & ~devices.elsewhere
    return (devices, available) if available else None


def _group_nodes(snapshot: Snapshot, rows: Sequence[int] | None) -> Iterator[_NodeGroup]:
    groups: dict[object, list[int]] = {}
    for row in snapshot.rows() if rows is None else rows:
        if not _is_available(snapshot, row):
            continue
        state = node_state(snapshot, row)
        groups.setdefault(row if state is None else state, []).append(row)
    for key, members in groups.items():
        yield _NodeGroup(members, isinstance(key, int))


def _is_available(snapshot: Snapshot, row: int) -> bool:
    """Return whether a node takes another pod."""
    node, ledger = snapshot.node(row), snapshot.ledger(row)
    ready = all(each.status == "True" for each in node.status.conditions if each.type == "Ready")
    has_room = PODS not in ledger.allocatable or ledger.headroom().get(PODS, 0) > 0
    return ready and not node.spec.unschedulable and has_room


def _is_independent(snapshot: Snapshot, row: int, devices: NodeDevices, available: int) -> bool:
    """Return whether the allocation of one device leaves all others available."""
    if snapshot.options.count_claims and charges_node(snapshot, row):
        return False
    entries = (devices.entries[number] for number in bit_numbers(available))
    return all(not entry.draw and not entry.groups for entry in entries)


def largest_claim_count(name: str, snapshot: Snapshot, row: int) -> int:
    """Return the largest number of devices of a class that one claim can get on a node."""
    found = _available(make_claim(name, 1), snapshot, row)
    if found is None:
        return 0
    devices, available = found
    bound = min(available.bit_count(), MAX_ALLOCATION_RESULTS)
    if _is_independent(snapshot, row, devices, available):
        return bound
    return largest_count(name, snapshot, row, bound)


def largest_count(
    name: str, snapshot: Snapshot, row: int, bound: int = MAX_ALLOCATION_RESULTS, selector: str = ""
) -> int:
    """Return the largest number of devices of a class, up to `bound`, that one pod can get on a node."""
    low, high = 0, bound
    while low < high:
        middle = (low + high + 1) // 2
        pod_info = _pod_requesting(name, middle, snapshot, selector)
        answer = DynamicResourcesFilter(pod_info, snapshot).search_uncached(row)
        if isinstance(answer, NodeFit):
            low = middle
        else:
            high = middle - 1
    return low


@lru_cache(maxsize=1024)
def make_claim(name: str, count: int, selector: str = "", number: int = 0) -> ResourceClaim:
    """Return a claim for `count` devices of a class."""
    request: dict[str, Any] = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}
    if selector:
        request["selectors"] = [{"cel": {"expression": selector}}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    meta = {"name": f"largest-{number}", "namespace": "default", "uid": f"availability/largest-{number}"}
    return codec.convert({"metadata": meta, "spec": spec}, ResourceClaim)


def _pod_requesting(name: str, count: int, snapshot: Snapshot, selector: str) -> PodInfo:
    """Return a pod that requests only `count` devices of a class, in as many claims as necessary."""
    claims: list[ResourceClaim] = []
    while count > 0:
        part = min(count, MAX_ALLOCATION_RESULTS)
        claims.append(make_claim(name, part, selector, len(claims)))
        count -= part
    pod = _pod_using(tuple(claim.metadata.name for claim in claims))
    return PodInfo(pod, tuple(claims), snapshot.options)


@lru_cache(maxsize=64)
def _pod_using(claims: tuple[str, ...]) -> Pod:
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    container = {"name": "c", "resources": {"claims": [{"name": each} for each in claims]}}
    meta = {"name": "largest", "namespace": "default", "uid": "availability/pod"}
    tree = {"metadata": meta, "spec": {"resourceClaims": entries, "containers": [container]}}
    return codec.convert(tree, Pod)
