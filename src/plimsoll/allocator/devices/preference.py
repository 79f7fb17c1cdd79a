"""Order of preference among devices that satisfy a request.

The default is upstream's: the first fit in the order of pools, slices and devices. Least waste prefers the
device with the least left over: a small device over a large one, one already shared over an unused one, a
small partition over one that consumes more counters. It changes the order of the search, never whether there
is a solution.
"""

from __future__ import annotations

from enum import Enum

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage


class Preference(Enum):
    """Order in which devices are tried."""

    FIRST = "first"
    LEAST_WASTE = "least-waste"


def least_waste_first(devices: NodeDevices, usage: DeviceUsage) -> NodeDevices:
    """Return the devices sorted by remaining size, smallest first."""
    ranks = _size_ranks(devices, usage)
    order = sorted(range(len(devices.entries)), key=lambda number: (ranks[number], number))
    return devices.reordered(order)


def _size_ranks(devices: NodeDevices, usage: DeviceUsage) -> list[tuple[int, int]]:
    """Rank each device by remaining size; ranks, because different resources cannot be added."""
    left: list[dict[tuple[str, ...], int]] = []
    for number, entry in enumerate(devices.entries):
        sizes: dict[tuple[str, ...], int] = {}
        for name, amount in zip(entry.device.capacity, usage.free(number), strict=True):
            sizes["capacity", _qualified(name, entry.id.driver)] = amount
        for consumption in entry.device.consumes_counters:
            for name, counter in consumption.counters.items():
                counted = ("counter", entry.id.driver, name)
                sizes[counted] = sizes.get(counted, 0) + (counter.value.nano if counter.value else 0)
        left.append(sizes)
    values: dict[tuple[str, ...], set[int]] = {}
    for sizes in left:
        for key, amount in sizes.items():
            values.setdefault(key, set()).add(amount)
    ranking = {
        key: {amount: rank for rank, amount in enumerate(sorted(found))} for key, found in values.items()
    }
    # A shared device first, because an unused one can still be allocated exclusively.
    return [
        (sum(ranking[key][amount] for key, amount in sizes.items()), 1 - (usage.shared >> number & 1))
        for number, sizes in enumerate(left)
    ]


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"
