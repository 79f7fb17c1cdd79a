"""Last check of a pod's devices against their current holders, before it is bound.

The snapshot never allocates a device twice. This check is for allocations that were written meanwhile by
another scheduler, an administrator, or a delayed request.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def find_device_conflict(snapshot: Snapshot, node: str, claims: Sequence[ResourceClaim]) -> str:
    """Return the device of these claims that is overallocated, or "" if there is none.

    A device is in conflict if two claims hold it exclusively, if one holds it exclusively and others hold
    shares, if its shares or the counters of its pool exceed the capacity, or if it is not compatible with
    other partitions in use. `node` is the node of the pod.
    """
    results = [
        result
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    ]
    for result in results:
        holding = snapshot.state.holding(DeviceId.of(result))
        if holding is not None and (holding.exclusive > 1 or (holding.exclusive and holding.shares)):
            return str(DeviceId.of(result))
    row = snapshot.row_of(node)
    if row is None or not results:
        return ""
    return _find_overdrawn(snapshot, row, results)


def _find_overdrawn(snapshot: Snapshot, row: int, results: Sequence[DeviceRequestAllocationResult]) -> str:
    """Return the first device whose capacity or counters are overdrawn, or that is not compatible."""
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault):
        return ""
    usage = DeviceUsage(devices, snapshot.state)
    for result in results:
        device = DeviceId.of(result)
        number = devices.index.get(device.pool_id, {}).get(device.device)
        if number is None:
            continue
        entry = devices.entries[number]
        if usage.consumed.get(number) and min(usage.free(number), default=0) < 0:
            return str(device)
        if any(usage.available[counter] < 0 for counter, _ in entry.draw):
            return str(device)
        if not all(usage.groups[number] for number, _ in entry.groups):
            return str(device)
    return ""
