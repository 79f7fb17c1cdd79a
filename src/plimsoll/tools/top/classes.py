"""Devices of each DeviceClass, and how many of them claims can still get (`tools/availability`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.api.identity import DeviceId
from plimsoll.tools.availability import Availability, ClassAvailability, select_offered
from plimsoll.tools.cluster_state import ClusterState


def class_rows(cluster_state: ClusterState, name: str = "") -> list[ClassAvailability]:
    """Return the rows of all classes, or of one, by name."""
    availability = Availability(cluster_state.snapshot)
    names = sorted(cluster_state.snapshot.classes)
    return [availability.of_class(each) for each in names if not name or each == name]


def unusable_devices(cluster_state: ClusterState) -> dict[str, int]:
    """Return how many devices drivers publish in pools that are incomplete or invalid."""
    inventory = cluster_state.snapshot.inventory
    found: Counter[str] = Counter()
    for id in inventory.pool_ids():
        if any(pool.status is not PoolStatus.COMPLETE for pool in inventory.cluster_pool(id).pools):
            names = {device.name for view in inventory.slices_of(id) for device in view.devices}
            found[id.driver] += len(names)
    return dict(sorted(found.items()))


def devices_of_class(cluster_state: ClusterState, name: str) -> set[DeviceId]:
    """Return the offered devices that a class selects; none if there is no such class."""
    snapshot = cluster_state.snapshot
    device_class = snapshot.classes.get(name)
    if device_class is None:
        return set()
    return {
        devices.entries[number].id
        for devices, _ in snapshot.inventory.cluster_pools()
        for number in bit_numbers(select_offered(device_class, devices))
    }


def free_by_class(
    cluster_state: ClusterState, names: Iterable[str] | None = None
) -> dict[str, dict[str, int]]:
    """Return {node: {class: devices that one pod can get there}} of all nodes or of some, without zeros."""
    snapshot = cluster_state.snapshot
    found: dict[str, dict[str, int]] = {}
    if not snapshot.classes:
        return found
    rows = None if names is None else [row for row in map(snapshot.row_of, names) if row is not None]
    for each in Availability(snapshot, rows).all_classes():
        for node, count in each.nodes.items():
            found.setdefault(node, {})[each.device_class] = count
    return found
