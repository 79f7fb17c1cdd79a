"""Usage of a node's devices by the allocations of other claims.

`DeviceUsage` is the allocation state of a cluster as masks and numbers over the devices of one node, computed
once per search (docs/spec/allocator.md, "Consumable capacity" and "Shared counters"): counters are consumed
once per device regardless of the number of shares, also by devices of the pool on other nodes, and so are
compatibility groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import gt

from plimsoll.allocator.devices.capacity import capacity_value
from plimsoll.allocator.devices.groups import ANY_GROUPS, are_compatible
from plimsoll.allocator.devices.node_devices import MAX_CACHED, CounterPool, NodeDevices, bit_numbers
from plimsoll.allocator.state import AllocationState, DeviceAllocations


class DeviceUsage:
    """Usage of the devices of one node."""

    __slots__ = (
        "_free",
        "_plugin_resources",
        "available",
        "blocked",
        "consumed",
        "devices",
        "groups",
        "shared",
        "taken",
        "withheld",
    )

    def __init__(
        self,
        devices: NodeDevices,
        state: AllocationState,
        plugin_resources: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """Read the usage. `plugin_resources` are the nodes and drivers whose devices may be held through a
        device plugin, each with the resource of the plugin.
        """
        self.devices = devices
        self._plugin_resources = plugin_resources or {}
        self.withheld = 0  #: mask of the devices that are not allocated, and taken for that reason alone
        self._free: dict[int, tuple[int, ...]] = {}
        self.taken = 0  #: mask of exclusively allocated devices
        self.shared = 0  #: mask of devices with shares: their counters are consumed already
        self.consumed: dict[int, Mapping[str, int]] = {}  #: device -> capacity consumed by its shares
        self.available = list(devices.base_counters)  #: counter -> remaining amount; may be negative
        #: Mask of devices that need more counters or are not compatible with those in use, or that the node
        #: or the feature gates do not support.
        self.blocked = devices.unsupported
        self.groups = [ANY_GROUPS] * len(devices.group_sets)  #: groups that the devices in use have in common
        for pool, numbers in devices.index.items():
            holdings = state.pool(pool)
            # Iterate over the shorter: usually few devices of a pool are allocated, or few are on this node.
            if len(holdings) < len(numbers):
                for name, holding in holdings.items():
                    number = numbers.get(name)
                    if number is not None:
                        self._record_usage(number, holding)
            else:
                for name, number in numbers.items():
                    held = holdings.get(name)
                    if held is not None:
                        self._record_usage(number, held)
        if devices.counting:
            self._draw_counters(devices, state)
        for number in range(len(devices.entries)) if self._plugin_resources else ():
            if self.plugin_resource(number):
                self.withheld |= 1 << number & ~self.taken
        self.taken |= self.withheld

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for equal devices with equal usage."""
        consumed = tuple((number, tuple(sorted(used.items()))) for number, used in self.consumed.items())
        return (self.taken, self.withheld, self.shared, consumed, tuple(self.available))

    def plugin_resource(self, number: int) -> str:
        """Return the resource of a device plugin through which pods may hold a device, or ""."""
        entry = self.devices.entries[number]
        node = entry.view.slice.spec.node_name
        return self._plugin_resources.get((node, entry.id.driver), "") if node else ""

    def fits(self, number: int, wanted: tuple[int, ...]) -> bool:
        """Return whether an amount per capacity fits next to the shares of other claims."""
        return not any(map(gt, wanted, self.free(number)))

    def free(self, number: int) -> tuple[int, ...]:
        """Return the free amount of each capacity of a device."""
        known = self._free.get(number)
        if known is None:
            used = self.consumed.get(number, {})
            capacity = self.devices.entries[number].device.capacity
            known = tuple(
                [capacity_value(entry).nano - used.get(name, 0) for name, entry in capacity.items()]
            )
            self._free[number] = known
        return known

    def _record_usage(self, number: int, holding: DeviceAllocations) -> None:
        flag = 1 << number
        shareable = self.devices.shareable & flag
        if holding.exclusive:
            self.taken |= flag
        if holding.shares or holding.recorded:
            if shareable:
                self.shared |= flag
            elif holding.shares:
                # DIFF: a device that stopped being shareable while shares of it are allocated is not
                # allocated until they are released (KEP-5075, "Handles Device Updates"); Kubernetes allocates
                # it.
                # Test: test_a_device_made_dedicated_waits_for_its_shares
                self.taken |= flag
            if holding.recorded:
                self.consumed[number] = holding.consumed

    def _draw_counters(self, devices: NodeDevices, state: AllocationState) -> None:
        if not devices.features.partitionable_devices:
            self.blocked |= devices.counting
            return
        available = self.available
        for pool in devices.counter_pools:
            for name in state.pool(pool.pool):
                for counter, amount in pool.consumers.get(name, ()):
                    available[counter] -= amount
                # DIFF: if devices in use have no group in common, nothing is compatible with them; Kubernetes
                # goes by the first of them, if only some have groups.
                # Test: test_nothing_is_compatible_with_incompatible_devices
                for number, mask in pool.groups.get(name, ()):
                    self.groups[number] &= mask
            left = available[pool.first : pool.first + len(pool.names)]
            key = (pool.first, *left, *self.groups)
            blocked = devices.blocked_masks.get(key)
            if blocked is None:
                blocked = _find_blocked(devices, pool, available, self.groups)
                if len(devices.blocked_masks) >= MAX_CACHED:
                    devices.blocked_masks.clear()
                devices.blocked_masks[key] = blocked
            self.blocked |= blocked & ~self.shared


def _find_blocked(devices: NodeDevices, pool: CounterPool, available: list[int], groups: list[int]) -> int:
    """Return the mask of the devices of a pool that need more counters or are not compatible with groups."""
    left = available[pool.first : pool.first + len(pool.names)]
    if left and min(left) < 0:
        return pool.mask  # one negative counter blocks every device of the pool that consumes any
    blocked = 0
    for number in bit_numbers(pool.mask):
        entry = devices.entries[number]
        if not are_compatible(entry.groups, groups) or any(
            amount > available[counter] for counter, amount in entry.draw
        ):
            blocked |= 1 << number
    return blocked
