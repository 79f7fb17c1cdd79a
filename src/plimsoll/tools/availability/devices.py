"""`DeviceAvailability`: how many of given devices claims can still get, of whatever class.

Each device is charged as by the class that charges it least; a device that no class selects is counted like
one of a class that charges nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import DeviceClass
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.availability.availability import (
    Availability,
    ClassCandidates,
    ClassSearch,
    count_charged,
)
from plimsoll.tools.availability.charges import Amounts, NodeShortage
from plimsoll.tools.availability.node_stock import NodeStock

#: Stands for any class; not the name of one.
_ANY_CLASS = DeviceClass(metadata=ObjectMeta(name="*"))


@dataclass(slots=True)
class _Choices:
    """Devices of one node that claims can get, and what each charges at least."""

    selected: int = 0  #: mask of the devices that some class selects
    available: int = 0
    charged: dict[int, Amounts] = field(default_factory=dict)
    headroom: Amounts = field(default_factory=dict)
    shortages: dict[int, NodeShortage] = field(default_factory=dict)

    def add(self, found: ClassCandidates, mask: int) -> None:
        """Add those devices of a mask that claims of one class can get."""
        self.selected |= found.plan.selection.mask
        available = found.available & mask
        for number in bit_numbers(available & self.available) if self.charged else ():
            known, amounts = self.charged.get(number, {}), found.charged.get(number, {})
            if all(amount <= known.get(name, 0) for name, amount in amounts.items()):
                self.charged[number] = amounts
        for number, amounts in found.charged.items():
            if (available & ~self.available) >> number & 1:
                self.charged[number] = amounts
        self.available |= available
        self.shortages |= {key: each for key, each in found.shortages.items() if mask >> key & 1}
        if found.charges is not None:
            self.headroom = found.charges.headroom


class DeviceAvailability:
    """Search of single devices in one snapshot; `rows` limits it to some nodes."""

    def __init__(self, snapshot: Snapshot, rows: Sequence[int] | None = None) -> None:
        self._availability = Availability(snapshot, rows)
        self._searches = [ClassSearch(snapshot, each) for _, each in sorted(snapshot.classes.items())]
        self._any_class = ClassSearch(snapshot, _ANY_CLASS)
        self._known: dict[tuple[object, ...], _Choices] = {}

    @cached_property
    def _stocks(self) -> dict[PoolId, tuple[NodeStock, int]]:
        """Nodes by the pools that only they can use."""
        return {pool: each for each in self._availability.stocks for pool in each[0].own_pools}

    @cached_property
    def _of_several_nodes(self) -> dict[DeviceId, str | NodeShortage | None]:
        """Devices that more than one node can use: None if claims can get them on some node, else why the
        first node does not take them.
        """
        found: dict[DeviceId, str | NodeShortage | None] = {}
        for stock, state in self._availability.stocks:
            others = stock.devices.all & ~stock.own
            choices = self._choices(stock, state) if others and not stock.closed else _Choices()
            for number in bit_numbers(others & ~stock.devices.elsewhere):
                id = stock.devices.entries[number].id
                if choices.available >> number & 1:
                    found[id] = None
                elif refusal := stock.closed or choices.shortages.get(number):
                    found.setdefault(id, refusal)
        return found

    def count(self, devices: Iterable[DeviceId]) -> int:
        """Return how many of some devices can still be allocated together."""
        pools: dict[PoolId, list[DeviceId]] = {}
        for id in devices:
            pools.setdefault(id.pool_id, []).append(id)
        total = 0
        nodes: dict[int, list[DeviceId]] = {}
        for pool, ids in pools.items():
            if pool in self._stocks:
                stock, _ = self._stocks[pool]
                if stock.row is not None and not stock.closed:
                    nodes.setdefault(stock.row, []).extend(ids)
            elif kept := [id for id in ids if self._of_several_nodes.get(id, "") is None]:
                stock = self._availability.pool_stock(pool)
                together, there = stock.count(stock.mask_of(kept)).devices, 0
                for on_node, state in self._availability.stocks:
                    if there >= together:
                        break
                    there += 0 if on_node.closed else self._count_on(on_node, state, kept)
                total += min(there, together)
        for ids in nodes.values():
            total += self._count_on(*self._stocks[ids[0].pool_id], ids)
        return total

    def _count_on(self, stock: NodeStock, state: int, ids: Iterable[DeviceId]) -> int:
        found = self._choices(stock, state)
        mask = stock.mask_of(ids) & found.available
        return count_charged(stock, mask, found.charged, found.headroom).devices if mask else 0

    def refusals(self, pool: PoolId) -> dict[DeviceId, str | NodeShortage]:
        """Return why no node takes claims for devices of a pool: it takes no pods, or has too little left."""
        if pool not in self._stocks:
            others = self._of_several_nodes.items()
            return {id: refusal for id, refusal in others if id.pool_id == pool and refusal is not None}
        stock, state = self._stocks[pool]
        own, entries = stock.own_pools[pool], stock.devices.entries
        if stock.closed:
            return {entries[number].id: stock.closed for number in bit_numbers(own)}
        found = self._choices(stock, state)
        rest = own & ~found.available
        return {entries[number].id: each for number, each in found.shortages.items() if rest >> number & 1}

    def _choices(self, stock: NodeStock, state: int) -> _Choices:
        """Return the choices on a node; equal for nodes in equal states."""
        masks = []
        for search in self._searches:
            selection = stock.devices.select(search.selectors, ())
            masks.append((selection.mask, tuple(selection.failures)))
        charging = any(each.class_charges for each in self._searches)
        key = (state, *masks, stock.headroom_state(stock.devices.all, class_charges=charging))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Choices()
            for search, (mask, _) in zip(self._searches, masks, strict=True):
                candidates = search.find_candidates(stock) if mask else None
                if candidates is not None:
                    known.add(candidates, mask)
            rest = stock.devices.all & ~known.selected
            candidates = self._any_class.find_candidates(stock) if rest else None
            if candidates is not None:
                known.add(candidates, rest)
        return known
