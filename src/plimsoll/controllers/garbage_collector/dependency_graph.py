"""Dependency graph of the garbage collector: objects and their dependents by owner UID.

After any sequence of additions and removals it equals a graph built from the remaining objects.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import Endpoint

#: Finalizers that select the deletion propagation.
ORPHAN_DEPENDENTS = "orphan"
DELETE_DEPENDENTS = "foregroundDeletion"


class GraphNode(NamedTuple):
    """Object in the graph."""

    endpoint: Endpoint
    metadata: ObjectMeta

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_orphaning(self) -> bool:
        """True if the object is deleted once its dependents are orphaned."""
        return self.is_deleting and ORPHAN_DEPENDENTS in self.metadata.finalizers

    @property
    def is_deleting_dependents(self) -> bool:
        """True if the object is in foreground deletion: it is removed once its dependents are."""
        return self.is_deleting and DELETE_DEPENDENTS in self.metadata.finalizers

    def blocks(self, uid: str) -> bool:
        """Return whether this object blocks the foreground deletion of an owner."""
        owners = self.metadata.owner_references
        return any(owner.uid == uid and owner.block_owner_deletion for owner in owners)


class DependencyGraph:
    """Graph of owners and dependents."""

    def __init__(self) -> None:
        self._items: dict[str, GraphNode] = {}
        self.owned: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, uid: str) -> GraphNode | None:
        return self._items.get(uid)

    def dependents(self, uid: str) -> list[GraphNode]:
        """Return the known dependents of an owner, in a fixed order."""
        return [self._items[owned] for owned in sorted(self.owned.get(uid, ()))]

    def add(self, item: GraphNode) -> None:
        self.remove(item.metadata.uid)
        self._items[item.metadata.uid] = item
        for owner in item.metadata.owner_references:
            self.owned.setdefault(owner.uid, set()).add(item.metadata.uid)

    def remove(self, uid: str) -> GraphNode | None:
        item = self._items.pop(uid, None)
        if item is not None:
            for owner in item.metadata.owner_references:
                owned = self.owned.get(owner.uid)
                if owned is not None:
                    owned.discard(uid)
                    if not owned:
                        del self.owned[owner.uid]
        return item
