"""Storage: the current objects, the history of their changes, and the lists of earlier revisions.

A stored tree is never modified: a write stores a new one, which may share parts with the old one. The JSON of
an object is encoded once and shared by all responses and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from plimsoll.apiserver.status import resource_expired
from tests.simulation.api.kinds import KINDS, Kind

Tree = dict[str, Any]
#: Namespace and name.
Key = tuple[str, str]
encode = msgspec.json.Encoder().encode


class StoredObject(NamedTuple):
    """Object at one revision."""

    key: Key
    tree: Tree
    raw: bytes
    revision: int


class Change(NamedTuple):
    """Write that changed an object: who made it with which request, and the object before and after it."""

    revision: int
    resource: str  #: plural
    type: str  #: ADDED, MODIFIED or DELETED
    old: Tree | None
    new: Tree | None
    user: str
    request: str  #: method and path


class StoreEvent:
    """Change of an object; after a deletion, `new` is its last state at the revision of the deletion."""

    __slots__ = ("_frames", "key", "kind", "new", "old", "revision", "type")

    def __init__(self, type: str, kind: Kind, key: Key, old: StoredObject | None, new: StoredObject) -> None:
        self.type, self.kind, self.key, self.old, self.new = type, kind, key, old, new
        self.revision = new.revision
        self._frames: dict[str, bytes] = {}

    def frame(self, type: str) -> bytes:
        """Return the line of this event in a watch, as the type that it has there."""
        frame = self._frames.get(type)
        if frame is None:
            raw = self.new.raw
            if type == "DELETED" and self.type != "DELETED" and self.old is not None:
                raw = encode(_at_revision(self.old.tree, self.revision))  # the last state that matched
            frame = self._frames[type] = b'{"type":"%b","object":%b}\n' % (type.encode(), raw)
        return frame


class Store:
    """Objects of all kinds and the events since `floor`; `on_event` is called after each."""

    def __init__(self, on_event: Callable[[StoreEvent], None]) -> None:
        self.revision = 0
        self.floor = 0
        self._objects: dict[Kind, dict[Key, StoredObject]] = {kind: {} for kind in KINDS}
        self._sorted: dict[Kind, list[StoredObject]] = {}
        self._history: list[StoreEvent] = []
        self._on_event = on_event

    def get(self, kind: Kind, key: Key) -> StoredObject | None:
        return self._objects[kind].get(key)

    def objects(self, kind: Kind) -> list[StoredObject]:
        """Return the objects of a kind by namespace and name; the list must not be modified."""
        found = self._sorted.get(kind)
        if found is None:
            found = self._sorted[kind] = _sort(self._objects[kind])
        return found

    def objects_at(self, kind: Kind, revision: int) -> list[StoredObject]:
        """Return the objects of a kind at an earlier revision, not before the floor."""
        if revision >= self.revision:
            return self.objects(kind)
        objects = dict(self._objects[kind])
        for event in reversed(self._history):
            if event.revision <= revision:
                break
            if event.kind is kind and event.old is None:
                del objects[event.key]
            elif event.kind is kind and event.old is not None:
                objects[event.key] = event.old
        return _sort(objects)

    def events_since(self, kind: Kind, revision: int) -> list[StoreEvent]:
        """Return the events of a kind after a revision; ApiError 410 if they are forgotten."""
        if revision < self.floor:
            raise resource_expired(f"too old resource version: {revision} ({self.floor})")
        if revision >= self.revision:
            return []
        return [event for event in self._history if event.revision > revision and event.kind is kind]

    def compact(self, keep: int) -> None:
        """Forget all events but the last `keep`."""
        forgotten = self._history[: max(0, len(self._history) - keep)]
        if forgotten:
            self.floor = forgotten[-1].revision
            del self._history[: len(forgotten)]

    def put(self, kind: Kind, key: Key, tree: Tree) -> StoredObject:
        """Store a new object or a new state; the tree and its metadata must not be shared."""
        old = self._objects[kind].get(key)
        new = self._next(key, tree)
        self._objects[kind][key] = new
        self._record(StoreEvent("ADDED" if old is None else "MODIFIED", kind, key, old, new))
        return new

    def remove(self, kind: Kind, key: Key, tree: Tree) -> StoredObject:
        """Remove an object; `tree` is its last state, which must not be shared."""
        old = self._objects[kind].pop(key)
        new = self._next(key, tree)
        self._record(StoreEvent("DELETED", kind, key, old, new))
        return new

    def _next(self, key: Key, tree: Tree) -> StoredObject:
        self.revision += 1
        tree["metadata"]["resourceVersion"] = str(self.revision)
        return StoredObject(key, tree, encode(tree), self.revision)

    def _record(self, event: StoreEvent) -> None:
        self._sorted.pop(event.kind, None)
        self._history.append(event)
        self._on_event(event)


def _sort(objects: dict[Key, StoredObject]) -> list[StoredObject]:
    return [objects[key] for key in sorted(objects)]


def _at_revision(tree: Tree, revision: int) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(revision)}}
