"""Compatibility groups of partitions (KEP-5963, gate DRADeviceCompatibilityGroups).

Devices that consume counters of one counter set can be allocated at the same time only if all of them have a
group in common. Groups are bits, and a device without groups has a bit of its own, because such devices are
compatible with each other only. So the state of a counter set is the intersection of the masks of its
devices, and a device is compatible if it leaves the intersection non-empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from plimsoll.allocator.devices.pools import GatheredPool
from plimsoll.api.resource import Device

#: (number of a counter set, mask of groups) pairs of a device.
GroupUse: TypeAlias = "tuple[tuple[int, int], ...]"
#: Bit of the devices that declare no groups.
NO_GROUPS = 1
#: State of a counter set without devices in use: every group is possible.
ANY_GROUPS = -1


class GroupSet(NamedTuple):
    """A counter set in which some device declares groups."""

    name: str
    groups: tuple[str, ...]  #: the group of bit i + 1

    def names(self, mask: int) -> tuple[str, ...]:
        """Return the groups of a mask; none for devices without groups."""
        return tuple(name for bit, name in enumerate(self.groups, 1) if mask >> bit & 1)


def number_groups(pool: GatheredPool, known: list[GroupSet]) -> dict[str, tuple[int, dict[str, int]]]:
    """Number the counter sets of a pool that have groups, and the bits of those; `known` is extended."""
    found: dict[str, dict[str, int]] = {}
    for view in (*pool.slices, *pool.elsewhere):
        for device in view.devices if view.has_groups else ():
            for consumption in device.consumes_counters:
                bits = found.setdefault(consumption.counter_set, {})
                for group in consumption.compatibility_groups:
                    bits.setdefault(group, NO_GROUPS << (1 + len(bits)))
    numbered: dict[str, tuple[int, dict[str, int]]] = {}
    for name, bits in found.items():
        numbered[name] = (len(known), bits)
        known.append(GroupSet(name, tuple(bits)))
    return numbered


def read_groups(device: Device, sets: Mapping[str, tuple[int, Mapping[str, int]]]) -> GroupUse:
    """Return the groups of a device, by number of the counter set."""
    found: list[tuple[int, int]] = []
    for consumption in device.consumes_counters:
        known = sets.get(consumption.counter_set)
        if known is not None:
            number, bits = known
            mask = sum(bits[group] for group in set(consumption.compatibility_groups))
            found.append((number, mask or NO_GROUPS))
    return tuple(found)


def are_compatible(groups: GroupUse, states: Mapping[int, int] | list[int]) -> bool:
    """Return whether a device is compatible with the devices in use of each of its counter sets."""
    return all(states[number] & mask for number, mask in groups)
