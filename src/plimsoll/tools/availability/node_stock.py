"""`NodeStock`: the devices of one node and their usage, and whether the node takes pods."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from plimsoll.allocator.availability import FREE, PARTLY, SHARED, device_state
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices, bit_numbers
from plimsoll.allocator.packing import Draw, PackedCount, Piece, count_together, split_by_stock
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.ledger.units import PODS
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.node_terms import taint_text

_PREVENTING = ("NoSchedule", "NoExecute")
#: Taints that Kubernetes sets itself: the node does not take pods, whatever devices it has.
_CONDITIONS = "node.kubernetes.io/"
CORDONED, NOT_READY, FULL = "cordoned", "not ready", "no room for another pod"
PROFILE = "profile"


def closed_reason(node: Node) -> str:
    """Return why a node does not take pods, whatever they tolerate; "" if it does."""
    if any(each.type == "Ready" and each.status != "True" for each in node.status.conditions):
        return NOT_READY
    if node.spec.unschedulable:
        return CORDONED
    for taint in node.spec.taints:
        if taint.key.startswith(_CONDITIONS) and taint.effect in _PREVENTING:
            return f"taint {taint.key}"
    return ""


def taints_text(node: Node) -> str:
    """Return the taints that pods must tolerate, as kubectl writes them."""
    return ", ".join(
        taint_text(taint)
        for taint in node.spec.taints
        if taint.effect in _PREVENTING and not taint.key.startswith(_CONDITIONS)
    )


class PartitionType(NamedTuple):
    """Attribute value that names the type of a partition."""

    driver: str
    attribute: str
    value: str


#: Type of devices that are no partitions, or whose type has no name.
UNTYPED = PartitionType("", "", "")


class Component(NamedTuple):
    """Devices that draw from common counters."""

    mask: int
    first: int  #: number of the first device
    counters: tuple[int, ...]
    content: int  #: equal for components of equal devices


class KnownCounts:
    """Counts of components in equal states, which machines of one type share."""

    def __init__(self) -> None:
        self.contents: dict[tuple[Piece, ...], int] = {}
        self.counts: dict[tuple[object, ...], PackedCount] = {}
        #: Masks by the identity of draws, which devices of one structure share, and which these keep alive.
        self._stocks: dict[int, tuple[int, Draw]] = {}

    def stocks_of(self, piece: Piece) -> int:
        """Return the mask of the counters and compatibility groups that a piece draws from."""
        known = self._stocks.get(id(piece.draw))
        if known is None:
            mask = sum(1 << 2 * counter for counter, amount in piece.draw if amount)
            known = self._stocks[id(piece.draw)] = mask, piece.draw
        return known[0] | sum(2 << 2 * number for number, _ in piece.groups)


class NodeStock:
    """Devices that pods of one node, or of a pool of several nodes, may use."""

    def __init__(
        self, snapshot: Snapshot, devices: NodeDevices, known: KnownCounts, row: int | None = None
    ) -> None:
        self.devices, self.row = devices, row
        self._known = known
        self.usage = read_usage(snapshot, devices)
        self.name = self.closed = self.taints = ""
        self._snapshot = snapshot
        if row is not None:
            node, ledger = snapshot.node(row), snapshot.ledger(row)
            self.name, self.taints = node.metadata.name, taints_text(node)
            self.closed = closed_reason(node)
            if not self.closed and PODS in ledger.allocatable and ledger.headroom().get(PODS, 0) <= 0:
                self.closed = FULL

    @property
    def state(self) -> object:
        """Equal for nodes on which claims find the same, if their selectors match the same devices and no
        device charges the node; None for nodes that use devices of others, too.
        """
        structure = self.devices.structure
        return None if structure is None else (structure, self.usage.signature)

    def headroom_state(self, mask: int, *, class_charges: bool) -> object:
        """Return what is left of the node, if devices of a mask charge it."""
        if self.row is None or not self._snapshot.options.count_claims:
            return None
        if not (class_charges or mask & self.devices.mapped):
            return None
        ledger = self._snapshot.ledger(self.row)
        return tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items()))

    @cached_property
    def own_pools(self) -> dict[PoolId, int]:
        """Pools that only this node can use, with the masks of their devices."""
        found: dict[PoolId, int] = {}
        number = 0
        for pool in self.devices.pools:
            if pool.id in self.devices.index:
                count = sum(len(view.devices) for view in pool.slices)
                if not pool.elsewhere and all(view.slice.spec.node_name for view in pool.slices):
                    found[pool.id] = ((1 << count) - 1) << number
                number += count
        return found

    @cached_property
    def own(self) -> int:
        """Mask of the devices that only this node can use."""
        return sum(self.own_pools.values())

    @cached_property
    def types(self) -> dict[PartitionType, int]:
        """Masks of the devices by the type of partition that they are; `UNTYPED` for others."""
        found: dict[PartitionType, int] = {}
        for number in bit_numbers(self.devices.all):
            kind = _partition_type(self.devices.entries[number])
            found[kind] = found.get(kind, 0) | 1 << number
        return found

    @cached_property
    def components(self) -> list[Component]:
        """Devices by the counters that they draw from."""
        numbers = bit_numbers(self.devices.counting)
        entries = self.devices.entries
        pieces = [Piece(entries[number].draw, entries[number].groups) for number in numbers]
        contents = self._known.contents
        return [
            Component(
                sum(1 << numbers[index] for index in group),
                numbers[group[0]],
                tuple(sorted({counter for index in group for counter, _ in pieces[index].draw})),
                contents.setdefault(tuple(pieces[index] for index in group), len(contents)),
            )
            for group in split_by_stock([self._known.stocks_of(piece) for piece in pieces])
        ]

    def mask_of(self, ids: Iterable[DeviceId]) -> int:
        """Return the mask of those of some devices that are on this node."""
        index = self.devices.index
        numbers = (index.get(id.pool_id, {}).get(id.device) for id in ids)
        return sum(1 << number for number in set(numbers) if number is not None)

    @property
    def in_use(self) -> int:
        """Mask of the devices that are allocated or shared."""
        return self.usage.taken & ~self.usage.withheld | self.usage.shared

    @cached_property
    def free(self) -> int:
        """Mask of the devices that are not used up; each available alone, without regard to what is left of
        the node.
        """
        numbers = range(len(self.devices.entries))
        states = (FREE, PARTLY, SHARED)
        usable = (number for number in numbers if device_state(self.devices, self.usage, number) in states)
        return sum(1 << number for number in usable) & ~self.devices.elsewhere

    def count_by_driver(self, mask: int) -> dict[str, int]:
        """Return how many devices of a mask, each available alone, can be allocated together, by driver."""
        masks: dict[str, int] = {}
        for number in bit_numbers(mask):
            driver = self.devices.entries[number].id.driver
            masks[driver] = masks.get(driver, 0) | 1 << number
        return {driver: self.count(each).devices for driver, each in masks.items()}

    def count(self, mask: int) -> PackedCount:
        """Return how many devices of a mask, each available alone, can be allocated together; charges are not
        regarded.
        """
        single = mask & ~self.devices.counting | mask & self.usage.shared
        total, exact = single.bit_count(), True
        mask &= ~single
        for component in self.components if mask else ():
            own = mask & component.mask
            if not own:
                continue
            mask ^= own
            found = self._count_component(component, own)
            total, exact = total + found.devices, exact and found.is_exact
        return PackedCount(total + mask.bit_count(), exact)

    def _count_component(self, component: Component, mask: int) -> PackedCount:
        left = tuple(self.usage.available[counter] for counter in component.counters)
        states = tuple(self.usage.groups)
        known = self._known.counts
        key = (component.content, mask >> component.first, left, states)
        found = known.get(key)
        if found is None:
            pieces = [self.piece(number) for number in bit_numbers(mask)]
            stocks = dict(zip(component.counters, left, strict=True))
            found = known[key] = count_together(pieces, stocks, states)
        return found

    def piece(self, number: int) -> Piece:
        """Return what a device draws from counters."""
        entry = self.devices.entries[number]
        return Piece() if self.usage.shared >> number & 1 else Piece(entry.draw, entry.groups)


def _partition_type(entry: DeviceEntry) -> PartitionType:
    """Return what names the type of a partition: the attribute that its slice declares, else `profile`."""
    declared = entry.view.slice.spec.partition_type_attribute
    for name, attribute in entry.device.attributes.items():
        domain, _, own = name.rpartition("/")
        is_type = own == PROFILE if not declared else declared in (name, f"{entry.id.driver}/{name}")
        if is_type and attribute.string_value is not None:
            domain = domain or entry.id.driver
            return PartitionType(entry.id.driver, f"{domain}/{own}", attribute.string_value)
    return UNTYPED
