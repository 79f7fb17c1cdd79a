"""Indexes of a snapshot: created and filled on first use, and notified of every later change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.snapshot.index import SnapshotIndex

I = TypeVar("I", bound=SnapshotIndex)  # noqa: E741


class SnapshotIndexes(dict[type[SnapshotIndex], SnapshotIndex]):
    """Indexes by their class. Each method notifies all of them."""

    def create(
        self,
        kind: type[I],
        size: int,
        nodes: Iterable[tuple[int, Node]],
        pods: Iterable[tuple[int, Pod]],
        objects: Mapping[type[Any], Mapping[Any, Any]],
    ) -> I:
        """Create an index and fill it with the current nodes, pods and other objects (by kind)."""
        index = kind()
        self[kind] = index
        index.resized(size)
        # Most indexes need only some of the objects.
        if kind.node_set is not SnapshotIndex.node_set:
            for row, node in nodes:
                index.node_set(row, node, None)
        if kind.pod_added is not SnapshotIndex.pod_added:
            for row, pod in pods:
                index.pod_added(row, pod)
        if kind.object_changed is not SnapshotIndex.object_changed:
            for each in kind.kinds or objects:
                for thing in objects.get(each, {}).values():
                    index.object_changed(None, thing)
        return index

    def resized(self, size: int) -> None:
        for index in self.values():
            index.resized(size)

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        for index in self.values():
            index.node_set(row, node, old)

    def node_removed(self, row: int, node: Node) -> None:
        for index in self.values():
            index.node_removed(row, node)

    def pod_added(self, row: int, pod: Pod) -> None:
        for index in self.values():
            index.pod_added(row, pod)

    def pod_removed(self, row: int, pod: Pod) -> None:
        for index in self.values():
            index.pod_removed(row, pod)

    def object_changed(self, old: Any, new: Any) -> None:
        for index in self.values():
            index.object_changed(old, new)
