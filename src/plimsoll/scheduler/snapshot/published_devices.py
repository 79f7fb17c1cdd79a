"""Devices of all ResourceSlices, for device searches and for charges.

Slices are counted per node and pool, so that a change identifies the node it affects. The inventory and the
device index are rebuilt on demand, reusing unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plimsoll.allocator import Features, Inventory
from plimsoll.api.resource import DeviceTaintRule, ResourceSlice
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.profile import AccountingProfile


class PublishedDevices:
    """Inventory and device index of all slices, and the nodes of their pools."""

    __slots__ = ("_devices", "_devices_outdated", "_inventory", "_inventory_outdated", "_nodes", "_profile")

    def __init__(self, features: Features, profile: AccountingProfile) -> None:
        self._profile = profile
        self._nodes: dict[tuple[str, str], dict[str, int]] = {}
        self._inventory = Inventory((), features)
        self._devices = DeviceIndex((), profile)
        #: Whether they must be rebuilt.
        self._inventory_outdated = self._devices_outdated = False

    def inventory(self, all: Callable[[type[Any]], Iterable[Any]]) -> Inventory:
        """Return the inventory for searches; `all` returns the objects of a kind."""
        if self._inventory_outdated:
            self._inventory = self._inventory.replace(all(ResourceSlice), tuple(all(DeviceTaintRule)))
            self._inventory_outdated = False
        return self._inventory

    def devices(self, all: Callable[[type[Any]], Iterable[Any]]) -> DeviceIndex:
        """Return the devices by name; `all` returns the objects of a kind."""
        if self._devices_outdated:
            self._devices = DeviceIndex(all(ResourceSlice), self._profile, self._devices)
            self._devices_outdated = False
        return self._devices

    def on_taint_rules_changed(self) -> None:
        """Handle changed taint rules."""
        self._inventory_outdated = True

    def on_slice(self, slice: ResourceSlice, added: bool) -> str:
        """Handle an added or removed slice; return the only node it affects, or "" if there may be
        several.
        """
        self._inventory_outdated = self._devices_outdated = True
        pool, node = (slice.spec.driver, slice.spec.pool.name), slice.spec.node_name or ""
        counts = self._nodes.setdefault(pool, {})
        counts[node] = counts.get(node, 0) + (1 if added else -1)
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._nodes[pool]
        return node if node == self.node_of(*pool) else ""

    def node_of(self, driver: str, pool: str) -> str:
        """Return the only node with slices of a pool, or "" if there is none or several."""
        counts = self._nodes.get((driver, pool))
        return next(iter(counts)) if counts is not None and len(counts) == 1 else ""
