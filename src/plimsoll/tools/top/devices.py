"""Device rows: state, holders and remaining capacity of every device.

States come from the allocator's own inventory and usage, and from what claims can get of their nodes
(`tools/availability`); nothing is computed by other rules here. A device is
listed once, however many claims share it (upstream's pool status counts a device once per share,
kubernetes/kubernetes#140170).

    free      available
    taken     allocated exclusively, or its shares have used up a capacity
    partly    shared, with capacity remaining
    shared    in use by any number of claims: it has no capacity that could run out
    blocked   free, but the counters it needs are consumed (another partition is in use), or its node takes
              no pods or has too little left for what the device charges
    tainted   free, but it has a taint that claims must tolerate
    stale     not offered: its pool is incomplete or invalid, or it is no longer published

See docs/spec/allocator.md, "Gathering pools", "Consumable capacity" and "Shared counters"; KEP-5075
(docs/spec/keps.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct, field

from plimsoll.allocator.availability import BLOCKED, FREE, PARTLY, SHARED, TAINTED, TAKEN, device_state
from plimsoll.allocator.devices.capacity import capacity_value
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.reasons.explanation import group_conflict_text, node_operations_text
from plimsoll.allocator.reasons.refusal import GroupConflict, NodeOperationsRefusal
from plimsoll.api.device_taints import find_untolerated_taint
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.api.resource import Device, DeviceCounterConsumption, ResourceSlice
from plimsoll.errors import InputError
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.availability import DeviceAvailability, NodeShortage, limit_pool_capacity
from plimsoll.tools.availability.charges import CapacityLimits
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.columns import format_count
from plimsoll.tools.node_terms import taint_text
from plimsoll.tools.top.device_holders import DeviceHolder, DeviceHolders

STALE = "stale"
#: Attribute that names the type of a partition, unless the slice declares another.
PROFILE = "profile"
_PRODUCT = frozenset({"productName", "product", "modelName", "model"})
_PCI_ADDRESS = frozenset({"pciBusID", "pciBusId", "pciAddress"})
STATES = (FREE, PARTLY, SHARED, TAKEN, BLOCKED, TAINTED, STALE)
#: States of devices that are not held and cannot be allocated at present.
UNAVAILABLE = frozenset({BLOCKED, TAINTED, STALE})


class DeviceRow(Struct, frozen=True):
    """State, holders and usage of one device."""

    driver: str
    pool: str
    device: str
    node: str  #: its only node; "" if it is for several
    state: str
    holders: tuple[DeviceHolder, ...] = ()
    capacity: Mapping[str, tuple[Quantity, Quantity]] = field(default_factory=dict)  #: name -> (total, used)
    shareable: bool = False
    draws: tuple[DeviceCounterConsumption, ...] = ()  #: counters that it consumes when allocated, by set
    taints: tuple[str, ...] = ()
    why: str = ""  #: reason for blocked, tainted or stale, or that it is allocated twice
    product: str = ""  #: product name that the driver publishes
    partition: str = ""  #: type of a partition, such as 1g.10gb
    hardware: tuple[str, ...] = ()  #: UUIDs and PCI address of the physical device, as far as published
    #: Reason why the node does not take claims for the device, if it is free otherwise.
    refusal: str | NodeShortage | None = None
    #: Capacity of a shareable device that its node cannot take: next to other devices of the node, and alone.
    limits: Mapping[str, tuple[Quantity, Quantity]] = field(default_factory=dict)

    def left(self, name: str) -> Quantity:
        """Return what a claim can get of a capacity: no more than the node can be charged."""
        total, used = self.capacity[name]
        return self.limits[name][1] if name in self.limits else total - used

    @property
    def is_available(self) -> bool:
        """Return whether claims can get the device, or more of it, by its state."""
        return self.state in (FREE, PARTLY, SHARED)

    @property
    def memory(self) -> Quantity | None:
        """Memory that the driver publishes as a capacity."""
        return next((total for name, (total, _) in self.capacity.items() if is_memory(name)), None)

    @property
    def counters(self) -> Iterator[tuple[str, str, Quantity]]:
        """Yield each counter that the device consumes when it is allocated: set, name and amount."""
        for part in self.draws:
            for name, counter in part.counters.items():
                yield part.counter_set, name, counter.value or ZERO

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)

    def as_json(self) -> dict[str, Any]:
        return {
            "driver": self.driver,
            "pool": self.pool,
            "device": self.device,
            "node": self.node or None,
            "product": self.product or None,
            "partition": self.partition or None,
            "state": self.state,
            "why": self.why or None,
            "shareable": self.shareable,
            "holders": [holder.as_json() for holder in self.holders],
            "capacity": {
                name: {"whole": str(total), "used": str(used), "free": str(self.left(name))}
                for name, (total, used) in self.capacity.items()
            },
            "counters": [
                {"set": group, "counter": name, "draws": str(amount)} for group, name, amount in self.counters
            ],
            "taints": list(self.taints),
        }


#: Identity of a device, equal to its `DeviceId`.
_id_of = attrgetter("driver", "pool", "device")


def device_rows(cluster_state: ClusterState, node: str = "") -> list[DeviceRow]:
    """Return the rows of all devices, or of those a node can use, by driver, pool and name."""
    snapshot = cluster_state.snapshot
    rows: Iterable[DeviceRow]
    if node:
        rows = _of_node(cluster_state, node, snapshot.index(DeviceHolders))
    else:
        pools = read_pools(snapshot, DeviceAvailability(snapshot))
        rows = (row for pool in pools for row in pool.rows)
    return sorted(rows, key=_id_of)


class PoolDevices(NamedTuple):
    """Rows of the devices of one pool. Without slices they are only those that claims hold."""

    id: PoolId
    rows: list[DeviceRow]
    devices: NodeDevices | None = None
    slices: Sequence[SliceView] = ()


def read_pools(
    snapshot: Snapshot, availability: DeviceAvailability, only: Set[PoolId] | None = None
) -> Iterator[PoolDevices]:
    """Yield each pool, or those in `only`, including pools that are only referenced by claims."""
    known, inventory = snapshot.index(DeviceHolders), snapshot.inventory
    held: dict[PoolId, set[DeviceId]] = {}
    for device in known.devices():
        if only is None or device.pool_id in only:
            held.setdefault(device.pool_id, set()).add(device)
    pools: Iterable[tuple[NodeDevices, Sequence[SliceView]]] = (
        inventory.cluster_pools()
        if only is None
        else ((inventory.cluster_pool(pool), views) for pool in only if (views := inventory.slices_of(pool)))
    )
    for devices, views in pools:
        rows = [
            *rows_of(snapshot, devices, read_usage(snapshot, devices), known, availability),
            *stale_rows(devices, views, known),
        ]
        (pool,) = devices.pools
        missing = held.pop(pool.id, set()).difference(row.id for row in rows)
        yield PoolDevices(pool.id, [*rows, *missing_rows(known, missing)], devices, views)
    for id, missing in held.items():
        yield PoolDevices(id, list(missing_rows(known, sorted(missing))))


def _of_node(cluster_state: ClusterState, name: str, known: DeviceHolders) -> Iterator[DeviceRow]:
    snapshot = cluster_state.snapshot
    row_index = snapshot.row_of(name)
    if row_index is None:
        raise InputError(f"node {name} not found")
    devices = snapshot.inventory.devices_for(snapshot.node(row_index))
    if isinstance(devices, AllocationFault):
        return
    availability = DeviceAvailability(snapshot, [row_index])
    yield from rows_of(snapshot, devices, read_usage(snapshot, devices), known, availability, name)
    for pool in devices.pools:
        if pool.status is not PoolStatus.COMPLETE:
            complete = snapshot.inventory.cluster_pool(pool.id)
            for row in stale_rows(complete, snapshot.inventory.slices_of(pool.id), known):
                if row.node in ("", name):
                    yield row


def rows_of(
    snapshot: Snapshot,
    devices: NodeDevices,
    usage: DeviceUsage,
    known: DeviceHolders,
    availability: DeviceAvailability,
    node: str = "",
) -> Iterator[DeviceRow]:
    """Yield the rows of the offered devices."""
    limits = limit_pool_capacity(snapshot, devices, usage)
    refusals: dict[DeviceId, str | NodeShortage] = {}
    for pool in devices.pools:
        refusals |= availability.refusals(pool.id)
    for number, entry in enumerate(devices.entries):
        if node and devices.elsewhere >> number & 1:
            continue
        device = entry.device
        holders = known.of(entry.id)
        state = device_state(devices, usage, number)
        why = _reason(devices, usage, number, state)
        refusal = refusals.get(entry.id) if refusals and state in (FREE, PARTLY, SHARED) else None
        shares = _limits(entry, limits.get(number, {}), closed=isinstance(refusal, str))
        if isinstance(refusal, NodeShortage) and shares and all(alone > ZERO for _, alone in shares.values()):
            refusal = None  # claims for less of its capacity fit
        if refusal and state == FREE:
            state, why = BLOCKED, _refusal_text(refusal)
        if state == TAKEN and len(holders) > 1:
            holding = [holder for holder in holders if not holder.admin]
            if len(holding) > 1 and any(not holder.share for holder in holding):
                why = f"allocated {len(holding)} times"
        yield DeviceRow(
            *entry.id,
            _node_of(entry.view.slice, device),
            state,
            holders,
            _capacity(entry, usage, number),
            entry.shareable,
            device.consumes_counters or (),
            tuple(map(taint_text, device.taints)),
            why,
            *_description(entry.view.slice, device),
            refusal,
            shares,
        )


def _refusal_text(refusal: str | NodeShortage) -> str:
    if isinstance(refusal, str):
        return f"node: {refusal}"
    needed, left = (format_quantity(Quantity(each)) for each in (refusal.needed, refusal.left))
    return f"node: needs {refusal.resource} {needed}, {left} left"


def _limits(
    entry: DeviceEntry, limits: CapacityLimits, *, closed: bool
) -> dict[str, tuple[Quantity, Quantity]]:
    found = {}
    for name, each in entry.device.capacity.items() if entry.shareable else ():
        together, alone = (0, 0) if closed else limits.get(name, (-1, -1))
        if together >= 0:
            form = capacity_value(each).format
            found[name] = Quantity(together, form), Quantity(alone, form)
    return found


def _reason(devices: NodeDevices, usage: DeviceUsage, number: int, state: str) -> str:
    """Describe why a device is blocked or tainted."""
    entry = devices.entries[number]
    if state == BLOCKED:
        return _short_of(devices, usage, entry)
    taint = find_untolerated_taint(entry.device.taints, ()) if state == TAINTED else None
    return "" if taint is None else f"{taint.key}:{taint.effect}"


def _short_of(devices: NodeDevices, usage: DeviceUsage, entry: DeviceEntry) -> str:
    """Describe what a blocked device lacks: counters (the first of each set), compatible devices, or a node
    that can use it; or why it may be in use.
    """
    resource = usage.plugin_resource(devices.index[entry.id.pool_id][entry.id.device])
    if resource:
        return f"pods with {resource} may hold it"
    if devices.unsupported >> devices.index[entry.id.pool_id][entry.id.device] & 1:
        operations = entry.view.slice.spec.skip_node_operations
        enabled = devices.features.optional_node_operations
        return node_operations_text(NodeOperationsRefusal(operations, enabled))
    for number, mask in entry.groups:
        state, known = usage.groups[number], devices.group_sets[number]
        if not state & mask:
            conflict = GroupConflict(known.name, known.names(mask), known.names(state), bool(state))
            return group_conflict_text(conflict)
    lacks: dict[str, list[tuple[str, int, int]]] = {}
    for pool in devices.counter_pools:
        if pool.pool != entry.id.pool_id:
            continue
        for counter, amount in entry.draw:
            left = usage.available[counter]
            if amount > left:
                group, name = pool.names[counter - pool.first]
                lacks.setdefault(group, []).append((name, amount, max(0, left)))
    texts = [
        f"{group}/{_shortage(entry.device, group, *first)}"
        + (f" and {format_count(len(rest), 'other counter')}" if rest else "")
        for group, (first, *rest) in lacks.items()
    ]
    return ", ".join(texts) or "counters of its pool are overdrawn"


def _shortage(device: Device, group: str, name: str, needed: int, left: int) -> str:
    counters = next(each.counters for each in device.consumes_counters or () if each.counter_set == group)
    form = (counters[name].value or ZERO).format
    return f"{name}: needs {_counter_text(needed, form)}, {_counter_text(left, form)} left"


@lru_cache(maxsize=1024)
def _counter_text(amount: int, form: Format) -> str:
    return format_quantity(Quantity(amount, form))


def _capacity(entry: DeviceEntry, usage: DeviceUsage, number: int) -> dict[str, tuple[Quantity, Quantity]]:
    """Return total and used amount of each capacity; all of it is used if the device is allocated
    exclusively.
    """
    if not entry.device.capacity:
        return {}
    is_taken = usage.taken >> number & 1
    consumed = usage.consumed.get(number, {})
    found = {}
    for name, each in entry.device.capacity.items():
        value = capacity_value(each)
        used = value if is_taken else _used(consumed.get(name, 0), value.format)
        found[name] = (value, used)
    return found


@lru_cache(maxsize=1024)
def _used(amount: int, form: Format) -> Quantity:
    return Quantity(amount, form)


def _description(slice: ResourceSlice, device: Device) -> tuple[str, str, tuple[str, ...]]:
    """Return product, partition type and identity of the hardware, from the attributes that drivers use."""
    declared = slice.spec.partition_type_attribute
    product = partition = parent = uuid = address = ""
    for name, attribute in device.attributes.items():
        text = attribute.string_value
        if not text:
            continue
        own = name.rpartition("/")[2]
        if own in _PRODUCT:
            product = text
        elif own == PROFILE if not declared else declared in (name, f"{slice.spec.driver}/{name}"):
            partition = text
        elif own == "parentUUID":
            parent = text
        elif own == "uuid":
            uuid = text
        elif own in _PCI_ADDRESS:
            address = text
    if not (device.consumes_counters or parent):
        partition = ""
    return product, partition, tuple(filter(None, (parent or uuid, address)))


def is_memory(capacity: str) -> bool:
    """Return whether a capacity is the memory of a device."""
    return plain_name(capacity) == "memory"


def plain_name(name: str) -> str:
    """Return the name of a capacity or attribute without its domain."""
    return name.rpartition("/")[2]


def _node_of(slice: ResourceSlice, device: Device | None = None) -> str:
    return (device.node_name if device is not None else None) or slice.spec.node_name or ""


# -- devices that are not offered


def stale_rows(devices: NodeDevices, views: Iterable[SliceView], known: DeviceHolders) -> Iterator[DeviceRow]:
    """Yield the devices of slices that are not offered: older generations and unusable pools."""
    (pool,) = devices.pools
    offered = devices.index.get(pool.id, {})
    if len(offered) == sum(len(view.devices) for view in views):
        return
    newest = max((view.slice.spec.pool.generation for view in views), default=0)
    seen = Counter(offered.keys())
    for view in sorted(views, key=lambda view: -view.slice.spec.pool.generation):
        generation = view.slice.spec.pool.generation
        for device in view.devices:
            if seen[device.name]:
                continue
            seen[device.name] += 1
            id = DeviceId(*pool.id, device.name)
            why = pool.reason if generation == newest else f"generation {generation}, newest is {newest}"
            yield DeviceRow(
                *id,
                _node_of(view.slice, device),
                STALE,
                known.of(id),
                {name: (capacity_value(each), ZERO) for name, each in device.capacity.items()},
                bool(device.allow_multiple_allocations),
                device.consumes_counters or (),
                tuple(map(taint_text, device.taints)),
                why,
                *_description(view.slice, device),
            )


def missing_rows(known: DeviceHolders, unpublished: Iterable[DeviceId]) -> Iterator[DeviceRow]:
    """Yield rows for devices that claims hold and no slice publishes."""
    for id in unpublished:
        yield DeviceRow(*id, "", STALE, known.of(id), why="not published")
