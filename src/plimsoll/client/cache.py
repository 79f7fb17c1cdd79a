"""Cache of an informer: computes the changes of a list or a watch event.

Guarantees: applying the changes in order leads from the known state to the server's; no change is reported
twice; an object that was replaced by another of the same name is reported as removed and added; an object
that cannot be decoded keeps its last known state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from plimsoll.client.responses import WatchEvent
from plimsoll.errors import DecodeError

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
#: Content to keep of an object: the decoded view, the raw JSON (decoded at each access), or both.
Keep = Literal["view", "raw", "both"]


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_heads = msgspec.json.Decoder(_Head)


class CacheEntry(msgspec.Struct, frozen=True, gc=False):
    """Cached object."""

    uid: str
    revision: str
    view: Any
    raw: bytes | None


class CacheChange(NamedTuple):
    """Change of one object: `old` is None if it is new, `new` is None if it was removed."""

    key: Key
    old: CacheEntry | None
    new: CacheEntry | None


class Cache(Generic[T]):
    """Cached objects of one collection."""

    def __init__(
        self,
        decode: Callable[[bytes], T],
        keep: Keep = "view",
        report: Callable[[str], None] = lambda problem: None,
    ) -> None:
        self._decode = decode
        self._keep = keep
        self._report = report
        self._entries: dict[Key, CacheEntry] = {}
        #: The revision up to which everything is known.
        self.revision = ""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else self.view(entry)

    def raw(self, key: Key) -> bytes | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.raw

    def keys(self) -> list[Key]:
        return list(self._entries)

    def items(self) -> list[T]:
        return [self.view(entry) for entry in self._entries.values()]

    def entries(self) -> list[tuple[Key, CacheEntry]]:
        return list(self._entries.items())

    def view(self, entry: CacheEntry) -> T:
        view: T = self._decode(entry.raw or b"") if self._keep == "raw" else entry.view
        return view

    def apply(self, event: WatchEvent) -> Iterator[CacheChange]:
        """Yield the changes of a watch event; each is in effect when it is yielded."""
        if is_older(event.revision, self.revision):
            return  # already applied: the watch was resumed at an earlier revision
        if event.type != "BOOKMARK":
            found = self._read(event.raw)
            if found is not None:
                key, uid, revision = found
                old = self._entries.get(key)
                if event.type == "DELETED":
                    new = None
                else:
                    new = self._enter(key, uid, revision, event.raw, old)
                yield from self._change(key, old, new)
        if event.revision:
            self.revision = event.revision

    def replace(self) -> Replacement[T]:
        """Start to replace everything by a new list."""
        return Replacement(self)

    def _read(self, raw: bytes) -> tuple[Key, str, str] | None:
        try:
            meta = _heads.decode(raw).metadata
        except msgspec.DecodeError as error:
            self._report(f"an object with invalid metadata was ignored: {error}")
            return None
        if not meta.name:
            self._report("an object without a name was ignored")
            return None
        return (sys.intern(meta.namespace), meta.name), meta.uid, meta.resource_version

    def _enter(
        self, key: Key, uid: str, revision: str, raw: bytes, old: CacheEntry | None
    ) -> CacheEntry | None:
        """Return the entry of an object; the old one, if it is unchanged or cannot be decoded."""
        if old is not None and old.revision == revision and old.uid == uid and revision:
            return old
        try:
            view = self._decode(raw)
        except DecodeError as error:
            self._report(
                f"{'/'.join(filter(None, key))} cannot be decoded, its last known state is kept: {error}"
            )
            return old
        keep = self._keep
        return CacheEntry(uid, revision, None if keep == "raw" else view, None if keep == "view" else raw)

    def _change(self, key: Key, old: CacheEntry | None, new: CacheEntry | None) -> Iterator[CacheChange]:
        if old is new:
            return
        # DIFF: client-go reports an object that was deleted and recreated between two watches as an update.
        # test_a_recreated_object_is_removed_and_added
        if old is not None and new is not None and old.uid != new.uid:
            del self._entries[key]
            yield CacheChange(key, old, None)
            old = None
        if new is None:
            del self._entries[key]
        else:
            self._entries[key] = new
        yield CacheChange(key, old, new)


class Replacement(Generic[T]):
    """New list in progress: pages are added, then it takes effect as a whole."""

    def __init__(self, cache: Cache[T]) -> None:
        self._cache = cache
        self._entries: dict[Key, CacheEntry] = {}
        self.revision = ""

    def add(self, items: list[bytes], revision: str) -> None:
        """Add a page; a page of another revision means that the list has restarted."""
        if revision != self.revision:
            self._entries.clear()
            self.revision = revision
        for raw in items:
            self.put(raw)

    def apply(self, event: WatchEvent) -> None:
        """Add an event of a watch that starts with the current objects."""
        if event.type != "DELETED":
            self.put(event.raw)
        elif (found := self._cache._read(event.raw)) is not None:
            self._entries.pop(found[0], None)

    def put(self, raw: bytes) -> None:
        cache = self._cache
        found = cache._read(raw)
        if found is None:
            return
        key, uid, revision = found
        entry = cache._enter(key, uid, revision, raw, cache._entries.get(key))
        if entry is not None:
            self._entries[key] = entry

    def commit(self) -> Iterator[CacheChange]:
        """Yield the changes of the list, removals first; each is in effect when it is yielded."""
        cache, fresh = self._cache, self._entries
        for key, old in cache.entries():
            if key not in fresh:
                yield from cache._change(key, old, None)
        for key, new in fresh.items():
            yield from cache._change(key, cache._entries.get(key), new)
        cache.revision = self.revision


def is_older(revision: str, than: str) -> bool:
    """Return whether a resourceVersion is not newer than another; False if they are not numbers."""
    if revision.isdecimal() and than.isdecimal():
        return int(revision) <= int(than)
    return False
