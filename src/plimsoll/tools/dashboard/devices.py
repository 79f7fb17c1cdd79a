"""`DeviceCache`: devices and pools, recomputed only where something changed.

States are those of `plimsoll top devices`: a shared device is not taken while capacity remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plimsoll.api.identity import PoolId
from plimsoll.api.resource import ResourceSlice
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.changes import ChangeScope
from plimsoll.tools.top.devices import DeviceRow
from plimsoll.tools.top.physical import PhysicalDevice, PoolCounters, availability_on, count_devices
from plimsoll.tools.top.pools import PoolRow, inspect_pools

#: Driver -> node -> devices by state; "" for devices without a single node.
Counts = dict[str, dict[str, Counter[str]]]


@dataclass(frozen=True, slots=True)
class _Pool:
    row: PoolRow
    physical: list[PhysicalDevice]
    counts: Mapping[str, Counter[str]]  #: by node


class DeviceCache:
    """Rows of all pools and their devices."""

    def __init__(self) -> None:
        self._pools: dict[PoolId, _Pool] = {}
        self._stale: set[PoolId] = set()
        self._all_stale = True
        self._devices: list[DeviceRow] | None = None
        self._physical: list[PhysicalDevice] | None = None

    def invalidate(self, scope: ChangeScope) -> None:
        """Mark the affected pools for recomputation."""
        self._stale |= scope.pools
        # What devices have left depends on their node.
        nodes = {*scope.nodes, ""} if scope.nodes else set()
        self._stale |= {key for key, pool in self._pools.items() if pool.row.node in nodes}
        self._all_stale |= scope.all_pools

    def devices(self, cluster_state: ClusterState) -> list[DeviceRow]:
        """Return the rows of all devices by driver, pool and name."""
        self._refresh(cluster_state)
        if self._devices is None:
            parts = (part for pool in self._pools.values() for each in pool.physical for part in each.parts)
            self._devices = sorted(parts, key=lambda row: row.id)
        return self._devices

    def pools(self, cluster_state: ClusterState) -> list[PoolRow]:
        """Return the rows of all pools by driver and name."""
        self._refresh(cluster_state)
        return [self._pools[key].row for key in sorted(self._pools)]

    def physical(self, cluster_state: ClusterState) -> list[PhysicalDevice]:
        """Return all devices grouped by physical device, those in use first."""
        self._refresh(cluster_state)
        if self._physical is None:
            found = [each for pool in self._pools.values() for each in pool.physical]
            self._physical = sorted(found, key=PhysicalDevice.sort_key)
        return self._physical

    def counters(self, cluster_state: ClusterState) -> PoolCounters:
        """Return the counters of all pools."""
        self._refresh(cluster_state)
        return {key: pool.row.counters for key, pool in self._pools.items()}

    def counts(self, cluster_state: ClusterState) -> Counts:
        """Count the devices of each driver on each node."""
        self._refresh(cluster_state)
        found: Counts = {}
        for key in sorted(self._pools):
            nodes = found.setdefault(key.driver, {})
            for node, count in self._pools[key].counts.items():
                nodes.setdefault(node, Counter()).update(count)
        return found

    def _refresh(self, cluster_state: ClusterState) -> None:
        if not (self._all_stale or self._stale):
            return
        if self._all_stale:
            self._pools.clear()
        for key in self._stale:
            self._pools.pop(key, None)
        only = None if self._all_stale else self._stale
        slices_of = cluster_state.snapshot.inventory.slices_of
        slices = (view.slice for pool in self._stale for view in slices_of(pool))
        names = {""} if only is None else {each.spec.node_name or "" for each in slices}
        availability = availability_on(cluster_state, names)
        for row, physical in inspect_pools(cluster_state, availability, only):
            by_node: dict[str, list[PhysicalDevice]] = {}
            for device in physical:
                by_node.setdefault(device.parts[0].node, []).append(device)
            counts = {node: count_devices(found, availability) for node, found in by_node.items()}
            self._pools[PoolId(row.driver, row.pool)] = _Pool(row, physical, counts)
        self._stale, self._all_stale, self._devices, self._physical = set(), False, None, None


def newest_slices(
    cluster_state: ClusterState, *, node: str = "", driver: str = ""
) -> Iterator[ResourceSlice]:
    """Yield the slices of the newest generation of each pool, optionally of one driver or node."""
    newest: dict[tuple[str, str], int] = {}
    slices = [
        each
        for each in cluster_state.objects.all(ResourceSlice)
        if (not node or each.spec.node_name == node) and (not driver or each.spec.driver == driver)
    ]
    for each in slices:
        pool = each.spec.pool
        key = (each.spec.driver, pool.name)
        newest[key] = max(newest.get(key, 0), pool.generation)
    for each in slices:
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]:
            yield each
