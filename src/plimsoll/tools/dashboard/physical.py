"""`group_devices`: devices grouped by the physical device they are parts of. Pure.

Partitions that consume the same counter set are one physical device, and so are the CPUs of a pool; every
other device is one of its own. Devices in use come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.allocator.availability import FREE, PARTLY, SHARED, TAKEN
from plimsoll.api.identity import PoolId
from plimsoll.ledger.units import CPU
from plimsoll.tools.cluster_state.node_resources import KNOWN_DRIVERS
from plimsoll.tools.top.devices import DeviceRow
from plimsoll.tools.top.pools import Stock

#: Pool -> (counter set, counter) -> total and remaining amount.
PoolCounters = Mapping[PoolId, Mapping[tuple[str, str], Stock]]
PARTITIONS, CPUS, WHOLE = "partitions", "cpus", "whole"
_ORDER = {TAKEN: 0, PARTLY: 1, SHARED: 1, FREE: 3}


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A device and its partitions; the only part is the device itself if it has none."""

    name: str
    kind: str
    parts: tuple[DeviceRow, ...]
    counters: Mapping[tuple[str, str], Stock]  #: of its counter set

    @property
    def state(self) -> str:
        """State of the device as a whole: taken as soon as nothing is free."""
        states = {part.state for part in self.parts}
        if len(states) == 1:
            return self.parts[0].state
        if states & {TAKEN, PARTLY, SHARED}:
            return PARTLY if states & {FREE, PARTLY, SHARED} else TAKEN
        return FREE if FREE in states else self.parts[0].state

    @property
    def is_held(self) -> bool:
        return any(part.holders for part in self.parts)

    def sort_key(self) -> tuple[object, ...]:
        first = self.parts[0]
        return not self.is_held, _ORDER.get(self.state, 2), first.driver, first.pool, _natural(self.name)

    def share(self, part: DeviceRow) -> int:
        """Return the largest share of the counters that a part consumes, in permille; 1000 without any."""
        found = [
            amount.nano * 1000 // self.counters[group, name][0].nano
            for group, name, amount in part.counters
            if (group, name) in self.counters and self.counters[group, name][0].nano > 0
        ]
        if self.kind == CPUS:
            return 1000 // len(self.parts)
        return min(1000, max(found, default=1000))

    def as_json(self) -> dict[str, Any]:
        first = self.parts[0]
        states = Counter(part.state for part in self.parts)
        return {
            "driver": first.driver,
            "pool": first.pool,
            "node": first.node or None,
            "device": self.name,
            "kind": self.kind,
            "state": self.state,
            "states": dict(sorted(states.items())),
            "counters": [
                {"set": group, "counter": name, "whole": str(total), "left": str(left)}
                for (group, name), (total, left) in self.counters.items()
            ],
            "parts": [{**part.as_json(), "share": self.share(part)} for part in self.parts],
        }


def group_devices(rows: Iterable[DeviceRow], counters: PoolCounters) -> list[PhysicalDevice]:
    """Return the physical devices, those in use first."""
    groups: dict[tuple[str, str, str, str], list[DeviceRow]] = {}
    for row in rows:
        groups.setdefault((row.driver, row.pool, *_part_of(row)), []).append(row)
    found = []
    for (driver, pool, kind, name), parts in groups.items():
        known = counters.get(PoolId(driver, pool), {}) if kind == PARTITIONS else {}
        own = {key: stock for key, stock in known.items() if key[0] == name}
        ordered = tuple(sorted(parts, key=lambda part: (not part.holders, _natural(part.device))))
        label = f"{len(parts)} CPUs" if kind == CPUS else name
        found.append(PhysicalDevice(label, kind, ordered, own))
    return sorted(found, key=PhysicalDevice.sort_key)


def _part_of(row: DeviceRow) -> tuple[str, str]:
    """Return kind and name of the physical device of a row."""
    if row.counters:
        return PARTITIONS, row.counters[0][0]
    if KNOWN_DRIVERS.get(row.driver) == CPU and not row.shareable and not row.capacity:
        return CPUS, "CPUs"
    return WHOLE, row.device


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders gpu-2 before gpu-10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return tuple((int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts)
