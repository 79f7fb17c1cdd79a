"""The store: reads, writes, watches.

Owns the revisions. Promises: a write changes what is read at once, and is durable when `settled` returns for
its revision; nothing is shown to a watch before that, and nothing may be answered to anybody before that.
Revisions only grow and none is used twice. Where a group of writes cannot be made durable they are taken
back, newest first, those who wait for them get a StoreError, reads go on, and so do writes as soon as the
file can be written again. All methods are for the thread of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.cluster.store import refusals
from plimsoll.cluster.store.head import Head, Place
from plimsoll.cluster.store.history import Feed, History
from plimsoll.cluster.store.loading import Opened, open_file
from plimsoll.cluster.store.log import TYPES, Durability, Row, State
from plimsoll.cluster.store.records import Event, EventType, Key, Page, Stored
from plimsoll.cluster.store.rescue import copy_store, write_store
from plimsoll.cluster.store.writer import Batch, Chunk, Committed, Compacted, Failed, Writer
from plimsoll.errors import StoreError

_CODES = {kind: code for code, kind in enumerate(TYPES)}
HISTORY_EVENTS = 100_000
HISTORY_BYTES = 128 << 20
#: How many rows are deleted in one transaction, and how many must be waiting for it.
_CHUNK = 256
_ENOUGH = 2048
_MOST_GAPS = 1000


#: Told of every change of an object: its key, and its tree or None.
Observer = Callable[[Key, dict[str, Any] | None], None]


class Stats(NamedTuple):
    """Figures for metrics."""

    revision: int
    durable: int
    floor: int
    events: int
    event_bytes: int
    waiting_feeds: int
    commits: int
    rows: int
    failures: int
    garbage: int


class Store:
    """The objects of a cluster; `open` makes one."""

    def __init__(self, opened: Opened | None, head: Head, history: History, garbage: list[int]) -> None:
        self._head = head
        self._history = history
        self._garbage = garbage  # revisions of rows in the file that no longer count, oldest first
        self._revision = history.durable
        self._assigned = max(self._revision, opened.revision if opened else 0)
        self._epoch = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._observers: list[Observer] = []
        self._gaps: list[tuple[int, int]] = []  # ranges of revisions that were taken back
        self._reason = self._trouble = ""
        self._rows: list[Row] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._compacting: Chunk | None = None
        self._commits = self._committed_rows = self._failures = 0
        self._path = opened.path if opened else None
        self._state = opened.state if opened else State(0, 0)
        self._dropped = 0  # rows that fell below the floor since the state was written
        self._writer = Writer(opened.log, opened.lock, self._report) if opened else None

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        durability: Durability = "full",
        history_events: int = HISTORY_EVENTS,
        history_bytes: int = HISTORY_BYTES,
        start_empty: bool = False,
    ) -> Store:
        """Open a file, or make it; without a path everything is kept in memory only.

        Raises StoreError when another process has it, when it was written by a newer version, or when it is
        damaged; a damaged file is put aside and never taken for an empty one, unless `start_empty` says so.
        """
        head = Head()
        garbage: list[int] = []
        store: Store | None = None

        def drop(event: Event) -> None:
            if path is None:
                return
            if event.before is not None:
                garbage.append(event.before.revision)
            if event.type == "DELETED":
                garbage.append(event.stored.revision)
            if store is not None:
                store._dropped += 1

        history = History(events=history_events, octets=history_bytes, floor=0, dropped=drop)
        opened = None
        if path is not None:
            opened = open_file(Path(path), durability, head, history, garbage, start_empty=start_empty)
        store = cls(opened, head, history, garbage)
        if opened:
            store._dropped = opened.rows - opened.state.rows - len(history)
        return store

    # Reading

    @property
    def revision(self) -> int:
        """The revision of the last write, durable or not."""
        return self._revision

    @property
    def durable(self) -> int:
        """The last revision that watches may show."""
        return self._history.durable

    @property
    def floor(self) -> int:
        """The oldest revision that a watch may start from, or a list be asked at."""
        return self._history.floor

    @property
    def trouble(self) -> str:
        """Why the last group of writes could not be made durable; empty if it was."""
        return self._trouble

    def get(self, key: Key) -> Stored | None:
        return self._head.get(key)

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        after: Place | None = None,
        limit: int | None = None,
        at: int | None = None,
    ) -> Page:
        """The objects of a resource in the order of namespace and name, now or as of an older revision."""
        if at is None or at == self._revision:
            items, remaining = self._head.page(resource, namespace, after, limit)
            return Page(items, self._revision, remaining)
        if at < self._history.floor:
            raise refusals.list_expired()
        if at > self._revision:
            raise refusals.too_large(at, self._revision)
        return self._page_at(resource, namespace, after, limit, at)

    def watch(self, resource: str, since: int) -> Feed:
        """Follow the events of a resource past a revision; raises ApiError 410 when that is too long ago."""
        self._meet_loop()
        return self._history.follow(resource, since)

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each resource how many objects there are, and their bytes."""
        return self._head.counts()

    def stats(self) -> Stats:
        history = self._history
        return Stats(
            self._revision,
            history.durable,
            history.floor,
            len(history),
            history.octets,
            history.feeds_waiting(),
            self._commits,
            self._committed_rows,
            self._failures,
            len(self._garbage),
        )

    def observe(self, observer: Observer) -> None:
        """Have every change of the head told at once: the key, and the object or None if it is gone."""
        self._observers.append(observer)

    # Writing

    def create(self, key: Key, tree: dict[str, Any]) -> Stored:
        """Write a new object; sets its resourceVersion. Raises ApiError 409 when there is one."""
        if self._head.get(key) is not None:
            raise refusals.already_exists(key)
        return self._write("ADDED", key, tree, None)

    def update(self, key: Key, tree: dict[str, Any], expected: int) -> Stored:
        """Replace an object at the revision expected; raises ApiError 404 or 409."""
        return self._write("MODIFIED", key, tree, self._expect(key, expected))

    def delete(self, key: Key, tree: dict[str, Any], expected: int) -> Stored:
        """Remove an object at the revision expected; the tree is the last state that watches see."""
        return self._write("DELETED", key, tree, self._expect(key, expected))

    async def settled(self, revision: int) -> None:
        """Return once everything up to a revision is durable; raises StoreError when it cannot be."""
        self._meet_loop()
        if self._writer and self._writer.outcomes:
            self._collect()
        if self._gaps:
            self._check_gaps(revision)
        if revision <= self._history.durable:
            return
        if revision > self._revision:
            raise StoreError(f"revision {revision} has not been written yet")
        if self._closing:
            raise StoreError("the store is closed")
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, future))
        await future

    async def backup(self, to: Path) -> None:
        """Write a copy that holds everything that is durable now, while the store goes on."""
        if self._path is None:
            await asyncio.to_thread(write_store, to, list(self._head), self._revision)
        else:
            await asyncio.to_thread(copy_store, self._path, to)

    async def close(self) -> None:
        """Make durable what is under way, and let go of the file."""
        if self._closing:
            return
        self._meet_loop()
        self._kick()
        self._closing = True
        if self._writer:
            self._writer.put(None)
            await asyncio.to_thread(self._writer.thread.join)
            self._collect()
        self._history.close()

    # Inside

    def _expect(self, key: Key, expected: int) -> Stored:
        stored = self._head.get(key)
        if stored is None:
            raise refusals.not_found(key)
        if stored.revision != expected:
            raise refusals.conflict(key)
        return stored

    def _write(self, kind: EventType, key: Key, tree: dict[str, Any], before: Stored | None) -> Stored:
        if self._closing:
            raise StoreError("the store is closed")
        revision = self._assigned + 1
        metadata = tree.get("metadata")
        if not isinstance(metadata, dict):
            metadata = tree["metadata"] = {}
        metadata["resourceVersion"] = str(revision)
        raw = codec.encode(tree)
        created = before.created if before else revision
        stored = Stored(key, revision, raw, created)
        if kind == "DELETED":
            self._head.remove(key)
        else:
            self._head.put(stored)
        history = self._history
        history.append(Event(kind, stored, before, history.warm))
        previous, self._revision, self._assigned = self._revision, revision, revision
        for observer in self._observers:
            observer(key, None if kind == "DELETED" else tree)
        if self._writer is None:
            history.show(revision)
            return stored
        if not self._rows:
            self._schedule()
        self._rows.append(
            (revision, previous, _CODES[kind], created, key.resource, key.namespace, key.name, raw)
        )
        return stored

    def _schedule(self) -> None:
        """Hand over at the end of this turn of the event loop all that it wrote."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # written outside of a loop: `settled` or `close` hands it over
        self._loop = loop
        loop.call_soon(self._kick)

    def _kick(self) -> None:
        if self._rows and self._writer:
            rows, self._rows = self._rows, []
            self._writer.put(Batch(self._epoch, rows))

    def _meet_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._kick()

    def _report(self) -> None:
        """Called by the writer's thread: have the outcomes read by the loop."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                return  # that loop has ended; the next one to wait reads them

    def _collect(self) -> None:
        assert self._writer is not None
        outcomes = self._writer.outcomes
        while outcomes:
            outcome = outcomes.popleft()
            if isinstance(outcome, Committed):
                self._commits += 1
                self._trouble = ""
                self._committed_rows += outcome.rows
                self._history.show(outcome.revision)
                self._release()
                self._compact()
            elif isinstance(outcome, Failed):
                if outcome.epoch == self._epoch:
                    self._take_back(outcome.reason)
            elif isinstance(outcome, Compacted):
                self._compacted(outcome.reason)

    def _release(self) -> None:
        durable = self._history.durable
        left = []
        for waiter in self._waiters:
            if waiter[0] > durable:
                left.append(waiter)
            elif not waiter[1].done():
                waiter[1].set_result(None)
        self._waiters = left

    def _take_back(self, reason: str) -> None:
        """Undo every write that is not durable: each may rest upon the one before it."""
        self._epoch += 1
        self._failures += 1
        self._rows = []
        self._reason = self._trouble = reason
        first = last = 0
        for event in self._history.undo():
            first = event.revision
            last = last or first
            if event.before is not None:
                self._head.put(event.before)
            else:
                self._head.remove(event.key)
            tree = codec.decode_tree(event.before.raw) if event.before is not None else None
            for observer in self._observers:
                observer(event.key, tree)
        self._revision = self._history.durable
        if self._gaps and self._gaps[-1][1] == first - 1:
            self._gaps[-1] = (self._gaps[-1][0], last)
        else:
            self._gaps.append((first, last))
            del self._gaps[:-_MOST_GAPS]
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(self._failure())

    def _check_gaps(self, revision: int) -> None:
        for first, last in reversed(self._gaps):
            if first <= revision <= last:
                raise self._failure()
            if last < revision:
                return

    def _failure(self) -> StoreError:
        return StoreError(f"the store could not be written: {self._reason}")

    def _page_at(
        self, resource: str, namespace: str | None, after: Place | None, limit: int | None, at: int
    ) -> Page:
        objects = dict(self._head.resource(resource))
        for event in reversed(self._history.since(resource, at)):
            if event.before is not None:
                objects[event.key[1:]] = event.before
            else:
                objects.pop(event.key[1:], None)
        places: Sequence[Place] = sorted(
            place
            for place in objects
            if (namespace is None or place[0] == namespace) and (after is None or place > after)
        )
        stop = len(places) if limit is None else limit
        return Page([objects[place] for place in places[:stop]], at, max(0, len(places) - stop))

    # Compaction

    def _compact(self) -> None:
        if self._compacting or self._closing or len(self._garbage) < _ENOUGH or not self._writer:
            return
        self._put_chunk()

    def _put_chunk(self) -> None:
        revisions = self._garbage[:_CHUNK]
        state = State(self._history.floor, self._state.rows + self._dropped - len(revisions))
        self._compacting = Chunk(state, revisions)
        self._dropped = 0
        assert self._writer is not None
        self._writer.put(self._compacting)

    def _compacted(self, reason: str) -> None:
        chunk, self._compacting = self._compacting, None
        assert chunk is not None
        if reason:
            self._dropped = chunk.state.rows + len(chunk.revisions) - self._state.rows + self._dropped
            return
        self._state = chunk.state
        del self._garbage[: len(chunk.revisions)]
        if self._garbage and not self._closing:
            self._put_chunk()
