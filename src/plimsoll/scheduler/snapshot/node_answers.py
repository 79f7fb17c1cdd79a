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

#: Some places: a range of them, or a list.
Rows: TypeAlias = "slice | Column"
#: Up to so many places are worked out one by one.
_FEW = 24


class NodeQuery:
    """Query about the ledger of a node; equal queries have equal results."""

    __slots__ = ()
    dtype: ClassVar[type[np.generic]] = np.int64

    def at(self, columns: NodeColumns, row: int) -> int:
        """Compute the result for one row."""
        raise NotImplementedError

    def over(self, columns: NodeColumns, rows: Rows) -> NDArray[Any]:
        """Compute the results for many rows."""
        raise NotImplementedError


class _CachedColumn:
    """Results of one query, and the journal position up to which they are current."""

    __slots__ = ("answers", "mark", "shown")

    def __init__(self, answers: NDArray[Any], mark: int) -> None:
        self.answers = answers
        self.mark = mark
        self.shown = answers.view()  # what others see, and cannot write to
        self.shown.flags.writeable = False


class NodeQueryCache(SnapshotIndex):
    """Results of all nodes by query."""

    kept: ClassVar[int] = 384

    def __init__(self) -> None:
        self._known: dict[NodeQuery, _CachedColumn] = {}

    def column(self, question: NodeQuery, snapshot: Snapshot) -> NDArray[Any]:
        """Return the results of all rows, read-only; rows without a node have an arbitrary result."""
        columns = snapshot.columns
        known = self._known.pop(question, None)
        if known is None:
            if len(self._known) >= self.kept:
                del self._known[next(iter(self._known))]
            known = self._work_out(question, snapshot)
        elif known.mark != columns.changes.mark or len(known.answers) != columns.size:
            changes = columns.changes.since(known.mark)
            if changes is None or len(known.answers) != columns.size:
                known = self._work_out(question, snapshot)
            else:
                self._catch_up(question, known, columns, changes)
        self._known[question] = known  # the last one asked for stands last
        return known.shown

    def _work_out(self, question: NodeQuery, snapshot: Snapshot) -> _CachedColumn:
        columns = snapshot.columns
        answers = np.zeros(columns.size, dtype=question.dtype)
        if len(snapshot):
            used = slice(0, columns.size - int(snapshot.alive[::-1].argmax()))
            answers[used] = question.over(columns, used)
        return _CachedColumn(answers, columns.changes.mark)

    def _catch_up(
        self, question: NodeQuery, known: _CachedColumn, columns: NodeColumns, changes: Sequence[int]
    ) -> None:
        if len(changes) > _FEW:
            changes = list(dict.fromkeys(changes))
        if len(changes) > _FEW:
            rows: Column = np.array(changes, dtype=np.int64)
            known.answers[rows] = question.over(columns, rows)
        else:
            for row in changes:
                known.answers[row] = question.at(columns, row)
        known.mark = columns.changes.mark
