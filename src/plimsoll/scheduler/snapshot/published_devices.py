"""What drivers have published: the devices of all slices, for searching and for pricing, and whose they are.

Owns `Published`. Slices are counted one by one, so that a change tells which node it concerns; the inventory
and the index of devices are made when somebody asks, from the last ones: what did not change is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll.allocator import Features, Inventory
from plimsoll.api.resource import DeviceTaintRule, ResourceSlice
from plimsoll.ledger.devices import DeviceIndex
from plimsoll.ledger.profile import Profile


class PublishedDevices:
    """Devices of all slices, and the nodes that pools name."""

    __slots__ = ("_devices", "_devices_outdated", "_inventory", "_inventory_outdated", "_nodes", "_profile")

    def __init__(self, features: Features, profile: Profile) -> None:
        self._profile = profile
        self._nodes: dict[tuple[str, str], Counter[str]] = {}
        self._inventory = Inventory((), features)
        self._devices = DeviceIndex((), profile)
        #: Whether they are to be made anew.
        self._inventory_outdated = self._devices_outdated = False

    def inventory(self, slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]) -> Inventory:
        """The devices as searches want them; these are all slices and taint rules there are."""
        if self._inventory_outdated:
            self._inventory = self._inventory.replace(tuple(slices), tuple(rules))
            self._inventory_outdated = False
        return self._inventory

    def devices(self, slices: Iterable[ResourceSlice]) -> DeviceIndex:
        """The devices by name."""
        if self._devices_outdated:
            self._devices = DeviceIndex(slices, self._profile, self._devices)
            self._devices_outdated = False
        return self._devices

    def on_taint_rules_changed(self) -> None:
        """There are other taint rules."""
        self._inventory_outdated = True

    def on_slice(self, slice: ResourceSlice, added: bool) -> str:
        """A slice was added or taken away; the only node it concerns, or "" if there may be others."""
        self._inventory_outdated = self._devices_outdated = True
        pool, node = (slice.spec.driver, slice.spec.pool.name), slice.spec.node_name or ""
        counts = self._nodes.setdefault(pool, Counter())
        counts[node] += 1 if added else -1
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._nodes[pool]
        return node if node == self.node_of(*pool) else ""

    def node_of(self, driver: str, pool: str) -> str:
        """The only node with slices of a pool, or "" if there is none or more than one."""
        counts = self._nodes.get((driver, pool))
        return next(iter(counts)) if counts is not None and len(counts) == 1 else ""
