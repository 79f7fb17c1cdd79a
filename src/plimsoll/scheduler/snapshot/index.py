"""What a rule may keep between pods: an index that the snapshot tells of every change.

Owns `Index`, the ear of a rule. `Snapshot.index(kind)` makes one on first use, shows it everything there is
and tells it everything that happens from then on. Pods that are told are those on a node's books, bound or
assumed; telling `pod_removed` and then `pod_added` of the same pod leaves an index as it was.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Node, Pod


class SnapshotIndex:
    """Hears of changes; override what you need. Places are numbers of nodes, reused when a node is gone."""

    def grown(self, size: int) -> None:
        """There are `size` places now (told first of all, then whenever the number grows)."""

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        """A node is new at a place, or has changed."""

    def node_removed(self, row: int, node: Node) -> None:
        """A node is gone; its pods have been told as removed before."""

    def pod_added(self, row: int, pod: Pod) -> None:
        """A pod is on the books of a node now."""

    def pod_removed(self, row: int, pod: Pod) -> None:
        """It is so no longer; `pod` is the very object that was told as added."""

    def object_set(self, new: Any, old: Any) -> None:
        """Any other object (a claim, a slice, a namespace, a volume) is new or has changed."""

    def object_removed(self, old: Any) -> None:
        """Any other object is gone."""
