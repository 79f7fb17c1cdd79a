"""Allocatable and free amounts of many nodes, as one numpy column per resource.

Checks one demand against thousands of nodes at once with one int64 comparison per resource. Equivalent to
`fit.py`, which checks one node; a property test compares the two. Free amounts are clamped to int64, which
single demands never exceed. Caches derived from the columns use `changes` to find the nodes to update.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from plimsoll.api.quantity import INT64_MAX, INT64_MIN
from plimsoll.ledger.change_log import NodeChangeLog
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.units import CPU, MEMORY, PODS, Units

Mask: TypeAlias = "NDArray[np.bool_]"
Column: TypeAlias = "NDArray[np.int64]"


_ALL = slice(None)


class NodeColumns:
    """Columns of allocatable and free amounts; call `refresh` when a ledger changes."""

    __slots__ = ("_allocatable", "_free", "_non_zero_free", "_nothing", "changes", "size")

    def __init__(self, ledgers: Sequence[NodeLedger] = (), size: int = 0) -> None:
        """Allocate columns for at least `size` nodes and fill in those given."""
        self.size = max(size, len(ledgers))
        self._nothing: Column = np.zeros(self.size, dtype=np.int64)
        self._free: dict[str, Column] = {PODS: self._nothing.copy()}
        self._allocatable: dict[str, Column] = {PODS: self._nothing.copy()}
        self._non_zero_free: dict[str, Column] = {CPU: self._nothing.copy(), MEMORY: self._nothing.copy()}
        self.changes = NodeChangeLog()
        for row, ledger in enumerate(ledgers):
            self.refresh(row, ledger)

    def refresh(self, row: int, ledger: NodeLedger) -> None:
        """Update the row of one ledger."""
        allocatable, requested = ledger.allocatable, ledger.requested
        columns, free = self._allocatable, self._free
        for names in (allocatable, requested):
            for name in names:
                if name not in columns:
                    columns[name], free[name] = self._nothing.copy(), self._nothing.copy()
        for name, column in columns.items():
            amount = allocatable.get(name, 0)
            column[row] = amount
            free[name][row] = _bounded(amount - requested.get(name, 0))
        free[PODS][row] = allocatable.get(PODS, 0) - len(ledger)
        for name, column in self._non_zero_free.items():
            column[row] = _bounded(allocatable.get(name, 0) - ledger.non_zero[name])
        self.changes.note(row)

    def clear(self, row: int) -> None:
        """Clear the row of a removed node."""
        for columns in (self._allocatable, self._free, self._non_zero_free):
            for column in columns.values():
                column[row] = 0
        self.changes.note(row)

    def grow(self, size: int) -> None:
        """Extend the columns for more nodes."""
        self._nothing = np.zeros(size, dtype=np.int64)
        for columns in (self._allocatable, self._free, self._non_zero_free):
            for name, column in columns.items():
                columns[name] = np.concatenate([column, self._nothing[self.size :]])
        self.size = size

    @property
    def names(self) -> set[str]:
        """Resources that have columns."""
        return {*self._allocatable, *self._free}

    def allocatable(self, name: str) -> Column:
        """Return the allocatable amounts of a resource."""
        return self._allocatable.get(name, self._nothing)

    def free(self, name: str) -> Column:
        """Return the free amounts of a resource."""
        return self._free.get(name, self._nothing)

    def non_zero_free(self, name: str) -> Column:
        """Return the free amounts by NonZeroRequested: containers without a request count a minimum."""
        return self._non_zero_free.get(name, self.free(name))

    def fits_requests(self, demand: Units, skip: Collection[str] = (), rows: slice | Column = _ALL) -> Mask:
        """Return the mask of nodes where one more pod with this demand fits by its requests."""
        mask: Mask = self._free[PODS][rows] >= 1
        for name, amount in demand.items():
            if amount > 0 and name not in skip:
                mask &= self.free(name)[rows] >= np.int64(amount)
        return mask


def _bounded(amount: int) -> int:
    return amount if INT64_MIN <= amount <= INT64_MAX else INT64_MIN if amount < 0 else INT64_MAX
