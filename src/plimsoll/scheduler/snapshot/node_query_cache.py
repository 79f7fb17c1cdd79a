"""Per-node query results computed from the ledgers, cached and updated incrementally.

Between two equal pods usually one node changes, the one the first was placed on; only its result is
recomputed. A query has a form for one row and one for many; a test holds them equal. The number of cached
queries is bounded, least recently used first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from plimsoll.ledger.columns import Column, NodeColumns
from plimsoll.scheduler.snapshot.index import SnapshotIndex
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


class _CachedColumn:
    """Results of one query, and the journal position up to which they are current."""

    __slots__ = ("mark", "read_only", "results")

    def __init__(self, results: NDArray[Any], mark: int) -> None:
        self.results = results
        self.mark = mark
        self.read_only = results.view()  # the read-only view for callers
        self.read_only.flags.writeable = False


class NodeQueryCache(SnapshotIndex):
    """Results of all nodes by query."""

    kept: ClassVar[int] = 384

    def __init__(self) -> None:
        self._cached: dict[NodeQuery, _CachedColumn] = {}

    def column(self, query: NodeQuery, snapshot: Snapshot) -> NDArray[Any]:
        """Return the results of all rows, read-only; rows without a node have an arbitrary result."""
        columns = snapshot.columns
        cached = self._cached.pop(query, None)
        if cached is None:
            if len(self._cached) >= self.kept:
                del self._cached[next(iter(self._cached))]
            cached = self._compute(query, snapshot)
        elif cached.mark != columns.changes.mark or len(cached.results) != columns.size:
            changes = columns.changes.since(cached.mark)
            if changes is None or len(cached.results) != columns.size:
                cached = self._compute(query, snapshot)
            else:
                self._catch_up(query, cached, columns, changes)
        self._cached[query] = cached  # keep least recently used order
        return cached.read_only

    def _compute(self, query: NodeQuery, snapshot: Snapshot) -> _CachedColumn:
        columns = snapshot.columns
        results = np.zeros(columns.size, dtype=query.dtype)
        if len(snapshot):
            used = slice(0, columns.size - int(snapshot.alive[::-1].argmax()))
            results[used] = query.evaluate(columns, used)
        return _CachedColumn(results, columns.changes.mark)

    def _catch_up(
        self, query: NodeQuery, cached: _CachedColumn, columns: NodeColumns, changes: Sequence[int]
    ) -> None:
        if len(changes) > _FEW:
            changes = list(dict.fromkeys(changes))
        if len(changes) > _FEW:
            rows: Column = np.array(changes, dtype=np.int64)
            cached.results[rows] = query.evaluate(columns, rows)
        else:
            for row in changes:
                cached.results[row] = query.evaluate_row(columns, row)
        cached.mark = columns.changes.mark
