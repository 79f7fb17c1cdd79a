"""Filters that read only a node's own fields: one cached mask per pod signature.

`SignatureIndex` keeps a column of values per signature. A node change only adds a journal entry; the values
for that node are recomputed when a signature is next used. The number of cached signatures is bounded; the
least recently used is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from plimsoll.api.core import Node
from plimsoll.ledger.change_log import NodeChangeLog
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.filters.filter import SingleReasonFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.snapshot.index import CachedColumn, SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

S = TypeVar("S", bound=Hashable)
A = TypeVar("A", np.bool_, np.int64)


class SignatureIndex(SnapshotIndex, Generic[S, A]):
    """Values by signature and row; override `relevant`, `evaluate` and, if few nodes matter, `candidates`."""

    kept: ClassVar[int] = 512
    dtype: type[A]

    def __init__(self) -> None:
        self.size = 0
        self.nodes: dict[int, Node] = {}
        self._journal = NodeChangeLog()
        self.cached: dict[S, CachedColumn[A]] = {}

    # -- to be overridden

    def relevant(self, node: Node) -> object:
        """Return the fields of a node that values depend on."""
        raise NotImplementedError

    def evaluate(self, signature: S, node: Node) -> bool | int:
        """Compute the value for one node."""
        raise NotImplementedError

    def default(self) -> bool | int:
        """Return the value for rows that are not candidates."""
        return 0

    def candidates(self, signature: S) -> Iterable[int]:
        """Return the rows whose value must be computed."""
        return self.nodes

    # -- queries

    def column(self, signature: S) -> NDArray[A]:
        """Return the values of all rows, read-only; rows without a node have an arbitrary value."""
        cached = self.cached.pop(signature, None)
        if cached is None:
            cached = CachedColumn(self._compute(signature), self._journal.mark)
            if len(self.cached) >= self.kept:
                del self.cached[next(iter(self.cached))]
        elif cached.mark != self._journal.mark or len(cached.values) != self.size:
            cached = self._catch_up(signature, cached)
        self.cached[signature] = cached  # least recently used first
        return cached.read_only

    def _compute(self, signature: S) -> NDArray[A]:
        values = np.full(self.size, self.default(), dtype=self.dtype)
        for row in self.candidates(signature):
            values[row] = self.evaluate(signature, self.nodes[row])
        return values

    def _catch_up(self, signature: S, cached: CachedColumn[A]) -> CachedColumn[A]:
        changes, mark = self._journal.since(cached.mark), self._journal.mark
        if changes is None or len(changes) > len(self.nodes):
            return CachedColumn(self._compute(signature), mark)
        if len(cached.values) != self.size:
            more = np.full(self.size - len(cached.values), self.default(), dtype=self.dtype)
            cached = CachedColumn(np.concatenate([cached.values, more]), mark)
        for row in changes:
            node = self.nodes.get(row)
            cached.values[row] = self.default() if node is None else self.evaluate(signature, node)
        cached.mark = mark
        return cached

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


class StaticFilter(SingleReasonFilter):
    """Filter whose result depends on the node alone."""

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, mask: Mask | None = None) -> None:
        super().__init__(pod_info, snapshot)
        self._mask = mask

    def passes(self, node: Node) -> bool:
        """Return whether a node passes."""
        raise NotImplementedError

    def filter(self) -> Mask:
        assert self._mask is not None, "pre_filter() sets the mask"
        return self._mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        return () if self.passes(self.snapshot.node(row)) else (self.reason,)
