"""Index of the nodes whose devices charge node-allocatable resources.

On other nodes the ledger does not restrict claims.
"""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import AllocationFault
from plimsoll.api.forms import device_forms, read_device_class
from plimsoll.api.resource import DeviceClass
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def charges_node(snapshot: Snapshot, row: int) -> bool:
    """Return whether any device of a node can charge the node's allocatable resources."""
    return snapshot.index(ChargingNodes).charges(row, snapshot)


class ChargingNodes(SnapshotIndex):
    """Index of the nodes that have devices with mappings, cached per state of a node's devices.

    A device class with a mapping annotation applies to all nodes.
    """

    kinds = (DeviceClass,)

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bool]] = {}
        self._classes: set[str] = set()

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, DeviceClass):
            self._classes.discard(old.metadata.name)
        if isinstance(new, DeviceClass) and read_device_class(new).charges:
            self._classes.add(new.metadata.name)

    def charges(self, row: int, snapshot: Snapshot) -> bool:
        if self._classes:
            return True
        devices = snapshot.inventory.devices_for(snapshot.node(row))
        known = self._known.get(row)
        if known is None or known[0] is not devices:
            any_mapped = isinstance(devices, AllocationFault) or any(
                device_forms(e.device) for e in devices.entries
            )
            known = self._known[row] = (devices, any_mapped)
        return known[1]
