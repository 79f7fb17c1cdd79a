"""Base class of snapshot indexes, which filters, scorers and caches keep between attempts.

`Snapshot.index(kind)` creates an index on first use, fills it with the current objects and notifies it of
every later change. Pods are those in a node's ledger, bound or assumed. `pod_removed` followed by `pod_added`
for the same pod leaves an index unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from plimsoll.api.core import Node, Pod

A = TypeVar("A", bound=np.generic)


class SnapshotIndex:
    """Receiver of snapshot changes; override what you need.

    A row is the index of a node in columns; the row of a removed node is reused.
    """

    #: Kinds of the objects that fill the index; empty: all. Later changes of other kinds are reported, too.
    kinds: ClassVar[tuple[type[Any], ...]] = ()

    def resized(self, size: int) -> None:
        """Handle a new number of rows; called first, then whenever the number grows."""

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        """Handle a new or changed node."""

    def node_removed(self, row: int, node: Node) -> None:
        """Handle a removed node; its pods were removed before."""

    def pod_added(self, row: int, pod: Pod) -> None:
        """Handle a pod that was added to a node's ledger."""

    def pod_removed(self, row: int, pod: Pod) -> None:
        """Handle a pod that was removed from a node's ledger; `pod` is the object passed to `pod_added`."""

    def object_changed(self, old: Any, new: Any) -> None:
        """Handle any other object (claim, slice, volume): added if `old` is None, deleted if `new` is."""


class CachedColumn(Generic[A]):
    """Values of all rows, and the journal position up to which they are current."""

    __slots__ = ("mark", "read_only", "values")

    def __init__(self, values: NDArray[A], mark: int) -> None:
        self.values = values
        self.mark = mark
        self.read_only = values.view()
        self.read_only.flags.writeable = False
