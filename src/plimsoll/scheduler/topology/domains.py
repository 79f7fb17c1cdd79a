"""Index of the topology domains of nodes: one column per topology key, and groups of keys."""

from __future__ import annotations

from plimsoll.api.core import Node
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.topology.counts import DomainColumn

#: Maximum number of cached key groups.
_MAX_GROUPS = 64


class KeyGroup:
    """Nodes that have the labels of several topology keys, and their domains."""

    def __init__(self, columns: tuple[DomainColumn, ...]) -> None:
        self.columns = columns
        self.versions = [column.version for column in columns]
        mask = columns[0].known
        for column in columns[1:]:
            mask = mask & column.known
        self.labeled: Mask = mask
        self.present = tuple(column.present(mask) for column in columns)
        #: For each key, whether all nodes with its label have the other labels.
        self.complete = tuple(bool((column.known == mask).all()) for column in columns)

    @property
    def is_current(self) -> bool:
        return self.versions == [column.version for column in self.columns]


class TopologyDomains(SnapshotIndex):
    """Domain columns of all topology keys in use."""

    def __init__(self) -> None:
        self._size = 0
        self._nodes: dict[int, Node] = {}
        self._columns: dict[str, DomainColumn] = {}
        self._groups: dict[tuple[str, ...], KeyGroup] = {}

    def column(self, key: str) -> DomainColumn:
        found = self._columns.get(key)
        if found is None or len(found) > 2 * self._size + 64:  # mostly domains of removed nodes
            found = self._columns[key] = DomainColumn(key, self._size, self._nodes)
        return found

    def group(self, keys: tuple[str, ...]) -> KeyGroup:
        """Return the group of one or more keys."""
        columns = tuple(self.column(key) for key in keys)
        found = self._groups.pop(keys, None)
        if found is None or found.columns != columns or not found.is_current:
            found = KeyGroup(columns)
            if len(self._groups) >= _MAX_GROUPS:
                del self._groups[next(iter(self._groups))]
        self._groups[keys] = found
        return found

    def resized(self, size: int) -> None:
        self._size = size
        for column in self._columns.values():
            column.grow(size)

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        self._nodes[row] = node
        if old is None or old.metadata.labels != node.metadata.labels:
            for column in self._columns.values():
                column.set_node(row, node)

    def node_removed(self, row: int, node: Node) -> None:
        del self._nodes[row]
        for column in self._columns.values():
            column.set_node(row, None)
