"""Watch: what changes, as it changes.

Owns the life of one watch: the state or the version it starts from, selection (an object that starts or stops
matching is told as added or deleted), bookmarks, its end. Promises: every event after the start once and in
order, none before it is durable; a client too slow for the history gets 410 and lists again; a watch costs
nobody else more than its own events.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.handlers.options import ListOptions
from plimsoll.apiserver.handlers.read import parse_selection
from plimsoll.apiserver.handlers.selectable_fields import ObjectSelection, SelectableFieldCache
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import resource_expired, resource_version_too_large, to_status
from plimsoll.apiserver.storage import Store, StoredObject, StoreEvent, WatchCursor
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.errors import ApiError, StoreError

#: Between bookmarks on a watch that allows them.
BOOKMARK_SECONDS = 60.0
#: How long a watch lives if the client does not say: from this to twice this, so that not all end at once.
MIN_LIFETIME_SECONDS = 1800.0
_CHUNK = 256 * 1024
_FEW = 32

#: Turns stored bytes into the bytes shown to this client.
Render = Callable[[bytes], bytes]


class WatchHandler:
    """Watches for requests."""

    def __init__(self, store: Store, sights: SelectableFieldCache) -> None:
        self._store = store
        self._sights = sights

    async def watch(
        self, route: RequestInfo, options: ListOptions, render: Render | None, turn: TimeSlice
    ) -> AsyncGenerator[bytes]:
        """The frames of a watch. Refusals before the first frame are raised; later ones are frames.

        DIFF: a version that is still to come is refused at once, so that a client of a cluster that went back
        to a copy lists again; upstream waits for it in silence (test_a_watch_from_the_future).
        """
        selection = parse_selection(route, options)
        version, initial = options.version, options.initial
        if version is not None and version > self._store.revision:
            raise resource_version_too_large(version, self._store.revision)
        state = initial is True or (initial is None and not version)
        if state or not version:
            since = self._store.revision
        else:
            since = version
        try:
            feed = self._store.watch(route.resource.storage_key, since)
        except ApiError as error:
            return _refuse(error)
        life = options.timeout if options.timeout else MIN_LIFETIME_SECONDS * (1 + random.random())
        return _Watch(self._store, self._sights, selection, feed, options, render, route, turn).frames(
            state, bool(initial), since, life
        )


async def _refuse(error: ApiError) -> AsyncGenerator[bytes]:
    yield _frame("ERROR", codec.encode(to_status(error)))


class _Watch:
    def __init__(
        self,
        store: Store,
        sights: SelectableFieldCache,
        selection: ObjectSelection,
        feed: WatchCursor,
        options: ListOptions,
        render: Render | None,
        route: RequestInfo,
        turn: TimeSlice,
    ) -> None:
        self._turn = turn
        self._store, self._sights, self._selection = store, sights, selection
        self._feed, self._render, self._route = feed, render, route
        self._bookmarks = options.bookmarks
        self._everything = selection.everything and selection.namespace is None

    async def frames(self, state: bool, marked: bool, since: int, life: float) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        due = end = loop.time() + life
        timer: asyncio.TimerHandle | None = None
        try:
            if state:
                async for chunk in self._state(since):
                    yield chunk
                if marked:
                    yield self._bookmark(since, {"k8s.io/initial-events-end": "true"})
            while True:
                if timer is None:  # one timer for each bookmark, not for each event
                    due = min(end, loop.time() + BOOKMARK_SECONDS) if self._bookmarks else end
                    timer = loop.call_at(due, self._feed.nudge)
                events = await self._feed.next()
                if 0 < len(events) <= _FEW and self._everything and self._render is None:
                    yield b"".join(self._tell(events))  # ready-made frames, most of the time only one
                else:
                    async for chunk in self._chunks(self._tell(events)):
                        yield chunk
                if events and loop.time() < due:  # under constant events the nudge goes unnoticed
                    continue
                timer.cancel()
                timer = None
                if self._bookmarks:
                    yield self._bookmark(self._feed.revision, {})
                if loop.time() >= end:
                    return
        except ApiError as error:
            yield _frame("ERROR", codec.encode(to_status(error)))
        except StoreError:
            yield _frame("ERROR", codec.encode(to_status(resource_expired("the server is shutting down"))))
        finally:
            if timer is not None:
                timer.cancel()
            self._feed.close()

    async def _state(self, at: int) -> AsyncGenerator[bytes]:
        """Everything there is, as if it had just been added."""
        await self._store.settled(at)
        after = None
        while True:
            page = self._store.list(
                self._selection.resource.storage_key,
                self._selection.namespace,
                after=after,
                limit=1000,
                at=at,
            )
            async for chunk in self._chunks(self._added(page.items)):
                yield chunk
            if not page.remaining:
                return
            after = (page.items[-1].key.namespace, page.items[-1].key.name)

    def _added(self, items: Iterable[StoredObject]) -> Iterable[bytes]:
        """A frame for each object; an empty one if it is not selected."""
        selection = self._selection
        for stored in items:
            if selection.everything or selection.includes(
                stored.key, self._sights.of(selection.resource, stored)
            ):
                yield _frame("ADDED", self._show(stored.raw))
            else:
                yield b""

    def _tell(self, events: Iterable[StoreEvent]) -> Iterable[bytes]:
        """A frame for each event; an empty one if it means nothing to this selection."""
        for event in events:
            type = event.type if self._everything else self._type_for(event)
            if not type:
                yield b""
                continue
            if type == "DELETED" and event.type != "DELETED":
                yield _frame(type, self._show(_last_match(event)))
            elif self._render is None:
                yield event.frame(type)
            else:
                yield _frame(type, self._render(event.raw))

    def _type_for(self, event: StoreEvent) -> str:
        """What an event means to this selection; empty if nothing."""
        selection, key = self._selection, event.key
        if selection.namespace is not None and key.namespace != selection.namespace:
            return ""
        if selection.everything:
            return event.type
        before, after = self._sights.of_event(selection.resource, event)
        was = before is not None and selection.includes(key, before)
        if event.type == "DELETED":
            return "DELETED" if was else ""
        if selection.includes(key, after):
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    async def _chunks(self, frames: Iterable[bytes]) -> AsyncGenerator[bytes]:
        """Frames joined into pieces worth a system call each; other requests are served in between."""
        held: list[bytes] = []
        size = 0
        with self._turn.again() as turn:
            for frame in frames:
                if frame:
                    held.append(frame)
                    size += len(frame)
                if turn.due:
                    await turn.pause()
                if size >= _CHUNK:
                    piece = b"".join(held)
                    held, size = [], 0
                    turn.release()  # the client may take its time to read
                    yield piece
        if held:
            yield b"".join(held)

    def _show(self, raw: bytes) -> bytes:
        return raw if self._render is None else self._render(raw)

    def _bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        head = {"kind": self._route.resource.kind, "apiVersion": self._route.api_version}
        return _frame("BOOKMARK", codec.encode({**head, "metadata": metadata}))


def _last_match(event: StoreEvent) -> bytes:
    """An object that no longer matches is told as it was when it did, at the revision of the change."""
    tree = codec.decode_tree(event.previous or event.raw)
    tree["metadata"]["resourceVersion"] = str(event.revision)
    return codec.encode(tree)


def _frame(type: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type.encode(), raw)
