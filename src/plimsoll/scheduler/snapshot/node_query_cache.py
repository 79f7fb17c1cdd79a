"""Cache of per-node query results, computed from the ledgers and updated incrementally.

Between two equal pods usually one node changes, the one the first was assigned to; only its result is
recomputed. A query has a form for one row and one for many; a test holds them equal. The number of cached
queries is bounded; the least recently used is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from plimsoll.ledger.columns import Column, NodeColumns
from plimsoll.scheduler.snapshot.index import CachedColumn, SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Rows as a slice or an index array.
Rows: TypeAlias = "slice | Column"
#: Maximum number of rows that are computed one by one.
_FEW = 24


class NodeQuery:
    """Query about the ledger of a node; equal queries have equal results."""

    __slots__ = ()
    dtype: ClassVar[type[np.generic]] = np.int64

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        """Compute the result for one row."""
        raise NotImplementedError

    def evaluate(self, columns: NodeColumns, rows: Rows) -> NDArray[Any]:
        """Compute the results for many rows."""
        raise NotImplementedError


class NodeQueryCache(SnapshotIndex):
    """Results of all nodes by query."""

    kept: ClassVar[int] = 384

    def __init__(self) -> None:
        self.cached: dict[NodeQuery, CachedColumn[Any]] = {}

    def column(self, query: NodeQuery, snapshot: Snapshot) -> NDArray[Any]:
        """Return the results of all rows, read-only; rows without a node have an arbitrary result."""
        columns = snapshot.columns
        cached = self.cached.pop(query, None)
        if cached is None:
            if len(self.cached) >= self.kept:
                del self.cached[next(iter(self.cached))]
            cached = self._compute(query, snapshot)
        elif cached.mark != columns.changes.mark or len(cached.values) != columns.size:
            changes = columns.changes.since(cached.mark)
            if changes is None or len(cached.values) != columns.size:
                cached = self._compute(query, snapshot)
            else:
                self._catch_up(query, cached, columns, changes)
        self.cached[query] = cached  # least recently used first
        return cached.read_only

    def _compute(self, query: NodeQuery, snapshot: Snapshot) -> CachedColumn[Any]:
        columns = snapshot.columns
        results = np.zeros(columns.size, dtype=query.dtype)
        if len(snapshot):
            used = slice(0, columns.size - int(snapshot.alive[::-1].argmax()))
            results[used] = query.evaluate(columns, used)
        return CachedColumn(results, columns.changes.mark)

    def _catch_up(
        self, query: NodeQuery, cached: CachedColumn[Any], columns: NodeColumns, changes: Sequence[int]
    ) -> None:
        if len(changes) > _FEW:
            changes = list(dict.fromkeys(changes))
        if len(changes) > _FEW:
            rows: Column = np.array(changes, dtype=np.int64)
            cached.values[rows] = query.evaluate(columns, rows)
        else:
            for row in changes:
                cached.values[row] = query.evaluate_row(columns, row)
        cached.mark = columns.changes.mark
