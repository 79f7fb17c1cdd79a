"""Reference implementation of the store: keeps all events and replays them for every read."""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.storage import ObjectKey, StoreEvent


class EventRecord(NamedTuple):
    """Contents of an event."""

    revision: int
    type: str
    key: ObjectKey
    raw: bytes
    previous: bytes | None


class ReferenceStore:
    """Store that keeps every event and scans all of them."""

    def __init__(self) -> None:
        self.events: list[EventRecord] = []
        self.assigned = 0

    @property
    def revision(self) -> int:
        return self.events[-1].revision if self.events else 0

    def state(self, at: int | None = None) -> dict[ObjectKey, tuple[int, int, bytes]]:
        """Return revision, creation revision and text of every object as of a revision."""
        objects: dict[ObjectKey, tuple[int, int, bytes]] = {}
        for event in self.events:
            if at is not None and event.revision > at:
                break
            if event.type == "DELETED":
                del objects[event.key]
            else:
                created = objects[event.key][1] if event.key in objects else event.revision
                objects[event.key] = (event.revision, created, event.raw)
        return objects

    def write(self, kind: str, key: ObjectKey, tree: dict[str, Any]) -> EventRecord:
        before = self.state().get(key)
        self.assigned += 1
        tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(self.assigned)}}
        event = EventRecord(self.assigned, kind, key, codec.encode(tree), before[2] if before else None)
        self.events.append(event)
        return event

    def objects(
        self, resource: str, namespace: str | None, after: tuple[str, str] | None, at: int | None
    ) -> list[tuple[ObjectKey, int, bytes, int]]:
        return [
            (key, revision, raw, created)
            for key, (revision, created, raw) in sorted(self.state(at).items())
            if key.resource == resource
            and (namespace is None or key.namespace == namespace)
            and (after is None or (key.namespace, key.name) > after)
        ]

    def since(self, resource: str, revision: int) -> list[EventRecord]:
        return [
            event for event in self.events if event.key.resource == resource and event.revision > revision
        ]


def record_of(event: StoreEvent) -> EventRecord:
    return EventRecord(event.revision, event.type, event.key, event.raw, event.previous)


def make_tree(key: ObjectKey, value: Any) -> dict[str, Any]:
    metadata = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "value": value}
