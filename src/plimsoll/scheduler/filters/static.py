"""Rules that look at a node's own fields only: worked out once for all pods that ask the same.

Owns `SignatureIndex`, one column of answers for each signature (what a pod asks), and `StaticFilter`, a rule
on top of it. A change of a node costs nothing but an entry in a journal; the answers for that node, and only
those, are worked out again when a signature is asked for next. The number of signatures that are kept is
bounded; the one that was not asked for the longest goes first. Design, "The hot path", point 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from plimsoll.api.core import Node
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.journal import Journal
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

S = TypeVar("S", bound=Hashable)
A = TypeVar("A", np.bool_, np.int64)


class _CachedColumn(Generic[A]):
    """The answers for one signature, and how far in the journal they go."""

    __slots__ = ("mark", "shown", "values")

    def __init__(self, values: NDArray[A], mark: int) -> None:
        self.values: NDArray[A] = values
        self.mark = mark
        self.shown: NDArray[A] = values.view()  # what others see, and cannot write to
        self.shown.flags.writeable = False


class SignatureIndex(SnapshotIndex, Generic[S, A]):
    """Answers by signature and place; override `relevant`, `answer` and, where few matter, `candidates`."""

    kept: ClassVar[int] = 512
    dtype: type[A]

    def __init__(self) -> None:
        self.size = 0
        self.nodes: dict[int, Node] = {}
        self._journal = Journal()
        self._known: dict[S, _CachedColumn[A]] = {}

    # -- what a rule says

    def relevant(self, node: Node) -> object:
        """The part of a node that answers depend on."""
        raise NotImplementedError

    def answer(self, signature: S, node: Node) -> bool | int:
        """The answer for one node: the naive form of the whole index."""
        raise NotImplementedError

    def otherwise(self) -> bool | int:
        """The answer for places that are not candidates."""
        return 0

    def candidates(self, signature: S) -> Iterable[int]:
        """The places whose answer has to be worked out."""
        return self.nodes

    # -- asking

    def column(self, signature: S) -> NDArray[A]:
        """The answers at all places, to be read only; places without a node have any answer."""
        kept = self._known.pop(signature, None)
        if kept is None:
            kept = _CachedColumn(self._work_out(signature), self._journal.mark)
            if len(self._known) >= self.kept:
                del self._known[next(iter(self._known))]
        elif kept.mark != self._journal.mark or len(kept.values) != self.size:
            kept = self._catch_up(signature, kept)
        self._known[signature] = kept  # the last one asked for stands last
        return kept.shown

    def _work_out(self, signature: S) -> NDArray[A]:
        values = np.full(self.size, self.otherwise(), dtype=self.dtype)
        for row in self.candidates(signature):
            values[row] = self.answer(signature, self.nodes[row])
        return values

    def _catch_up(self, signature: S, kept: _CachedColumn[A]) -> _CachedColumn[A]:
        changes, mark = self._journal.since(kept.mark), self._journal.mark
        if changes is None or len(changes) > len(self.nodes):
            return _CachedColumn(self._work_out(signature), mark)
        if len(kept.values) != self.size:
            more = np.full(self.size - len(kept.values), self.otherwise(), dtype=self.dtype)
            kept = _CachedColumn(np.concatenate([kept.values, more]), mark)
        for row in changes:
            node = self.nodes.get(row)
            kept.values[row] = self.otherwise() if node is None else self.answer(signature, node)
        kept.mark = mark
        return kept

    # -- hearing of nodes

    def grown(self, size: int) -> None:
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
        """What matters of a node is new, other than it was, or gone."""


class StaticFilter(Filter):
    """A rule with one reason that no other pod's leaving would change."""

    reason: ClassVar[NodeReason]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, mask: Mask | None = None) -> None:
        super().__init__(pod_info, snapshot)
        self._mask = mask

    def passes(self, node: Node) -> bool:
        """The rule for one node."""
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
