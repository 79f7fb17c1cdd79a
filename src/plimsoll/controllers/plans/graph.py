"""Who owns whom: every object that the garbage collector knows, and the objects that name it as their owner.

Owns `Graph`. Promises: after any sequence of objects put in and taken out, it answers as if it had been built
from the objects that are left.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import Endpoint

#: The finalizers that tell what is to become of the objects that a deleted object owns.
ORPHAN_DEPENDENTS = "orphan"
DELETE_DEPENDENTS = "foregroundDeletion"


class Item(NamedTuple):
    """One object."""

    endpoint: Endpoint
    metadata: ObjectMeta

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_orphaning(self) -> bool:
        """Whether it goes as soon as what it owns is set free."""
        return self.is_deleting and ORPHAN_DEPENDENTS in self.metadata.finalizers

    @property
    def is_waiting(self) -> bool:
        """Whether it goes as soon as what it owns is gone."""
        return self.is_deleting and DELETE_DEPENDENTS in self.metadata.finalizers

    def blocks(self, uid: str) -> bool:
        """Whether an owner that waits for what it owns waits for this object."""
        owners = self.metadata.owner_references
        return any(owner.uid == uid and owner.block_owner_deletion for owner in owners)


class Graph:
    """See the module."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._owned: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, uid: str) -> Item | None:
        return self._items.get(uid)

    def dependents(self, uid: str) -> list[Item]:
        """The known objects that name an owner, in a fixed order."""
        return [self._items[owned] for owned in sorted(self._owned.get(uid, ()))]

    def put(self, item: Item) -> None:
        self.take(item.metadata.uid)
        self._items[item.metadata.uid] = item
        for owner in item.metadata.owner_references:
            self._owned.setdefault(owner.uid, set()).add(item.metadata.uid)

    def take(self, uid: str) -> Item | None:
        item = self._items.pop(uid, None)
        if item is not None:
            for owner in item.metadata.owner_references:
                owned = self._owned.get(owner.uid)
                if owned is not None:
                    owned.discard(uid)
                    if not owned:
                        del self._owned[owner.uid]
        return item
