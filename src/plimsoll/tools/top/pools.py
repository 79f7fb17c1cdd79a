"""Pool rows: physical devices by state, and what is left of counters and shared capacity.

Free, used and unavailable devices add up to all devices. Partitions exclude each other, so that they are not
counted, but the devices that they are parts of; a free one is entirely unused.
Counters are the allocator's own numbers, consumed once per device however many claims share it. Remaining
shares are summed over the shareable devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.identity import PoolId
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.tools.availability import DeviceAvailability
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.top.devices import STALE, UNAVAILABLE, DeviceRow, read_pools
from plimsoll.tools.top.physical import (
    PhysicalDevice,
    Stock,
    count_devices,
    counters_json,
    group_devices,
    natural_key,
)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """State of one pool."""

    driver: str
    pool: str
    node: str  #: its only node; "" if it is for several
    devices: Mapping[str, int]  #: physical ones by `COUNTED`
    published: int = 0  #: devices, each partition counted
    partitions: int = 0  #: devices that consume counters
    counters: Mapping[tuple[str, str], Stock] = field(default_factory=dict)  #: (set, counter)
    shares: Mapping[str, Stock] = field(default_factory=dict)  #: capacity of devices that can be shared
    generation: int = 0
    slices: int = 0  #: of this generation
    expected: int = 0  #: expected number of slices of the generation
    standing: str = PoolStatus.COMPLETE.value  #: complete, incomplete, invalid, or `missing`: not published
    why: str = ""

    @property
    def complete(self) -> bool:
        return self.standing == PoolStatus.COMPLETE.value

    @property
    def counter_sets(self) -> dict[str, int]:
        """Counter sets by use: of most GPUs there is one each."""
        sets: dict[str, list[Stock]] = {}
        for (group, _), stock in self.counters.items():
            sets.setdefault(group, []).append(stock)
        unused = sum(all(left == total for total, left in each) for each in sets.values())
        used_up = sum(
            all(left <= ZERO < total for total, left in each if total > ZERO) for each in sets.values()
        )
        return {"unused": unused, "partlyUsed": len(sets) - unused - used_up, "usedUp": used_up}

    def as_json(self) -> dict[str, Any]:
        return {
            "driver": self.driver,
            "pool": self.pool,
            "node": self.node or None,
            "devices": dict(self.devices),
            "published": self.published,
            "partitions": self.partitions,
            "counters": counters_json(self.counters),
            "counterSets": self.counter_sets,
            "shares": {
                name: {"whole": str(total), "left": str(left)} for name, (total, left) in self.shares.items()
            },
            "generation": self.generation,
            "slices": self.slices,
            "expectedSlices": self.expected,
            "standing": self.standing,
            "why": self.why or None,
        }


def pool_rows(cluster_state: ClusterState) -> list[PoolRow]:
    """Return the rows of all pools by driver and name, including pools that are only referenced by claims."""
    pools = inspect_pools(cluster_state, DeviceAvailability(cluster_state.snapshot))
    return sorted((row for row, _ in pools), key=lambda row: (row.driver, row.pool))


def physical_devices(cluster_state: ClusterState, availability: DeviceAvailability) -> list[PhysicalDevice]:
    """Return all devices grouped by physical device, by node and name."""
    pools = inspect_pools(cluster_state, availability)
    return sorted((each for _, found in pools for each in found), key=_order)


def _order(device: PhysicalDevice) -> tuple[object, ...]:
    first = device.parts[0]
    return natural_key(first.node), first.driver, first.pool, natural_key(device.name)


def inspect_pools(
    cluster_state: ClusterState, availability: DeviceAvailability, only: Set[PoolId] | None = None
) -> Iterator[tuple[PoolRow, list[PhysicalDevice]]]:
    """Yield each pool, or those in `only`, with its devices."""
    snapshot = cluster_state.snapshot
    for pool in read_pools(snapshot, availability, only):
        if pool.devices is None:
            physical = group_devices(pool.rows, {})
            counts = count_devices(physical, availability), len(pool.rows)
            yield PoolRow(*pool.id, "", *counts, standing="missing", why="not published"), physical
            continue
        counters = _counters(pool.devices, read_usage(snapshot, pool.devices), pool.slices)
        physical = group_devices(pool.rows, {pool.id: counters})
        count = count_devices(physical, availability)
        yield _row(pool.devices, pool.slices, pool.rows, counters, count), physical


def _row(
    devices: NodeDevices,
    views: Iterable[SliceView],
    found: list[DeviceRow],
    counters: Mapping[tuple[str, str], Stock],
    count: Mapping[str, int],
) -> PoolRow:
    (pool,) = devices.pools
    newest = max(view.slice.spec.pool.generation for view in views)
    specs = [view.slice.spec for view in views if view.slice.spec.pool.generation == newest]
    nodes = {spec.node_name or "" for spec in specs}
    return PoolRow(
        *pool.id,
        nodes.pop() if len(nodes) == 1 else "",
        count,
        len(found),
        sum(bool(row.draws) for row in found),
        counters,
        _shares(found),
        newest,
        len(specs),
        specs[0].pool.resource_slice_count,
        pool.status.value,
        pool.reason,
    )


def _counters(
    devices: NodeDevices, usage: DeviceUsage, views: Iterable[SliceView]
) -> dict[tuple[str, str], Stock]:
    formats = {
        (group.name, name): counter.value.format
        for view in views
        for group in view.slice.spec.shared_counters or ()
        for name, counter in group.counters.items()
        if counter.value is not None
    }
    found = {}
    for pool in devices.counter_pools:
        for number, key in enumerate(pool.names, pool.first):
            form = formats.get(key, Format.DECIMAL_SI)
            total, left = devices.base_counters[number], usage.available[number]
            found[key] = (Quantity(total, form), Quantity(left, form))
    return dict(sorted(found.items()))


def _shares(found: Iterable[DeviceRow]) -> dict[str, Stock]:
    """Sum total and remaining capacity of the shareable devices; unavailable devices have none left."""
    total: dict[str, Stock] = {}
    for row in found:
        if not row.shareable or row.state == STALE:
            continue
        for name, (capacity, used) in row.capacity.items():
            left = row.limits[name][0] if name in row.limits else capacity - used
            if row.state in UNAVAILABLE:
                left = Quantity(0, capacity.format)
            if name in total:
                before = total[name]
                total[name] = (before[0] + capacity, before[1] + left)
            else:
                total[name] = (capacity, left)
    return dict(sorted(total.items()))
