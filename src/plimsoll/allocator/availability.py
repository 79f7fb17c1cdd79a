"""Availability of devices by the allocator's rules, for tools that count or list them.

`device_state` describes a device without regard to a request; `find_availability` returns which of the
devices that match a request can be allocated to it now, each alone, and what excludes the others. Both use
the same masks as the search, so that a device that is counted as available can be allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll.allocator.devices.capacity import Consumption, least_share
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.request_matching import RequestPlan, read_requests
from plimsoll.api.device_taints import find_untolerated_taint
from plimsoll.api.resource import DeviceCapacity, DeviceClass, ResourceClaim

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


@dataclass(frozen=True, slots=True)
class RequestAvailability:
    """Masks of the devices of a node that match a request; the first rule that excludes a device counts."""

    matching: int
    taken: int  #: allocated
    withheld: int  #: that pods may hold through a device plugin
    blocked: int  #: by counters that other partitions consume
    short: int  #: of the requested capacity
    tainted: int  #: with a taint that the request does not tolerate

    @property
    def available(self) -> int:
        """Devices that can be allocated to the request now, each alone."""
        return self.matching & ~(self.taken | self.withheld | self.blocked | self.short | self.tainted)


def find_availability(
    claim: ResourceClaim, classes: Mapping[str, DeviceClass], devices: NodeDevices, usage: DeviceUsage
) -> dict[str, RequestAvailability] | AllocationFault:
    """Return the availability for each request and subrequest of a claim on a node, by name
    (`request/subrequest`).
    """
    order = read_requests((claim,), classes, devices, usage)
    if isinstance(order, AllocationFault):
        return order
    return {plan.name: _availability(plan, devices, usage) for step in order.steps for plan in step.plans}


def _availability(plan: RequestPlan, devices: NodeDevices, usage: DeviceUsage) -> RequestAvailability:
    matching = left = plan.selection.mask
    taken = 0 if plan.admin else left & usage.taken
    left &= ~taken
    withheld, taken = taken & usage.withheld, taken & ~usage.withheld
    blocked = left & usage.blocked
    left &= ~blocked
    short = 0
    for number in bit_numbers(left) if plan.consumptions else ():
        verdict = plan.consumptions[devices.entries[number].capacity]
        if not isinstance(verdict, Consumption) or not usage.fits(number, verdict.nano):
            short |= 1 << number
    tainted = left & ~short & plan.tainted
    return RequestAvailability(matching, taken, withheld, blocked, short, tainted)
