"""Which topology domain each node is in, key by key.

Owns `Domains`, the index of topology values as numbers: a column per label key that some rule has asked for.
A domain is a value of such a key; `DomainColumn.totals` adds up what is counted by place over domains.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from plimsoll.api.core import Node
from plimsoll.ledger.columns import Column, Mask
from plimsoll.schedule.index import Index
from plimsoll.schedule.topology.counts import PlaceCounts

NOWHERE = -1


class DomainColumn:
    """The domains of one key: for each place a number, or NOWHERE if the node has no such label."""

    __slots__ = ("_values", "ids", "key")

    def __init__(self, key: str, size: int, nodes: Mapping[int, Node]) -> None:
        self.key = key
        self.ids: Column = np.full(size, NOWHERE, dtype=np.int64)
        self._values: dict[str, int] = {}
        for place, node in nodes.items():
            self.note(place, node)

    def __len__(self) -> int:
        """How many numbers are in use; some may have no node any more."""
        return len(self._values)

    def note(self, place: int, node: Node | None) -> None:
        value = None if node is None else node.metadata.labels.get(self.key)
        self.ids[place] = NOWHERE if value is None else self._values.setdefault(value, len(self._values))

    @property
    def known(self) -> Mask:
        """The places whose nodes have the label."""
        mask: Mask = self.ids != NOWHERE
        return mask

    def totals(self, counts: PlaceCounts, among: Mask | None = None) -> Column:
        """The sum for each domain, over all places or `among` these; the last is that of NOWHERE: zero."""
        sums = np.zeros(len(self._values) + 1, dtype=np.int64)
        places, amounts = counts.nonzero()
        if among is not None:
            keep = among[places]
            places, amounts = places[keep], amounts[keep]
        np.add.at(sums, self.ids[places], amounts)
        sums[NOWHERE] = 0
        return sums

    def total_at(self, counts: PlaceCounts, place: int, among: Mask | None = None) -> int:
        """The sum for the domain of one place."""
        if self.ids[place] == NOWHERE:
            return 0
        places, amounts = counts.nonzero()
        keep = self.ids[places] == self.ids[place]
        if among is not None:
            keep &= among[places]
        return int(amounts[keep].sum())

    def present(self, among: Mask) -> Mask:
        """The domains that have one of these places; the last, NOWHERE, has none."""
        found = np.zeros(len(self._values) + 1, dtype=np.bool_)
        found[self.ids[among]] = True
        found[NOWHERE] = False
        return found


class Domains(Index):
    """The columns of all keys that were asked for."""

    def __init__(self) -> None:
        self._size = 0
        self._nodes: dict[int, Node] = {}
        self._columns: dict[str, DomainColumn] = {}

    def column(self, key: str) -> DomainColumn:
        found = self._columns.get(key)
        if found is None or len(found) > 2 * self._size + 64:  # too many values of nodes long gone
            found = self._columns[key] = DomainColumn(key, self._size, self._nodes)
        return found

    def grown(self, size: int) -> None:
        for column in self._columns.values():
            more = np.full(size - self._size, NOWHERE, dtype=np.int64)
            column.ids = np.concatenate([column.ids, more])
        self._size = size

    def node_set(self, place: int, node: Node, old: Node | None) -> None:
        self._nodes[place] = node
        for column in self._columns.values():
            column.note(place, node)

    def node_removed(self, place: int, node: Node) -> None:
        del self._nodes[place]
        for column in self._columns.values():
            column.note(place, None)
