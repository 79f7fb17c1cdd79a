"""Packing of devices that exclude each other: the largest number that can be allocated together.

Devices draw from common stocks: the shared counters of a pool, and what a node has left for charges. Devices
without a stock in common are independent of each other, such as the partitions of different GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from plimsoll.allocator.devices.groups import ANY_GROUPS, GroupUse

#: States of one search; a count is then only a lower bound.
STEPS_MAX = 20_000
#: (stock, amount) pairs.
Draw: TypeAlias = "tuple[tuple[Any, int], ...]"


class Piece(NamedTuple):
    """Draw of one device on the stocks."""

    draw: Draw = ()
    groups: GroupUse = ()  #: compatibility groups, by number of the counter set


class PackedCount(NamedTuple):
    """Number of devices that can be allocated together."""

    devices: int
    is_exact: bool = True  #: False if more may be possible


def split_by_stock(stocks: Sequence[int]) -> list[list[int]]:
    """Return the groups of pieces that draw from common stocks, by index; `stocks` are the masks of what each
    draws from.
    """
    groups: list[tuple[int, list[int]]] = []
    for index, mask in enumerate(stocks):
        joined = [group for group in groups if group[0] & mask]
        if len(joined) == 1 and not mask & ~joined[0][0]:
            joined[0][1].append(index)
            continue
        members = [index]
        for group in joined:
            groups.remove(group)
            mask |= group[0]
            members += group[1]
        groups.append((mask, members))
    return [sorted(members) for _, members in groups]


def count_together(
    pieces: Iterable[Piece], left: Mapping[Any, int], groups: Sequence[int] = ()
) -> PackedCount:
    """Return how many pieces of one group fit together into what is left of the stocks.

    `groups` are the compatibility groups that the devices in use have in common, by counter set.
    """
    kinds = Counter(Piece(tuple(pair for pair in each.draw if pair[1]), each.groups) for each in pieces)
    stocks = sorted({stock for piece in kinds for stock, _ in piece.draw}, key=repr)
    sets = sorted({number for piece in kinds for number, _ in piece.groups})
    rows = []
    for piece, count in kinds.items():
        amounts = dict(piece.draw)
        masks = dict(piece.groups)
        drawn = tuple(amounts.get(stock, 0) for stock in stocks)
        rows.append((drawn, tuple(masks.get(each, ANY_GROUPS) for each in sets), count))
    return _pack(
        tuple(sorted(rows)),
        tuple(max(0, left.get(stock, 0)) for stock in stocks),
        tuple(groups[number] for number in sets),
    )


#: Amount of each stock, mask of each counter set, and number of equal pieces.
_Row: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int]"


@lru_cache(maxsize=65_536)
def _pack(rows: tuple[_Row, ...], left: tuple[int, ...], groups: tuple[int, ...]) -> PackedCount:
    return _Packing(rows, left).run(left, groups)


class _Packing:
    """Depth-first search, small pieces first, pruned by what each stock alone would allow."""

    def __init__(self, rows: Sequence[_Row], left: Sequence[int]) -> None:
        def weight(row: _Row) -> tuple[int, _Row]:
            shares = (10**6 * amount // max(1, stock) for amount, stock in zip(row[0], left, strict=True))
            return max(shares, default=0), row

        self._rows = sorted(rows, key=weight)
        #: For each stock: the rows by what they draw of it, ascending.
        self._ranked = [
            sorted((row[0][stock], index) for index, row in enumerate(self._rows))
            for stock in range(len(left))
        ]
        self._seen: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._best = 0
        self._steps = 0

    def run(self, left: tuple[int, ...], groups: tuple[int, ...]) -> PackedCount:
        # Depth first with an explicit stack: (next row, count so far, left, groups).
        stack = [(0, 0, left, groups)]
        while stack:
            index, count, left, groups = stack.pop()
            self._best = max(self._best, count)
            if index == len(self._rows) or count + self._bound(index, left) <= self._best:
                continue
            known = self._seen.get((index, left, groups), -1)
            if known >= count:
                continue
            self._seen[index, left, groups] = count
            self._steps += 1
            if self._steps > STEPS_MAX:
                return PackedCount(self._best, False)
            amounts, masks, number = self._rows[index]
            choices = [(index + 1, count, left, groups)]
            for taken in range(1, number + 1):
                rest = tuple([have - taken * amount for have, amount in zip(left, amounts, strict=True)])
                shared = tuple([state & mask for state, mask in zip(groups, masks, strict=True)])
                if min(rest, default=0) < 0:
                    break
                if any(mask != ANY_GROUPS and not state for state, mask in zip(shared, masks, strict=True)):
                    break
                choices.append((index + 1, count + taken, rest, shared))
            stack += choices  # the last, which takes most, is tried first
        return PackedCount(self._best)

    def _bound(self, index: int, left: Sequence[int]) -> int:
        """Return an upper bound for the pieces of the rows from an index on."""
        best = sum(row[2] for row in self._rows[index:])
        for have, ranked in zip(left, self._ranked, strict=True):
            count = 0
            for amount, number in ranked:
                if number < index:
                    continue
                pieces = self._rows[number][2]
                fitting = pieces if not amount else min(pieces, have // amount)
                count += fitting
                have -= fitting * amount
                if fitting < pieces or count >= best:
                    break
            best = min(best, count)
        return best
