"""Filters that read only a node's own fields: one cached mask per distinct pod signature.

`SignatureIndex` keeps a column of values per signature. A node change only adds a journal entry; the values
for that node are recomputed when a signature is next used. The number of cached signatures is bounded, least
recently used first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from plimsoll.api.core import Node
from plimsoll.ledger.change_log import NodeChangeLog
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

S = TypeVar("S", bound=Hashable)
A = TypeVar("A", np.bool_, np.int64)


class _CachedColumn(Generic[A]):
    """Values for one signature, and the journal position up to which they are current."""

    __slots__ = ("mark", "read_only", "values")

    def __init__(self, values: NDArray[A], mark: int) -> None:
        self.values: NDArray[A] = values
        self.mark = mark
        self.read_only: NDArray[A] = values.view()  # the read-only view for callers
        self.read_only.flags.writeable = False


class SignatureIndex(SnapshotIndex, Generic[S, A]):
    """Values by signature and row; override `relevant`, `answer` and, if few nodes matter, `candidates`."""

    kept: ClassVar[int] = 512
    dtype: type[A]

    def __init__(self) -> None:
        self.size = 0
        self.nodes: dict[int, Node] = {}
        self._journal = NodeChangeLog()
        self._known: dict[S, _CachedColumn[A]] = {}

    # -- to be overridden

    def relevant(self, node: Node) -> object:
        """Return the part of a node that values depend on."""
        raise NotImplementedError

    def answer(self, signature: S, node: Node) -> bool | int:
        """Compute the value for one node."""
        raise NotImplementedError

    def otherwise(self) -> bool | int:
        """Return the value for rows that are not candidates."""
        return 0

    def candidates(self, signature: S) -> Iterable[int]:
        """Return the rows whose value must be computed."""
        return self.nodes

    # -- queries

    def column(self, signature: S) -> NDArray[A]:
        """Return the values of all rows, read-only; rows without a node have an arbitrary value."""
        kept = self._known.pop(signature, None)
        if kept is None:
            kept = _CachedColumn(self._compute(signature), self._journal.mark)
            if len(self._known) >= self.kept:
                del self._known[next(iter(self._known))]
        elif kept.mark != self._journal.mark or len(kept.values) != self.size:
            kept = self._catch_up(signature, kept)
        self._known[signature] = kept  # keep least recently used order
        return kept.read_only

    def _compute(self, signature: S) -> NDArray[A]:
        values = np.full(self.size, self.otherwise(), dtype=self.dtype)
        for row in self.candidates(signature):
            values[row] = self.answer(signature, self.nodes[row])
        return values

    def _catch_up(self, signature: S, kept: _CachedColumn[A]) -> _CachedColumn[A]:
        changes, mark = self._journal.since(kept.mark), self._journal.mark
        if changes is None or len(changes) > len(self.nodes):
            return _CachedColumn(self._compute(signature), mark)
        if len(kept.values) != self.size:
            more = np.full(self.size - len(kept.values), self.otherwise(), dtype=self.dtype)
            kept = _CachedColumn(np.concatenate([kept.values, more]), mark)
        for row in changes:
            node = self.nodes.get(row)
            kept.values[row] = self.otherwise() if node is None else self.answer(signature, node)
        kept.mark = mark
        return kept

    # -- changes of nodes

    def resized(self, size: int) -> None:
        self.size = size

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        self.nodes[row] = node
        if old is None or self.relevant(old) != self.relevant(node):
            self.node_changed(row, node, old)
            self._journal.note(row)

    def node_removed(self, row: int, node: Node) -> None:
        del self.nodes[row]
        self.node_changed(row, None, node)
        self._journal.note(row)

    def node_changed(self, row: int, new: Node | None, old: Node | None) -> None:
        """Handle a change of the relevant part of a node."""


class StaticFilter(Filter):
    """Filter with a single reason that removing other pods does not resolve."""

    reason: ClassVar[NodeReason]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, mask: Mask | None = None) -> None:
        super().__init__(pod_info, snapshot)
        self._mask = mask

    def passes(self, node: Node) -> bool:
        """Return whether a node passes."""
        raise NotImplementedError

    def filter(self) -> Mask:
        assert self._mask is not None, "read() gives the mask"
        return self._mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        return () if self.passes(self.snapshot.node(row)) else (self.reason,)

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        count = int(np.count_nonzero(removed))
        return [(self.reason, count)] if count else []

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return np.zeros_like(removed)
