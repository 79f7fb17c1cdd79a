"""Devices that no rule can tell apart.

Owns the grouping of a node's devices by everything the search looks at: which plans may get them, the values
of the attributes in constraints, capacity, counters, charges. If one device of a group fails, the others fail
alike, because a solution with one is a solution with the other, swapped.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.devices.node_devices import NodeDevices, bits_of
from plimsoll.allocator.devices.usage import Usage
from plimsoll.allocator.node_budget import Purse
from plimsoll.allocator.request_matching import Plan


def group_devices(
    plans: Sequence[Plan],
    tables: Sequence[AttributeTable],
    devices: NodeDevices,
    usage: Usage,
    purse: Purse | None,
) -> list[int]:
    """Device number -> mask of its group; devices that no plan can get are each alone."""
    groups: dict[tuple[object, ...], int] = {}
    keys: list[tuple[object, ...] | None] = [None] * len(devices.entries)
    wanted = 0
    for plan in plans:
        wanted |= plan.candidates
    for number in bits_of(wanted):
        entry = devices.entries[number]
        key = (
            tuple((plan.candidates >> number & 1, plan.tainted >> number & 1) for plan in plans),
            tuple(table.sets[number] for table in tables),
            entry.shareable,
            entry.capacity,
            usage.free(number) if entry.shareable or number in usage.consumed else None,
            entry.draw,
            usage.shared >> number & 1,
            usage.taken >> number & 1,
            None
            if purse is None
            else tuple(
                purse.charges(plan, number) if plan.candidates >> number & 1 else None for plan in plans
            ),
        )
        keys[number] = key
        groups[key] = groups.get(key, 0) | 1 << number
    return [1 << number if key is None else groups[key] for number, key in enumerate(keys)]
