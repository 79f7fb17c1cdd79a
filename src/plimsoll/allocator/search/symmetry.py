"""Equivalence classes of devices that no rule distinguishes.

Groups a node's devices by everything the search evaluates: the plans they are candidates of, attributes in
constraints, capacity, counters, compatibility groups, charges. If one device of a group fails, the others
fail as well, because devices of a group can be swapped in any solution.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.node_budget import RemainingBudget
from plimsoll.allocator.request_matching import RequestPlan


def group_devices(
    plans: Sequence[RequestPlan],
    tables: Sequence[AttributeTable],
    devices: NodeDevices,
    usage: DeviceUsage,
    remaining_budget: RemainingBudget | None,
) -> list[int]:
    """Return the mask of the group of each device; a device that is no candidate is its own group."""
    groups: dict[tuple[object, ...], int] = {}
    keys: list[tuple[object, ...] | None] = [None] * len(devices.entries)
    wanted = 0
    for plan in plans:
        wanted |= plan.candidates
    for number in bit_numbers(wanted):
        entry = devices.entries[number]
        key = (
            tuple((plan.candidates >> number & 1, plan.tainted >> number & 1) for plan in plans),
            tuple(table.sets[number] for table in tables),
            entry.shareable,
            entry.capacity,
            usage.free(number) if entry.shareable or number in usage.consumed else None,
            entry.draw,
            entry.groups,
            usage.shared >> number & 1,
            usage.taken >> number & 1,
            None
            if remaining_budget is None
            else tuple(
                remaining_budget.charges(plan, number) if plan.candidates >> number & 1 else None
                for plan in plans
            ),
        )
        keys[number] = key
        groups[key] = groups.get(key, 0) | 1 << number
    return [1 << number if key is None else groups[key] for number, key in enumerate(keys)]
