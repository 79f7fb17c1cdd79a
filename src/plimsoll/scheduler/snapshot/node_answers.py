"""Answers that are worked out from the books of all nodes, kept, and brought up to date.

Owns `Question`, something one can ask about the columns of the books, and `Answers`, which keeps a column of
answers for each question. Between two pods alike usually one node has changed: the one where the first of
them went; only that answer is worked out again. A question has a form for one place and one for many; a test
holds them equal. The number of questions is bounded; the one not asked for the longest goes first.
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
    """A question about the books of a node; equal ones have equal answers."""

    __slots__ = ()
    dtype: ClassVar[type[np.generic]] = np.int64

    def at(self, columns: NodeColumns, row: int) -> int:
        """The answer for one place."""
        raise NotImplementedError

    def over(self, columns: NodeColumns, rows: Rows) -> NDArray[Any]:
        """The answers for many places."""
        raise NotImplementedError


class _CachedColumn:
    """The answers to one question, and how far in the journal of changes they go."""

    __slots__ = ("answers", "mark", "shown")

    def __init__(self, answers: NDArray[Any], mark: int) -> None:
        self.answers = answers
        self.mark = mark
        self.shown = answers.view()  # what others see, and cannot write to
        self.shown.flags.writeable = False


class NodeQueryCache(SnapshotIndex):
    """The answers of all nodes, by question."""

    kept: ClassVar[int] = 384

    def __init__(self) -> None:
        self._known: dict[NodeQuery, _CachedColumn] = {}

    def column(self, question: NodeQuery, snapshot: Snapshot) -> NDArray[Any]:
        """The answers at all places, to be read only; places without a node have any answer."""
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
