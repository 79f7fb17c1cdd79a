"""Keys, stored objects and events.

A StoredObject is immutable. The tree and the watch frame of an event are computed once and shared; those of
old events are dropped again.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Literal, NamedTuple

from plimsoll.api import codec

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
#: Number of events that keep their decoded trees and frames.
CACHED_EVENTS = 4096


class ObjectKey(NamedTuple):
    """Key of an object: `resource` is `plural` or `plural.group`; `namespace` is "" for cluster-scoped."""

    resource: str
    namespace: str
    name: str

    @property
    def group_and_plural(self) -> tuple[str, str]:
        plural, _, group = self.resource.partition(".")
        return group, plural


class StoredObject(NamedTuple):
    """Stored object: its JSON text, the revision that wrote it and the one that created it.

    The text is kept in two parts, since the items of a list have no apiVersion and kind: `prefix` is the text
    up to the comma after these, which all objects of a kind share, and `rest` what follows. The prefix is
    empty if the text does not begin with the two fields.
    """

    key: ObjectKey
    revision: int
    prefix: bytes
    rest: bytes
    created: int

    @property
    def raw(self) -> bytes:
        """Return the JSON text."""
        return self.prefix + self.rest

    @property
    def size_bytes(self) -> int:
        return len(self.prefix) + len(self.rest)


class PrefixTable:
    """Prefixes of stored objects, so that equal ones are one."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def split(self, resource: str, raw: bytes) -> tuple[bytes, bytes]:
        """Return the prefix of an object of a resource, and the rest of its text."""
        prefix = self._known.get(resource, b"")
        if not prefix or not raw.startswith(prefix):
            prefix = self._known[resource] = type_prefix(raw)
        return prefix, raw[len(prefix) :]


def type_prefix(raw: bytes) -> bytes:
    """Return the text of an object up to the comma after apiVersion and kind, if it begins with these."""
    found = _PREFIX.match(raw)
    return found[0] if found else b""


_PREFIX = re.compile(rb'\{"apiVersion":"[^"\\]{1,256}","kind":"[^"\\]{1,256}",')


class ListPage(NamedTuple):
    """Page of a list: objects, the revision they are from, and the number of objects after them."""

    items: list[StoredObject]
    revision: int
    remaining: int


class StoreEvent:
    """One write: the object after it and the one before it."""

    __slots__ = ("_decoded_events", "_frames", "_tree", "before", "stored", "type")

    def __init__(
        self,
        kind: EventType,
        stored: StoredObject,
        before: StoredObject | None,
        decoded_events: deque[StoreEvent] | None = None,
    ) -> None:
        self.type: EventType = kind
        self.stored = stored
        self.before = before
        self._decoded_events = decoded_events
        self._tree: Any = None
        self._frames: dict[str, bytes] | None = None

    @property
    def revision(self) -> int:
        return self.stored.revision

    @property
    def key(self) -> ObjectKey:
        return self.stored.key

    @property
    def raw(self) -> bytes:
        """Return the object after the write; for a deletion its last state, at the deletion's revision."""
        return self.stored.raw

    @property
    def previous(self) -> bytes | None:
        """Return the object before the write; None if it was created."""
        return self.before.raw if self.before else None

    @property
    def tree(self) -> Any:
        """Return the decoded object after the write; shared, do not modify it."""
        if self._tree is None:
            self._register_cached()
            self._tree = codec.decode_tree(self.stored.raw)
        return self._tree

    def frame(self, kind: str | None = None) -> bytes:
        """Return the event as one line of a watch, under its own type or another."""
        kind = kind or self.type
        if self._frames is None:
            self._register_cached()
            self._frames = {}
        frame = self._frames.get(kind)
        if frame is None:
            stored = self.stored
            frame = b'{"type":"%b","object":%b%b}\n' % (kind.encode(), stored.prefix, stored.rest)
            self._frames[kind] = frame
        return frame

    def drop_cache(self) -> None:
        """Drop cached values that can be computed again."""
        self._tree = self._frames = None

    def _register_cached(self) -> None:
        decoded_events = self._decoded_events
        if decoded_events is None or self._tree is not None or self._frames:
            return
        decoded_events.append(self)
        if len(decoded_events) > CACHED_EVENTS:
            decoded_events.popleft().drop_cache()

    def __repr__(self) -> str:
        return f"Event({self.type} {'/'.join(self.key)} at {self.revision})"
