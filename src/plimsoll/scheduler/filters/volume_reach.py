"""Nodes from which volumes are reachable, by their node affinity."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

import numpy as np

from plimsoll.api.core import Node, NodeSelector
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.node_selection import selector_matches
from plimsoll.api.storage import PersistentVolume
from plimsoll.api.volume_matching import MatchingVolumes, volume_order
from plimsoll.scheduler.filters.node_affinity import LabelIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Maximum number of volumes whose nodes are cached.
_MAX_AFFINITIES = 100_000


class VolumeNodes(LabelIndex[NodeSelector, np.bool_]):
    """Index of the nodes that match a volume's node affinity."""

    dtype = np.bool_

    def __init__(self) -> None:
        super().__init__()
        #: Rows by identity of the selector, whose hash costs more than the lookup saves.
        self._reaching: dict[int, tuple[NodeSelector, frozenset[int]]] = {}
        self._rows_at = 0  # journal position of the rows

    def evaluate(self, signature: NodeSelector, node: Node) -> bool:
        return is_reachable(signature, node)

    def reaches(self, row: int, volume: PersistentVolume) -> bool:
        """Return whether a volume is reachable from a node."""
        affinity = volume.required_affinity
        return affinity is None or row in self.rows_reaching(affinity)

    def rows_reaching(self, affinity: NodeSelector) -> frozenset[int]:
        """Return the rows from which a volume is reachable; known until the labels of a node change."""
        if self._rows_at != self._journal.mark:
            self._rows_at = self._journal.mark
            self._reaching.clear()
        found = self._reaching.get(id(affinity))
        if found is None or found[0] is not affinity:
            rows = self.rows_of(affinity.node_selector_terms)
            if rows is None:
                column = self.column(affinity)
                known = frozenset(row for row in self.nodes if column[row])
            else:
                known = frozenset(row for row in rows if is_reachable(affinity, self.nodes[row]))
            if len(self._reaching) >= _MAX_AFFINITIES:
                self._reaching.clear()
            found = self._reaching[id(affinity)] = affinity, known
        return found[1]


def is_reachable(affinity: NodeSelector, node: Node) -> bool:
    """Return whether a volume is reachable from a node.

    Only labels are compared, as upstream does. An invalid affinity matches no node.
    """
    unnamed = Node(metadata=ObjectMeta(labels=node.metadata.labels))
    return selector_matches(affinity, unnamed) is True


def reaches_node(node: Node, volume: PersistentVolume) -> bool:
    """Return whether a volume is reachable from a node."""
    affinity = volume.required_affinity
    return affinity is None or is_reachable(affinity, node)


class ReachableVolumes:
    """Volumes that match a claim, by the rows from which they are reachable."""

    def __init__(self, matching: MatchingVolumes, snapshot: Snapshot) -> None:
        self._matching = matching
        self._index = snapshot.index(VolumeNodes)
        self._anywhere: list[PersistentVolume] = []
        self._by_row: dict[int, list[PersistentVolume]] = {}
        # A volume that refers to the claim is used, or none at all.
        for volume in matching.prebound[:1] or matching.available:
            affinity = volume.required_affinity
            if affinity is None:
                self._anywhere.append(volume)
                continue
            for row in self._index.rows_reaching(affinity):
                self._by_row.setdefault(row, []).append(volume)

    def rows(self) -> Iterable[int]:
        """Return the rows for which there is a volume."""
        return self._index.nodes if self._anywhere else self._by_row

    def near(self, row: int) -> MatchingVolumes:
        """Return the choice on one node."""
        if self._matching.prebound:
            return self._matching
        own = self._by_row.get(row, ())
        return self._matching.near(merge(own, self._anywhere, key=volume_order) if own else self._anywhere)
