"""Base class of snapshot indexes, which filters and caches keep between attempts.

`Snapshot.index(kind)` creates an index on first use, fills it with the current objects and notifies it of
every later change. Pods are those in a node's ledger, bound or assumed. `pod_removed` followed by `pod_added`
for the same pod leaves an index unchanged.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Node, Pod


class SnapshotIndex:
    """Receiver of snapshot changes; override what you need. A row is a node's index in columns, reused
    when the node is removed.
    """

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

    def object_set(self, new: Any, old: Any) -> None:
        """Handle any other new or changed object (claim, slice, namespace, volume)."""

    def object_removed(self, old: Any) -> None:
        """Handle any other deleted object."""
