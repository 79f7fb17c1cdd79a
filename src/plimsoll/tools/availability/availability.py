"""`Availability`: how many devices of each class claims can still get, and where.

Nodes in equal states share one computation: attributes that differ by machine, such as UUIDs, do not matter
unless a class reads them. Nodes with taints count, because pods that use devices tolerate the taints of their
nodes; what is there is listed by taint. Nodes that take no pods at all do not count, and neither do devices
with taints; these are listed, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.capacity import capacity_value
from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.allocator.packing import PackedCount, Piece, count_together
from plimsoll.allocator.request_matching import RequestPlan, read_requests
from plimsoll.api import codec
from plimsoll.api.device_taints import find_untolerated_taint
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    EXACT_COUNT,
    DeviceClass,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    expressions_of,
)
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.availability.charges import (
    Amounts,
    CapacityLeft,
    ClassCharges,
    NodeShortage,
    read_class_policy,
    select_offered,
)
from plimsoll.tools.availability.node_stock import KnownCounts, NodeStock, PartitionType
from plimsoll.tools.node_terms import taint_text


@dataclass(slots=True)
class DevicesOnNodes:
    """Devices on some of the nodes."""

    devices: int = 0
    nodes: int = 0

    def add(self, devices: int) -> None:
        self.devices += devices
        self.nodes += bool(devices)

    def as_json(self) -> dict[str, int]:
        return {"devices": self.devices, "nodes": self.nodes}


@dataclass(slots=True)
class TypeAvailability:
    """Partitions of one type in a class, counted as if no other partition were allocated."""

    devices: int = 0  #: offered
    held: int = 0  #: of these, in use by claims
    total: int = 0  #: that claims can still get
    most: int = 0  #: on one node

    def as_json(self, type: str) -> dict[str, Any]:
        return {
            "type": type or None,
            "devices": self.devices,
            "held": self.held,
            "free": self.total,
            "mostOnOneNode": self.most,
        }


@dataclass(slots=True)
class ClassAvailability:
    """Devices of a class that claims can still get."""

    device_class: str
    devices: int = 0  #: offered devices that the class selects
    held: int = 0  #: of these, in use by claims
    total: int = 0  #: that can still be allocated, on all nodes; a device of several nodes counts once
    is_exact: bool = True  #: False if the total may be higher
    nodes: dict[str, int] = field(default_factory=dict)  #: node -> devices that one pod can get there
    types: dict[PartitionType, TypeAvailability] = field(default_factory=dict)
    capacity: dict[str, CapacityLeft] = field(default_factory=dict)  #: of shareable devices
    tainted: dict[str, DevicesOnNodes] = field(default_factory=dict)  #: node taints -> devices in the total
    closed: dict[str, DevicesOnNodes] = field(default_factory=dict)  #: why -> devices not in the total
    device_taints: dict[str, int] = field(default_factory=dict)  #: taint -> devices not in the total
    problem: str = ""  #: why the class selects nothing

    @property
    def most(self) -> int:
        """Devices that one pod can get."""
        return max(self.nodes.values(), default=0)

    @property
    def partitions(self) -> list[tuple[str, TypeAvailability]]:
        """Partition types by name, the devices without a type last; none if there is only one type."""
        found = sorted(self.types.items(), key=lambda item: (not item[0].value, item[0]))
        return [(kind.value, each) for kind, each in found] if len(found) > 1 else []

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.device_class,
            "devices": self.devices,
            "held": self.held,
            "free": self.total,
            "mostOnOneNode": self.most,
            "nodes": [{"node": node, "free": count} for node, count in sorted(self.nodes.items())],
            "capacity": [
                {
                    "name": name,
                    "whole": str(each.total),
                    "left": str(each.left),
                    "mostOnOneDevice": str(each.most),
                }
                for name, each in self.capacity.items()
            ],
            "partitions": [each.as_json(type) for type, each in self.partitions],
            "exact": self.is_exact,
            "nodeTaints": _counts_json(self.tainted),
            "leftOut": _counts_json(self.closed),
            "deviceTaints": dict(sorted(self.device_taints.items())),
            "problem": self.problem or None,
        }


def _counts_json(counts: Mapping[str, DevicesOnNodes]) -> dict[str, Any]:
    return {text: each.as_json() for text, each in sorted(counts.items())}


_NONE = PackedCount(0)


@dataclass(slots=True)
class _Found:
    """Result for a class on one node; `own` devices are those that no other node can use."""

    devices: int = 0  #: own ones that the class selects
    held: int = 0  #: of these
    count: PackedCount = _NONE  #: that one pod can get
    own: int = 0  #: own ones of these
    shared: tuple[DeviceId, ...] = ()  #: other available devices
    #: Own devices by type: offered, in use, and available.
    types: Mapping[PartitionType, tuple[int, int, int]] = field(default_factory=dict)
    tainted: Mapping[str, int] = field(default_factory=dict)  #: own, available but for their taint
    withheld: Mapping[str, int] = field(default_factory=dict)  #: own ones that may be held through a resource
    capacity: dict[str, CapacityLeft] = field(default_factory=dict)  #: of own shareable devices
    #: Capacity of other shareable devices.
    shared_capacity: dict[tuple[DeviceId, str], int] = field(default_factory=dict)


class Availability:
    """Search of what can still be allocated in one snapshot; `rows` limits it to some nodes."""

    def __init__(self, snapshot: Snapshot, rows: Sequence[int] | None = None) -> None:
        self._snapshot = snapshot
        self._rows = rows
        self._known_counts = KnownCounts()
        self._classes: dict[str, ClassAvailability] = {}
        self._pools: dict[PoolId, NodeStock] = {}

    def of_class(self, name: str) -> ClassAvailability:
        """Count the devices of a class; computed once."""
        known = self._classes.get(name)
        if known is None:
            known = self._classes[name] = self._count(self._snapshot.classes[name])
        return known

    def of_request(self, body: ExactDeviceRequest | DeviceSubRequest) -> ClassAvailability:
        """Count the devices of a class that also match a request, with its capacity and tolerations."""
        found = self._snapshot.classes[body.device_class_name]
        both = (*found.spec.selectors, *body.selectors)
        narrowed = replace(found, spec=replace(found.spec, selectors=both))
        return self._count(narrowed, make_claim_of(body))

    def all_classes(self) -> list[ClassAvailability]:
        """Count the devices of all classes, by name."""
        return [self.of_class(name) for name in sorted(self._snapshot.classes)]

    @cached_property
    def stocks(self) -> list[tuple[NodeStock, int]]:
        """Nodes that can use devices, and numbers that are equal for nodes in equal states."""
        found: list[tuple[NodeStock, int]] = []
        states: dict[object, int] = {}
        for row in self._snapshot.rows() if self._rows is None else self._rows:
            devices = self._snapshot.inventory.devices_for(self._snapshot.node(row))
            if isinstance(devices, AllocationFault) or not devices.all:
                continue
            stock = NodeStock(self._snapshot, devices, self._known_counts, row)
            state = stock.state
            found.append((stock, -row - 1 if state is None else states.setdefault(state, len(states))))
        return found

    # -- one class

    def _count(self, device_class: DeviceClass, claim: ResourceClaim | None = None) -> ClassAvailability:
        found = ClassAvailability(device_class.metadata.name)
        search = ClassSearch(self._snapshot, device_class, claim)
        shared: dict[PoolId, set[str]] = {}
        shared_sum = 0
        shared_capacity: dict[tuple[DeviceId, str], int] = {}
        for stock, state in self.stocks:
            here = search.on_node(stock, state)
            if here is None:
                continue
            found.devices += here.devices
            found.held += here.held
            for kind, (devices, held, _) in here.types.items():
                found.types.setdefault(kind, TypeAvailability()).devices += devices
                found.types[kind].held += held
            for name, amounts in here.capacity.items():
                if stock.closed:
                    none = Quantity(0, amounts.total.format)
                    amounts = CapacityLeft(amounts.total, none, none)
                _add_capacity(found.capacity, name, amounts)
            if stock.closed:
                found.closed.setdefault(stock.closed, DevicesOnNodes()).add(here.own)
                continue
            found.total += here.own
            found.is_exact &= here.count.is_exact
            for resource, devices in here.withheld.items():
                found.closed.setdefault(f"maybe held through {resource}", DevicesOnNodes()).add(devices)
            for taint, devices in here.tainted.items():
                found.device_taints[taint] = found.device_taints.get(taint, 0) + devices
            for kind, (_, _, number) in here.types.items():
                found.types[kind].total += number
                found.types[kind].most = max(found.types[kind].most, number)
            if here.count.devices:
                found.nodes[stock.name] = here.count.devices
                if stock.taints:
                    found.tainted.setdefault(stock.taints, DevicesOnNodes()).add(here.count.devices)
            for id in here.shared:
                shared.setdefault(id.pool_id, set()).add(id.device)
            shared_sum += here.count.devices - here.own
            for share, left in here.shared_capacity.items():
                shared_capacity[share] = max(left, shared_capacity.get(share, 0))
        together = 0
        for pool in self._other_pools(shared):
            stock = self.pool_stock(pool)
            offered = select_offered(device_class, stock.devices)
            numbers = stock.devices.index.get(pool, {})
            together += stock.count(sum(1 << numbers[device] for device in shared.get(pool, ()))).devices
            search.add_pool(found, stock, offered, shared_capacity)
        found.total += min(shared_sum, together)
        found.closed = {reason: counts for reason, counts in found.closed.items() if counts.devices}
        found.problem = search.problem if not found.devices else ""
        return found

    def _other_pools(self, shared: Iterable[PoolId]) -> Iterable[PoolId]:
        """Return the pools that several nodes can use, and those of nodes that do not exist."""
        if self._rows is not None:
            return shared
        own = {pool for stock, _ in self.stocks for pool in stock.own_pools}
        return [pool for pool in self._snapshot.inventory.pool_ids() if pool not in own]

    def pool_stock(self, pool: PoolId) -> NodeStock:
        """Return the devices of a pool of several nodes."""
        known = self._pools.get(pool)
        if known is None:
            devices = self._snapshot.inventory.cluster_pool(pool)
            known = self._pools[pool] = NodeStock(self._snapshot, devices, self._known_counts)
        return known


@dataclass(slots=True)
class ClassCandidates:
    """Devices of one node that claims of a class can get, and what they charge to the node."""

    stock: NodeStock
    plan: RequestPlan
    available: int  #: mask of the devices that can be allocated alone
    charges: ClassCharges | None = None  #: None if nothing is charged
    charged: dict[int, Amounts] = field(default_factory=dict)  #: by device number, of available devices
    shortages: dict[int, NodeShortage] = field(default_factory=dict)  #: of devices that the node cannot take

    def count(self, mask: int) -> PackedCount:
        """Return how many devices of a mask, each available alone, can be allocated together."""
        if self.charges is None:
            return self.stock.count(mask)
        return count_charged(self.stock, mask, self.charged, self.charges.headroom)


class ClassSearch:
    """Search of the devices of one class on nodes, each state once."""

    def __init__(
        self, snapshot: Snapshot, device_class: DeviceClass, claim: ResourceClaim | None = None
    ) -> None:
        self._snapshot = snapshot
        self._claim = claim or make_claim(device_class.metadata.name)
        self._class = device_class
        self.selectors = expressions_of(device_class.spec.selectors)
        policy = read_class_policy(device_class, snapshot.profile)
        self.class_charges = bool(policy.charges)
        self._known: dict[tuple[object, ...], _Found] = {}
        self.problem = ""  #: error of a selector

    def on_node(self, stock: NodeStock, state: int) -> _Found | None:
        """Return what the class finds on a node; None if it selects nothing there."""
        selection = stock.devices.select(self.selectors, ())
        if selection.failures and not self.problem:
            self.problem = str(next(iter(selection.failures.values())).error)
        mask = selection.mask
        if not mask:
            return None
        types = tuple(stock.types.items())
        headroom = stock.headroom_state(mask, class_charges=self.class_charges)
        key = (state, mask, types, headroom, tuple(selection.failures))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(stock)
        return known

    def add_pool(
        self,
        found: ClassAvailability,
        stock: NodeStock,
        offered: int,
        left: Mapping[tuple[DeviceId, str], int],
    ) -> None:
        """Add the devices of a pool of several nodes, with what some node can get of their capacity."""
        found.devices += offered.bit_count()
        found.held += (offered & stock.in_use).bit_count()
        for kind, mask in stock.types.items():
            if mask & offered:
                known = found.types.setdefault(kind, TypeAvailability())
                known.devices += (mask & offered).bit_count()
                known.held += (mask & offered & stock.in_use).bit_count()
        for number in bit_numbers(offered & stock.devices.shareable):
            entry = stock.devices.entries[number]
            for name, each in entry.device.capacity.items():
                total = capacity_value(each)
                rest = Quantity(left.get((entry.id, name), 0), total.format)
                _add_capacity(found.capacity, name, CapacityLeft(total, rest, rest))

    def find_candidates(self, stock: NodeStock) -> ClassCandidates | None:
        """Return the devices of a node that claims of the class can get; None if they cannot be computed."""
        devices, usage, snapshot = stock.devices, stock.usage, self._snapshot
        name = self._class.metadata.name
        classes = snapshot.classes if name in snapshot.classes else {name: self._class}
        order = read_requests((self._claim,), classes, devices, usage)
        if isinstance(order, AllocationFault):
            self.problem = self.problem or str(order)
            return None
        plan = order.steps[0].plans[0]
        matching, available = plan.selection.mask, plan.candidates
        if plan.fault_mask:  # the search ends at the first device on which a selector fails
            available &= (plan.fault_mask & -plan.fault_mask) - 1
        found = ClassCandidates(stock, plan, available)
        may_charge = matching if self.class_charges else matching & devices.mapped
        if may_charge and stock.row is not None and snapshot.options.count_claims:
            found.charges = charges = ClassCharges(snapshot, stock.row, plan)
            for number in bit_numbers(available & may_charge):
                amounts = charges.of_device(devices.entries[number])
                shortage = None if amounts is None else charges.find_shortage(amounts)
                if shortage is not None:
                    found.shortages[number] = shortage
                if amounts is None or shortage is not None:
                    found.available &= ~(1 << number)
                elif amounts:
                    found.charged[number] = amounts
        return found

    def _find(self, stock: NodeStock) -> _Found:
        candidates = self.find_candidates(stock)
        if candidates is None:
            return _Found()
        devices, plan, available = stock.devices, candidates.plan, candidates.available
        own = plan.selection.mask & stock.own
        count = candidates.count
        whole = count(available)
        others = available & ~stock.own
        own_count = count(available & stock.own).devices if others else whole.devices

        def count_type(mask: int) -> tuple[int, int, int]:
            left = own_count if not own & ~mask else count(mask & available & own).devices
            return (mask & own).bit_count(), (mask & own & stock.in_use).bit_count(), left

        found = _Found(
            own.bit_count(),
            (own & stock.in_use).bit_count(),
            whole,
            own_count,
            tuple(devices.entries[number].id for number in bit_numbers(others)),
            {kind: count_type(mask) for kind, mask in stock.types.items() if mask & own},
            dict(_tainted(stock, plan)),
            dict(_withheld(stock, own)),
        )
        self._add_shares(found, stock, plan, candidates.charges)
        return found

    def _add_shares(
        self, found: _Found, stock: NodeStock, plan: RequestPlan, charges: ClassCharges | None
    ) -> None:
        """Add the capacity of shareable devices: in total, and what claims can still get."""
        devices, usage = stock.devices, stock.usage
        mask = plan.selection.mask & devices.shareable
        usable = mask & ~(usage.taken | usage.blocked | plan.tainted)
        limits: Mapping[int, Mapping[str, tuple[int, int]]] = {}
        if charges is not None:
            entries = ((each, devices.entries[each]) for each in bit_numbers(usable))
            limits = charges.limit_capacity(entries, usage)
        for number in bit_numbers(mask):
            entry = devices.entries[number]
            free = dict(zip(entry.device.capacity, usage.free(number), strict=True))
            for name, each in entry.device.capacity.items():
                left = alone = max(0, free[name]) if usable >> number & 1 else 0
                if left and charges is not None:
                    left, alone = limits[number][name]
                total = capacity_value(each)
                if stock.own >> number & 1:
                    amounts = CapacityLeft(total, Quantity(left, total.format), Quantity(alone, total.format))
                    _add_capacity(found.capacity, name, amounts)
                else:
                    found.shared_capacity[entry.id, name] = left


def _tainted(stock: NodeStock, plan: RequestPlan) -> Iterator[tuple[str, int]]:
    """Yield the taints of devices, with the devices that claims could get if they tolerated them."""
    usage = stock.usage
    rest = plan.selection.mask & plan.tainted & stock.own & ~(usage.taken | usage.blocked)
    for taints, mask in stock.devices.taint_masks.items() if rest else ():
        taint = find_untolerated_taint(taints, ())
        if taint is not None and (count := stock.count(rest & mask).devices):
            yield taint_text(taint), count


def _withheld(stock: NodeStock, own: int) -> Iterator[tuple[str, int]]:
    """Yield the resources of device plugins through which pods may hold devices, with their number."""
    yield from Counter(map(stock.usage.plugin_resource, bit_numbers(own & stock.usage.withheld))).items()


def count_charged(
    stock: NodeStock, mask: int, charged: Mapping[int, Amounts], headroom: Amounts
) -> PackedCount:
    """Return how many devices of a mask can be allocated together, with their charges to the node."""
    together = sum(1 << number for number in charged) & mask
    for component in stock.components if together & stock.devices.counting else ():
        if component.mask & together:
            together |= component.mask & mask
    rest = stock.count(mask & ~together)
    pieces = []
    for number in bit_numbers(together):
        piece = stock.piece(number)
        pieces.append(Piece((*piece.draw, *charged.get(number, {}).items()), piece.groups))
    stocks: dict[Any, int] = {**dict(enumerate(stock.usage.available)), **headroom}
    found = count_together(pieces, stocks, stock.usage.groups)
    return PackedCount(rest.devices + found.devices, rest.is_exact and found.is_exact)


def _add_capacity(capacity: dict[str, CapacityLeft], name: str, added: CapacityLeft) -> None:
    before = capacity.get(name)
    if before is not None:
        added = CapacityLeft(
            before.total + added.total, before.left + added.left, max(before.most, added.most)
        )
    capacity[name] = added


@lru_cache(maxsize=1024)
def make_claim(name: str) -> ResourceClaim:
    """Return a claim for one device of a class."""
    request = {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    meta = {"name": "largest", "namespace": "default", "uid": "availability/largest"}
    return codec.convert({"metadata": meta, "spec": spec}, ResourceClaim)


def make_claim_of(body: ExactDeviceRequest | DeviceSubRequest) -> ResourceClaim:
    """Return a claim for one device of a request."""
    claim = make_claim(body.device_class_name)
    (request,) = claim.spec.devices.requests
    exactly = codec.convert(
        {**codec.to_tree(body), "allocationMode": EXACT_COUNT, "count": 1}, ExactDeviceRequest
    )
    devices = replace(claim.spec.devices, requests=(replace(request, exactly=exactly),))
    return replace(claim, spec=replace(claim.spec, devices=devices))
