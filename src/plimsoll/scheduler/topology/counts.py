"""Counts by node and by topology domain.

`DomainColumn` numbers the domains of nodes. `PlaceCounts` holds integers by node, in a dictionary while there
are few and in an array when there are many: thousands of rules with one pod each and one rule with thousands
of pods are both cheap.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from plimsoll.api.core import Node
from plimsoll.ledger.columns import Column, Mask

NOWHERE = -1
_FEW = 32


class DomainColumn:
    """Domains of one label key: a number for each node, or NOWHERE without the label."""

    __slots__ = ("_values", "ids", "key", "known", "version")

    def __init__(self, key: str, size: int, nodes: Mapping[int, Node]) -> None:
        self.key = key
        self.version = 0  #: incremented when a node changes its domain
        self.ids: Column = np.full(size, NOWHERE, dtype=np.int64)
        self.known: Mask = np.zeros(size, dtype=np.bool_)  #: nodes with the label
        self._values: dict[str, int] = {}
        for row, node in nodes.items():
            self.note(row, node)

    def __len__(self) -> int:
        """Return the number of domain numbers in use; some may have no node any more."""
        return len(self._values)

    def note(self, row: int, node: Node | None) -> None:
        """Apply the addition, change or removal of a node."""
        value = None if node is None else node.metadata.labels.get(self.key)
        domain = NOWHERE if value is None else self._values.setdefault(value, len(self._values))
        if self.ids[row] != domain:
            self.ids[row] = domain
            self.known[row] = domain != NOWHERE
            self.version += 1

    def grow(self, size: int) -> None:
        more = size - len(self.ids)
        self.ids = np.concatenate([self.ids, np.full(more, NOWHERE, dtype=np.int64)])
        self.known = np.concatenate([self.known, np.zeros(more, dtype=np.bool_)])
        self.version += 1

    def present(self, among: Mask) -> Mask:
        """Return the domains of these nodes; the last entry, NOWHERE, is False."""
        found = np.zeros(len(self._values) + 1, dtype=np.bool_)
        found[self.ids[among]] = True
        found[NOWHERE] = False
        return found


class PlaceCounts:
    """Amounts by node; absent nodes have none."""

    __slots__ = ("_column", "_few", "_sums")

    def __init__(self) -> None:
        self._few: dict[int, int] = {}
        self._column: Column | None = None
        self._sums: dict[str, tuple[DomainColumn, int, Column]] = {}

    def add(self, row: int, amount: int) -> None:
        for column, version, sums in self._sums.values():
            if column.version == version and column.ids[row] != NOWHERE:
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
                self._spread()
        else:
            self._few.pop(row, None)

    def _spread(self) -> None:
        self._column = np.zeros(max(self._few) + 1, dtype=np.int64)
        for row, amount in self._few.items():
            self._column[row] = amount
        self._few = {}

    def at(self, row: int) -> int:
        if self._column is None:
            return self._few.get(row, 0)
        return int(self._column[row]) if row < len(self._column) else 0

    def nonzero(self) -> tuple[Column, Column]:
        """Return the nodes with any, and their amounts."""
        if self._column is not None:
            rows = np.flatnonzero(self._column)
            return rows, self._column[rows]
        many = len(self._few)
        rows = np.fromiter(self._few.keys(), dtype=np.int64, count=many)
        return rows, np.fromiter(self._few.values(), dtype=np.int64, count=many)

    def spread_over(self, size: int) -> Column:
        """Return the amounts as an array over all nodes."""
        column = np.zeros(size, dtype=np.int64)
        rows, amounts = self.nonzero()
        column[rows] = amounts
        return column

    def as_dict(self) -> dict[int, int]:
        rows, amounts = self.nonzero()
        return dict(sorted(zip(rows.tolist(), amounts.tolist(), strict=True)))

    # -- by domain

    def sums(self, column: DomainColumn) -> Column:
        """Return the sum for each domain, read-only; the last is that of NOWHERE: zero."""
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
        sums[NOWHERE] = 0
        return sums

    def sum_at(self, column: DomainColumn, row: int) -> int:
        """Return the sum for the domain of one node."""
        return int(self.sums(column)[column.ids[row]])
