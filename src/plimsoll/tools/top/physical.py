"""`group_devices`: devices grouped by the physical device they are parts of.

Devices of a pool are one physical device if they consume the same counter set, have the same UUID or parent
UUID, or the same PCI address; the CPUs of a pool are one too, and every other device is one of its own.
Devices in use come first. What still fits is what claims can get (`tools/availability`): the partitions of
one type that can be allocated together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any

from plimsoll.allocator.availability import BLOCKED, FREE, PARTLY, SHARED, TAKEN
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.units import CPU
from plimsoll.tools.availability import DeviceAvailability
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.node_resources import KNOWN_DRIVERS
from plimsoll.tools.top.devices import DeviceRow

#: Total and remaining amount.
Stock = tuple[Quantity, Quantity]
#: Pool -> (counter set, counter) -> total and remaining amount.
PoolCounters = Mapping[PoolId, Mapping[tuple[str, str], Stock]]
PARTITIONS, CPUS, WHOLE = "partitions", "cpus", "whole"
#: Type of a partition that has no name.
PARTITION = "partition"
_ORDER = {TAKEN: 0, PARTLY: 1, SHARED: 1, FREE: 3}


#: States by which physical devices are counted.
COUNTED = ("all", FREE, PARTLY, TAKEN, "unavailable")


def count_states(devices: Sequence[PhysicalDevice], availability: DeviceAvailability) -> Counter[str]:
    """Count physical devices by state: as free as many as claims can get together, as a whole if they are
    published so; the others are blocked. What is left of shareable devices limits their capacity instead.
    """
    states = sum((each.counted_states for each in devices), Counter[str]())
    free: list[DeviceId] = []
    others = 0
    for each in devices:
        if each.kind == CPUS:
            free += (part.id for part in each.parts if part.state == FREE)
        elif each.state == FREE and each.whole is not None and not each.whole.shareable:
            free.append(each.whole.id)
        else:
            others += each.state == FREE
    excess = states[FREE] - others - availability.count(free)
    return states + Counter({BLOCKED: excess}) - Counter({FREE: excess})


def count_devices(devices: Sequence[PhysicalDevice], availability: DeviceAvailability) -> Counter[str]:
    """Return the number of physical devices by `COUNTED`."""
    states = count_states(devices, availability)
    partly = states[PARTLY] + states[SHARED]
    rest = states.total() - states[FREE] - partly - states[TAKEN]
    counts = (states.total(), states[FREE], partly, states[TAKEN], rest)
    return Counter(dict(zip(COUNTED, counts, strict=True)))


def counters_json(counters: Mapping[tuple[str, str], Stock]) -> list[dict[str, str]]:
    return [
        {"set": group, "counter": name, "whole": str(total), "left": str(left)}
        for (group, name), (total, left) in counters.items()
    ]


@dataclass(frozen=True)
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
        if self.whole is not None:
            return self.whole.state
        return FREE if FREE in states else self.parts[0].state

    @property
    def counted_states(self) -> Counter[str]:
        """States as devices are counted: partitions exclude each other, so that only the whole counts; CPUs
        count one by one.
        """
        return Counter(part.state for part in self.parts) if self.kind == CPUS else Counter([self.state])

    @property
    def is_held(self) -> bool:
        return any(part.holders for part in self.parts)

    @cached_property
    def whole(self) -> DeviceRow | None:
        """The part that is the entire device; None if only partitions are published."""
        if len(self.parts) == 1:
            return None if self.kind == PARTITIONS and self.parts[0].partition else self.parts[0]
        if self.kind != PARTITIONS:
            return None
        for part in self.parts:
            if all(other is part or other.device.startswith(f"{part.device}-") for other in self.parts):
                return part
        everything = {key: stock[0].nano for key, stock in self.counters.items()}
        found = [part for part in self.parts if everything and _draws(part) == everything]
        return found[0] if len(found) == 1 else None

    @property
    def product(self) -> str:
        return next((part.product for part in self.parts if part.product), "")

    @property
    def memory(self) -> Quantity | None:
        """Memory of the entire device, as far as it is published."""
        return None if self.whole is None else self.whole.memory

    def type_of(self, part: DeviceRow) -> str:
        """Return the type of a partition; "" for the entire device."""
        return "" if part is self.whole else part.partition or PARTITION

    def count_fitting(self, availability: DeviceAvailability) -> dict[str, int]:
        """Return how many partitions of each type can still be allocated if no other is; "" is the entire
        device.
        """
        candidates: dict[str, list[DeviceId]] = {}
        for part in self.parts:
            if part.is_available:
                candidates.setdefault(self.type_of(part), []).append(part.id)
        found = {name: availability.count(candidates[name]) for name in sorted(candidates)}
        return {name: number for name, number in found.items() if number}

    def sort_key(self) -> tuple[object, ...]:
        first = self.parts[0]
        order = not self.is_held, _ORDER.get(self.state, 2), not is_accelerator(self)
        return *order, first.driver, first.pool, natural_key(self.name)

    def share(self, part: DeviceRow) -> int:
        """Return the largest share of the counters that a part consumes, in permille; 1000 without any."""
        found = [
            amount.nano * 1000 // self.counters[group, name][0].nano
            for group, name, amount in part.counters
            if (group, name) in self.counters and self.counters[group, name][0].nano > 0
        ]
        if self.kind == CPUS or (not found and len(self.parts) > 1):
            return 1000 // len(self.parts)
        return min(1000, max(found, default=1000))

    def as_json(self, availability: DeviceAvailability) -> dict[str, Any]:
        first = self.parts[0]
        states = Counter(part.state for part in self.parts)
        return {
            "driver": first.driver,
            "pool": first.pool,
            "node": first.node or None,
            "device": self.name,
            "kind": self.kind,
            "product": self.product or None,
            "memory": None if self.memory is None else str(self.memory),
            "state": self.state,
            "states": dict(sorted(states.items())),
            "fits": [
                {"type": name or WHOLE, "devices": number}
                for name, number in self.count_fitting(availability).items()
            ],
            "counters": counters_json(self.counters),
            "parts": [{**part.as_json(), "share": self.share(part)} for part in self.parts],
        }


def availability_of(cluster_state: ClusterState, devices: Iterable[PhysicalDevice]) -> DeviceAvailability:
    """Return the availability on the nodes of some devices; on all nodes if several can use one of them."""
    return availability_on(cluster_state, {part.node for each in devices for part in each.parts})


def availability_on(cluster_state: ClusterState, names: Set[str]) -> DeviceAvailability:
    """Return the availability on some nodes; on all nodes if "" is among them."""
    snapshot = cluster_state.snapshot
    rows = sorted(row for row in map(snapshot.row_of, names) if row is not None)
    return DeviceAvailability(snapshot, None if "" in names else rows)


def is_accelerator(device: PhysicalDevice) -> bool:
    """Return whether a device is one of a GPU driver, or has memory, partitions, or a product name and no
    shares.
    """
    first = device.parts[0]
    if first.driver in KNOWN_DRIVERS:
        return False
    if "gpu" in re.split("[.-]", first.driver):
        return True
    if len(device.parts) > 1 or any(part.memory is not None for part in device.parts):
        return True
    return bool(device.product) and not first.shareable


def group_devices(rows: Iterable[DeviceRow], counters: PoolCounters) -> list[PhysicalDevice]:
    """Return the physical devices, those in use first."""
    groups: list[list[DeviceRow]] = []
    group_of: dict[tuple[str, ...], list[DeviceRow]] = {}
    for row in rows:
        keys = [(row.driver, row.pool, row.node, *key) for key in _keys(row)]
        known = {id(group_of[key]): group_of[key] for key in keys if key in group_of}
        merged = next(iter(known.values()), None)
        if merged is None:
            merged = []
            groups.append(merged)
        for other in list(known.values())[1:]:
            merged += other
            groups = [group for group in groups if group is not other]
            group_of = {key: merged if group is other else group for key, group in group_of.items()}
        merged.append(row)
        group_of.update(dict.fromkeys(keys, merged))
    found = [_physical(group, counters) for group in groups]
    return sorted(found, key=PhysicalDevice.sort_key)


def _physical(rows: list[DeviceRow], counters: PoolCounters) -> PhysicalDevice:
    parts = tuple(sorted(rows, key=lambda part: (not part.holders, natural_key(part.device))))
    first = parts[0]
    if _is_cpu(first):
        return PhysicalDevice(f"{len(parts)} CPUs", CPUS, parts, {})
    sets = {part.draws[0].counter_set for part in parts if part.draws}
    known = counters.get(PoolId(first.driver, first.pool), {}) if sets else {}
    own = {key: stock for key, stock in known.items() if key[0] in sets}
    if len(parts) == 1 and not sets and not first.partition:
        return PhysicalDevice(first.device, WHOLE, parts, own)
    return PhysicalDevice(_name(parts), PARTITIONS, parts, own)


def _keys(row: DeviceRow) -> list[tuple[str, str]]:
    """Return what identifies the physical device of a row."""
    if _is_cpu(row):
        return [(CPUS, "")]
    counter_set = [("counters", row.draws[0].counter_set)] if row.draws else []
    return [*counter_set, *(("hardware", id) for id in row.hardware)] or [("device", row.device)]


def _is_cpu(row: DeviceRow) -> bool:
    return KNOWN_DRIVERS.get(row.driver) == CPU and not row.shareable and not row.capacity


def _name(parts: Sequence[DeviceRow]) -> str:
    """Return what the names of the parts have in common, up to the type of a partition: gpu-6."""
    if len(parts) == 1 and not parts[0].partition:
        return parts[0].device
    common = parts[0].device.split("-")
    for part in parts:
        words = part.device.split("-")
        common = [
            word for word, _ in takewhile(lambda pair: pair[0] == pair[1], zip(common, words, strict=False))
        ]
    types = {re.sub("[^a-z0-9]", "", part.partition.lower()) for part in parts if part.partition}
    words = common[: next((at for at, word in enumerate(common) if word in types), len(common))]
    while len(words) > 1 and not re.search("[0-9]", words[-1]):
        words.pop()
    return "-".join(words) or (parts[0].draws[0].counter_set if parts[0].draws else parts[0].device)


def _draws(part: DeviceRow) -> dict[tuple[str, str], int]:
    return {(group, name): amount.nano for group, name, amount in part.counters}


@lru_cache(maxsize=8192)
def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders gpu-2 before gpu-10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return tuple((int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts)
