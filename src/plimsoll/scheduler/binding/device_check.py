"""Check of a pod's devices against their current holders, the last one before the pod is bound.

The snapshot gives no device twice. This check is for allocations that somebody else wrote meanwhile: another
scheduler, an administrator, a write that was delayed by the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def find_device_conflict(snapshot: Snapshot, node: str, claims: Sequence[ResourceClaim]) -> str:
    """Return the device of these claims that is held beyond what it has, or "" if there is none.

    A device is in conflict if two claims hold the whole of it, if one holds the whole and others shares, or
    if its shares or the counters of its pool add up to more than there is. `node` is where the pod goes.
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
    """Return the first device whose capacity or counters are overdrawn."""
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault):
        return ""
    usage = DeviceUsage(devices, snapshot.state)
    for result in results:
        device = DeviceId.of(result)
        number = devices.index.get(device.pool_id, {}).get(device.device)
        if number is None:
            continue
        draw = devices.entries[number].draw
        if usage.consumed.get(number) and min(usage.free(number), default=0) < 0:
            return str(device)
        if any(usage.available[counter] < 0 for counter, _ in draw):
            return str(device)
    return ""
