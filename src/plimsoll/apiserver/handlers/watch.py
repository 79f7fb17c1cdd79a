"""Watch handler: initial state, selection, bookmarks and timeout of a watch.

An object that starts or stops matching the selector is reported as added or deleted. Every event after the
start is sent once and in order, and not before it is durable. A client that falls behind the event history
gets 410 and lists again. A slow watch does not delay others.
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
from plimsoll.apiserver.handlers.watch_format import WatchFormat
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import resource_expired, resource_version_too_large
from plimsoll.apiserver.storage import Store, StoredObject, StoreEvent, WatchCursor
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.errors import ApiError, StoreError

#: Interval of bookmarks on a watch that allows them.
BOOKMARK_SECONDS = 60.0
#: Default timeout of a watch: from this to twice this, so that not all end at the same time.
MIN_LIFETIME_SECONDS = 1800.0
_CHUNK_BYTES = 256 * 1024
_SMALL_BATCH = 32


class WatchHandler:
    """Handler of watches."""

    def __init__(self, store: Store, field_cache: SelectableFieldCache) -> None:
        self._store = store
        self._field_cache = field_cache

    async def watch(
        self,
        info: RequestInfo,
        options: ListOptions,
        format: WatchFormat,
        time_slice: TimeSlice,
        initialized: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes]:
        """Return the frames of a watch. Errors before the first frame are raised; later ones are frames.
        `initialized` is called when the initial events are sent.

        DIFF: a future resourceVersion is rejected at once, so that the client of a cluster restored from a
        backup lists again; upstream waits for that version (test_a_watch_from_the_future).
        """
        selection = parse_selection(info, options)
        version, initial = options.resource_version, options.send_initial_events
        if version is not None and version > self._store.revision:
            raise resource_version_too_large(version, self._store.revision)
        state = initial is True or (initial is None and not version)
        if state or not version:
            since = self._store.revision
        else:
            since = version
        try:
            cursor = self._store.watch(info.resource.storage_key, since)
        except ApiError as error:
            return _refuse(format, error)
        lifetime = (
            options.timeout_seconds
            if options.timeout_seconds
            else MIN_LIFETIME_SECONDS * (1 + random.random())
        )
        return _WatchStream(
            self._store, self._field_cache, selection, cursor, options, format, time_slice
        ).frames(state, bool(initial), since, lifetime, initialized)


async def _refuse(format: WatchFormat, error: ApiError) -> AsyncGenerator[bytes]:
    yield format.encode_error(error)


class _WatchStream:
    """Frames of one watch."""

    def __init__(
        self,
        store: Store,
        field_cache: SelectableFieldCache,
        selection: ObjectSelection,
        cursor: WatchCursor,
        options: ListOptions,
        format: WatchFormat,
        time_slice: TimeSlice,
    ) -> None:
        self._time_slice = time_slice
        self._store, self._field_cache, self._selection = store, field_cache, selection
        self._cursor, self._format = cursor, format
        self._bookmarks = options.allow_bookmarks
        self._everything = selection.matches_all and selection.namespace is None

    async def frames(
        self,
        state: bool,
        bookmark_end: bool,
        since: int,
        lifetime: float,
        initialized: Callable[[], None] | None,
    ) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        is_shared = self._everything and self._format.is_stored_form  # all such watches send the same frames
        due = end = loop.time() + lifetime
        timer: asyncio.TimerHandle | None = None
        try:
            if state:
                async for chunk in self._initial_frames(since):
                    yield chunk
                if bookmark_end:
                    yield self._bookmark(since, {"k8s.io/initial-events-end": "true"})
            if initialized is not None:
                initialized()
            while True:
                if timer is None:  # one timer for each bookmark, not for each event
                    due = min(end, loop.time() + BOOKMARK_SECONDS) if self._bookmarks else end
                    timer = loop.call_at(due, self._cursor.wake)
                events = await self._cursor.next()
                if is_shared and len(events) == 1:
                    yield events[0].frame()
                elif is_shared and 0 < len(events) <= _SMALL_BATCH:
                    yield b"".join([event.frame() for event in events])
                else:
                    async for chunk in self._chunks(self._event_frames(events)):
                        yield chunk
                if events and loop.time() < due:  # with constant events, the timer's wake-up has no effect
                    continue
                timer.cancel()
                timer = None
                if self._bookmarks:
                    yield self._bookmark(self._cursor.revision, {})
                if loop.time() >= end:
                    return
        except ApiError as error:
            yield self._format.encode_error(error)
        except StoreError:
            yield self._format.encode_error(resource_expired("the server is shutting down"))
        finally:
            if timer is not None:
                timer.cancel()
            self._cursor.close()

    async def _initial_frames(self, at: int) -> AsyncGenerator[bytes]:
        """Yield ADDED frames for all existing objects."""
        await self._store.wait_durable(at)
        after = None
        while True:
            page = self._store.list(
                self._selection.resource.storage_key,
                self._selection.namespace,
                after=after,
                limit=1000,
                at=at,
            )
            async for chunk in self._chunks(self._added_frames(page.items)):
                yield chunk
            if not page.remaining:
                return
            after = (page.items[-1].key.namespace, page.items[-1].key.name)

    def _added_frames(self, items: Iterable[StoredObject]) -> Iterable[bytes]:
        """Yield a frame for each object; an empty one if it is not selected."""
        selection = self._selection
        for stored in items:
            if selection.matches_all or selection.includes(
                stored.key, self._field_cache.of(selection.resource, stored)
            ):
                yield self._format.encode_event("ADDED", stored.raw)
            else:
                yield b""

    def _event_frames(self, events: Iterable[StoreEvent]) -> Iterable[bytes]:
        """Yield a frame for each event; an empty one if it does not concern this selection."""
        encode, is_stored_form = self._format.encode_event, self._format.is_stored_form
        for event in events:
            type = event.type if self._everything else self._type_for(event)
            if not type:
                yield b""
                continue
            if type == "DELETED" and event.type != "DELETED":
                yield encode(type, _last_match(event))
            elif is_stored_form:
                yield event.frame(type)
            else:
                yield encode(type, event.raw)

    def _type_for(self, event: StoreEvent) -> str:
        """Return the type of an event for this selection, or ""."""
        selection, key = self._selection, event.key
        if selection.namespace is not None and key.namespace != selection.namespace:
            return ""
        if selection.matches_all:
            return event.type
        before, after = self._field_cache.of_event(selection.resource, event)
        was = before is not None and selection.includes(key, before)
        if event.type == "DELETED":
            return "DELETED" if was else ""
        if selection.includes(key, after):
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    async def _chunks(self, frames: Iterable[bytes]) -> AsyncGenerator[bytes]:
        """Join frames into chunks worth a system call each, yielding to other requests in between."""
        buffered: list[bytes] = []
        size = 0
        with self._time_slice.renew() as time_slice:
            for frame in frames:
                if frame:
                    buffered.append(frame)
                    size += len(frame)
                if time_slice.is_expired:
                    await time_slice.pause()
                if size >= _CHUNK_BYTES:
                    chunk = b"".join(buffered)
                    buffered, size = [], 0
                    time_slice.release()  # the client may read slowly
                    yield chunk
        if buffered:
            yield b"".join(buffered)

    def _bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        return self._format.encode_bookmark(metadata)


def _last_match(event: StoreEvent) -> bytes:
    """Return the last matching state of an object that no longer matches, at the revision of the change."""
    tree = codec.decode_tree(event.previous or event.raw)
    tree["metadata"]["resourceVersion"] = str(event.revision)
    return codec.encode(tree)
