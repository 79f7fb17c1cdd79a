"""`EvictionBounds`: how many pods must at least leave a node so that it has the devices that a pod requests.

Only devices count, not charges, constraints, taints or compatibility groups, so that no set of pods that
works is left out. Devices that draw from common counters are counted once for equal devices in equal use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from itertools import accumulate, combinations

from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.allocator.packing import Piece, count_together
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import EXACT_COUNT, ResourceClaim, expressions_of
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.availability import Availability
from plimsoll.tools.availability.node_stock import Component, NodeStock

#: Devices that can be allocated together after 0, 1, 2, ... evictions, those that free most.
_Curve = tuple[int, ...]
#: Selectors of the class and of the request.
_Selection = tuple[tuple[str, ...], tuple[str, ...]]
#: Holders of common counters of which all choices are tried.
_CHOICES_MAX = 8


class EvictionBounds:
    """Lower bounds for the nodes of one snapshot, up to a number of evictions."""

    def __init__(
        self,
        snapshot: Snapshot,
        claims: Iterable[ResourceClaim],
        held: Mapping[str, Mapping[int, Set[DeviceId]]],
        most: int,
    ) -> None:
        """Read the devices. `held` are the devices of the pods that can be evicted, by node and number."""
        self._most = most
        self._wanted = _wanted(claims, snapshot)
        self._stocks = {stock.name: stock for stock, _ in Availability(snapshot).stocks if stock.name in held}
        self._held = {
            node: {number: stock.mask_of(held[node][number]) for number in held[node]}
            for node, stock in self._stocks.items()
        }
        self._curves: dict[tuple[object, ...], _Curve] = {}

    def fewest(self, node: str, gone: Set[int] = frozenset()) -> int:
        """Return how many pods must at least leave a node after some have gone; more than `most` if no number
        up to it is enough.
        """
        stock = self._stocks.get(node)
        if stock is None:
            return self._most + 1 if self._wanted else 0
        return max(
            (self._fewest(stock, each, count, gone) for each, count in self._wanted.items()), default=0
        )

    def _fewest(self, stock: NodeStock, selection: _Selection, count: int, gone: Set[int]) -> int:
        devices = stock.devices
        mask = devices.select(*selection).mask
        if mask & (devices.shareable | ~stock.own):
            return 0  # not bounded: shares, and devices of several nodes
        parts = [each for each in stock.components if each.mask & mask]
        held = self._held[stock.name]
        # A pod with devices of several GPUs is counted as one that frees all of them.
        wide = {
            number for number, own in held.items() if sum(bool(own & each.mask) for each in parts) > 1
        } - gone
        best = self._best(stock, mask, parts, gone)
        found = next((evicted for evicted, devices in enumerate(best) if devices >= count), None)
        if wide and found != 0:
            best = self._best(stock, mask, parts, gone | wide)
            found = next((evicted for evicted, devices in enumerate(best) if devices >= count), None)
            found = None if found is None else max(1, found)
        return self._most + 1 if found is None else found

    def _best(self, stock: NodeStock, mask: int, parts: Iterable[Component], gone: Set[int]) -> list[int]:
        """Return the most devices after 0, 1, 2, ... evictions."""
        held = self._held[stock.name]
        freed, rest = 0, mask & ~stock.devices.counting
        for number in gone:
            freed |= held.get(number, 0)
        staying = [own & ~freed for number, own in held.items() if number not in gone]
        gains = sorted(((own & rest).bit_count() for own in staying if own & rest), reverse=True)
        free = (rest & ~(stock.usage.taken & ~freed)).bit_count()
        best = list(accumulate(gains[: self._most], initial=free))
        for part in parts:
            curve = self._curve(stock, part, mask & part.mask, freed & part.mask, staying)
            total = [0] * min(self._most + 1, len(best) + len(curve) - 1)
            for at, devices in enumerate(best):
                for more, others in enumerate(curve[: len(total) - at]):
                    total[at + more] = max(total[at + more], devices + others)
            best = total
        return best

    def _curve(
        self, stock: NodeStock, part: Component, mask: int, freed: int, staying: Iterable[int]
    ) -> _Curve:
        held = sorted(own & part.mask for own in staying if own & part.mask)
        taken = stock.usage.taken & part.mask & ~freed
        left = dict(zip(part.counters, (stock.usage.available[each] for each in part.counters), strict=True))
        _give_back(stock, left, freed)
        masks = (mask >> part.first, taken >> part.first, *(own >> part.first for own in held))
        key = (part.content, masks, tuple(left.values()))
        known = self._curves.get(key)
        if known is None:
            known = self._curves[key] = tuple(self._points(stock, mask, taken, left, held))
        return known

    def _points(
        self, stock: NodeStock, mask: int, taken: int, left: Mapping[int, int], held: list[int]
    ) -> Iterable[int]:
        def count(evicted: Iterable[int]) -> int:
            freed = 0
            for own in evicted:
                freed |= own
            rest = dict(left)
            _give_back(stock, rest, freed)
            entries = stock.devices.entries
            pieces = [Piece(entries[number].draw) for number in bit_numbers(mask & ~(taken & ~freed))]
            return count_together(pieces, rest).devices

        for evicted in range(min(len(held), self._most) + 1):
            if evicted and len(held) > _CHOICES_MAX:
                yield count(held)
            else:
                yield max(count(choice) for choice in combinations(held, evicted))


def _give_back(stock: NodeStock, left: dict[int, int], freed: int) -> None:
    for number in bit_numbers(freed):
        for counter, amount in stock.devices.entries[number].draw:
            if counter in left:
                left[counter] += amount


def _wanted(claims: Iterable[ResourceClaim], snapshot: Snapshot) -> Counter[_Selection]:
    """Return the numbers of devices that exact requests ask for, by their selectors."""
    counts: Counter[_Selection] = Counter()
    for claim in claims:
        for request in claim.spec.devices.requests:
            body = request.exactly
            found = snapshot.classes.get(body.device_class_name) if body is not None else None
            if body is None or found is None or body.admin_access:
                continue
            if body.allocation_mode not in ("", EXACT_COUNT):
                continue
            selection = expressions_of(found.spec.selectors), expressions_of(body.selectors)
            counts[selection] += body.count
    return counts
