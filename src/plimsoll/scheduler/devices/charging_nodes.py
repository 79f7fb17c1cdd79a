"""Nodes whose devices charge node-allocatable resources.

On other nodes the ledger does not restrict claims.
"""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.api.forms import read_device_class
from plimsoll.api.resource import DeviceClass
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def charges_node(snapshot: Snapshot, row: int) -> bool:
    """Return whether any device of a node can charge the node's allocatable resources."""
    return can_charge(snapshot, snapshot.inventory.devices_for(snapshot.node(row)))


def can_charge(snapshot: Snapshot, devices: NodeDevices | AllocationFault) -> bool:
    """Return whether any of these devices can charge the allocatable resources of its node.

    A device class with a mapping annotation applies to all nodes.
    """
    if isinstance(devices, AllocationFault) or devices.mapped:
        return True
    return bool(snapshot.index(ChargingClasses).names)


class ChargingClasses(SnapshotIndex):
    """Names of the device classes with a mapping annotation."""

    kinds = (DeviceClass,)

    def __init__(self) -> None:
        self.names: set[str] = set()

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, DeviceClass):
            self.names.discard(old.metadata.name)
        if isinstance(new, DeviceClass) and read_device_class(new).charges:
            self.names.add(new.metadata.name)
