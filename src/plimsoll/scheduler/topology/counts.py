"""Pod counts by node and by topology domain.

`DomainColumn` numbers the domains of a topology key. `NodeCounts` holds one integer per node: in a dictionary
while few nodes have one, in an array otherwise, so that thousands of rules with one pod each and one rule
with thousands of pods are both cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from plimsoll.api.core import Node
from plimsoll.ledger.columns import Column, Mask

#: Domain of nodes without the topology label.
NO_DOMAIN = -1
#: Number of nodes up to which counts are in a dictionary.
_FEW = 32


class DomainColumn:
    """Domain numbers of all nodes for one topology key."""

    __slots__ = ("_values", "ids", "key", "known", "version")

    def __init__(self, key: str, size: int, nodes: Mapping[int, Node]) -> None:
        self.key = key
        self.version = 0  #: incremented when a node changes its domain
        self.ids: Column = np.full(size, NO_DOMAIN, dtype=np.int64)
        self.known: Mask = np.zeros(size, dtype=np.bool_)  #: nodes with the label
        self._values: dict[str, int] = {}
        for row, node in nodes.items():
            self.set_node(row, node)

    def __len__(self) -> int:
        """Return the number of domains, including those that no longer have a node."""
        return len(self._values)

    def domains(self) -> Iterable[tuple[str, int]]:
        """Return the values of the label with their domain numbers."""
        return self._values.items()

    def set_node(self, row: int, node: Node | None) -> None:
        """Apply the addition, change or removal (None) of a node."""
        value = None if node is None else node.metadata.labels.get(self.key)
        domain = NO_DOMAIN if value is None else self._values.setdefault(value, len(self._values))
        if self.ids[row] != domain:
            self.ids[row] = domain
            self.known[row] = domain != NO_DOMAIN
            self.version += 1

    def grow(self, size: int) -> None:
        more = size - len(self.ids)
        self.ids = np.concatenate([self.ids, np.full(more, NO_DOMAIN, dtype=np.int64)])
        self.known = np.concatenate([self.known, np.zeros(more, dtype=np.bool_)])
        self.version += 1

    def present(self, among: Mask) -> Mask:
        """Return the domains of these nodes; the last entry, NO_DOMAIN, is False."""
        found = np.zeros(len(self._values) + 1, dtype=np.bool_)
        found[self.ids[among]] = True
        found[NO_DOMAIN] = False
        return found


class NodeCounts:
    """Integers by node; 0 for nodes that are not present."""

    __slots__ = ("_column", "_few", "_sums")

    def __init__(self) -> None:
        self._few: dict[int, int] = {}
        self._column: Column | None = None
        self._sums: dict[str, tuple[DomainColumn, int, Column]] = {}

    def add(self, row: int, amount: int) -> None:
        for column, version, sums in self._sums.values():
            if column.version == version and column.ids[row] != NO_DOMAIN:
                sums[column.ids[row]] += amount
        if self._column is not None:
            if row >= len(self._column):
                more = np.zeros(max(row + 1, len(self._column)), dtype=np.int64)
                self._column = np.concatenate([self._column, more])
            self._column[row] += amount
            return
        now = self._few.get(row, 0) + amount
        if now:
            self._few[row] = now
            if len(self._few) > _FEW:
                self._to_column()
        else:
            self._few.pop(row, None)

    def _to_column(self) -> None:
        self._column = np.zeros(max(self._few) + 1, dtype=np.int64)
        for row, amount in self._few.items():
            self._column[row] = amount
        self._few = {}

    def nonzero(self) -> tuple[Column, Column]:
        """Return the rows with a nonzero amount, and the amounts."""
        if self._column is not None:
            rows = np.flatnonzero(self._column)
            return rows, self._column[rows]
        rows = np.fromiter(self._few.keys(), dtype=np.int64, count=len(self._few))
        return rows, np.fromiter(self._few.values(), dtype=np.int64, count=len(self._few))

    def as_column(self, size: int) -> Column:
        """Return the amounts as an array of all rows."""
        column = np.zeros(size, dtype=np.int64)
        rows, amounts = self.nonzero()
        column[rows] = amounts
        return column

    def as_dict(self) -> dict[int, int]:
        rows, amounts = self.nonzero()
        return dict(sorted(zip(rows.tolist(), amounts.tolist(), strict=True)))

    # -- by domain

    def sums(self, column: DomainColumn) -> Column:
        """Return the sum for each domain, read-only; the last entry, NO_DOMAIN, is 0."""
        known = self._sums.get(column.key)
        if known is not None and known[0] is column and known[1] == column.version:
            return known[2]
        sums = self.sums_among(column, None)
        self._sums[column.key] = (column, column.version, sums)
        return sums

    def sums_among(self, column: DomainColumn, among: Mask | None) -> Column:
        """Return the sum for each domain over these nodes only, without caching."""
        sums = np.zeros(len(column) + 1, dtype=np.int64)
        rows, amounts = self.nonzero()
        if among is not None:
            keep = among[rows]
            rows, amounts = rows[keep], amounts[keep]
        np.add.at(sums, column.ids[rows], amounts)
        sums[NO_DOMAIN] = 0
        return sums

    def sum_at(self, column: DomainColumn, row: int) -> int:
        """Return the sum for the domain of one node."""
        return int(self.sums(column)[column.ids[row]])
