"""`device_state`: the state of a device without regard to a request, for tools that count or list devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.allocator.devices.capacity import least_share
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.device_taints import find_untolerated_taint
from plimsoll.api.resource import DeviceCapacity

#: States of devices.
FREE, TAKEN, PARTLY, SHARED = "free", "taken", "partly", "shared"
BLOCKED, TAINTED = "blocked", "tainted"


def device_state(devices: NodeDevices, usage: DeviceUsage, number: int) -> str:
    """Return the state of a device by itself; its node may not take it (`tools/availability` counts that).

    free: available. taken: allocated exclusively, or its shares have used up a capacity. partly: shared, with
    capacity remaining. shared: in use by any number of claims, it has no capacity that could run out.
    blocked: the counters it needs are consumed by other partitions, those in use are not compatible with it,
    its node cannot use it, or pods may hold it through a device plugin. tainted: claims must tolerate its
    taint.
    """
    entry, flag = devices.entries[number], 1 << number
    if usage.withheld & flag:
        return BLOCKED
    if usage.taken & flag:
        return TAKEN
    if usage.shared & flag:
        capacity = entry.device.capacity
        if not fits_minimal_share(capacity, usage.free(number)):
            return TAKEN
        state = PARTLY if capacity else SHARED
    else:
        state = FREE
    if usage.blocked & flag:
        return BLOCKED
    # A shared device remains in use, however it is tainted.
    return TAINTED if state == FREE and _is_tainted(devices, number) else state


def _is_tainted(devices: NodeDevices, number: int) -> bool:
    taints = devices.entries[number].device.taints
    return devices.features.device_taints and find_untolerated_taint(taints, ()) is not None


def fits_minimal_share(capacity: Mapping[str, DeviceCapacity], free: Iterable[int]) -> bool:
    """Return whether one more minimal share fits, given the request policies."""
    return all(least_share(entry) <= left for entry, left in zip(capacity.values(), free, strict=True))
