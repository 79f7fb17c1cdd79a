"""Store: reads, writes, watches and revisions.

A write changes what is read at once, and is durable when `wait_durable` returns for its revision. Watches do
not see it before that, and no response may be based on it before that. Revisions only grow and none is used
twice. If a batch of writes cannot be committed, the writes are rolled back, newest first, their waiters get a
StoreError, reads continue, and so do writes as soon as the file can be written again. All methods are for the
thread of the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver import status
from plimsoll.apiserver.storage.compaction import Compactor
from plimsoll.apiserver.storage.current_state import CurrentState, NamespacedName
from plimsoll.apiserver.storage.event_history import Change, EventHistory, WatchCursor
from plimsoll.apiserver.storage.files import copy_store, create_store
from plimsoll.apiserver.storage.loading import OpenedStore, open_store_file
from plimsoll.apiserver.storage.log import TYPES, CompactionState, Durability, Row
from plimsoll.apiserver.storage.records import (
    EventType,
    ListPage,
    ObjectKey,
    PrefixTable,
    StoredObject,
    StoreEvent,
)
from plimsoll.apiserver.storage.snapshots import SnapshotReader
from plimsoll.apiserver.storage.writer import (
    BatchCommitted,
    BatchFailed,
    ChunkCompacted,
    CompactionChunk,
    LogWriter,
    WriteBatch,
)
from plimsoll.errors import StoreError

HISTORY_EVENTS = 100_000
HISTORY_BYTES = 128 << 20
_CODES = {kind: code for code, kind in enumerate(TYPES)}
_MAX_GAPS = 1000

#: Called after every change with the key of the object, and its tree or None.
Observer = Callable[[ObjectKey, dict[str, Any] | None], None]


class StoreStats(NamedTuple):
    """Figures for metrics."""

    revision: int
    durable: int
    floor: int
    events: int  # in the history
    event_bytes: int
    waiting_watches: int
    commits: int  # since the store was opened, as are the next two
    rows: int
    failures: int
    garbage: int  # rows in the file that wait to be deleted
    file_bytes: int  # the file and its write-ahead log


class Store:
    """Objects of a cluster; create one with `open`."""

    def __init__(
        self,
        current: CurrentState,
        history: EventHistory,
        compaction: Compactor | None,
        opened: OpenedStore | None,
    ) -> None:
        self.current = current
        self.history = history
        self._snapshots = SnapshotReader(current, history)
        self._compaction = compaction
        self._path = opened.path if opened else None
        self._revision = self._assigned = history.durable
        self._rows: list[Row] = []  # written in this iteration of the event loop
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._epoch = 0
        self._failed_ranges: list[tuple[int, int, str]] = []  # rolled back revisions, with the reason
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None
        self._commits = self._committed_rows = self._failures = 0
        self._observers: list[Observer] = []
        self._prefixes = PrefixTable()
        self._write_error = ""
        self._writer = (
            LogWriter(opened.log, opened.lock, opened.identity, self._notify_loop) if opened else None
        )

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
        """Open or create a file; without a path everything is kept in memory only.

        Raises StoreError if another process uses the file, it was written by a newer version, or it is
        damaged. A damaged file is renamed, and while it exists no new one is created in its place unless
        `start_empty` is set. With durability "normal" writes are not synced to disk: a crash of the process
        loses nothing, a power failure may lose the last writes.
        """
        current = CurrentState()
        if path is None:
            return cls(
                current,
                EventHistory(max_events=history_events, max_bytes=history_bytes, on_dropped=_ignore_dropped),
                None,
                None,
            )
        compaction = Compactor()
        history = EventHistory(
            max_events=history_events, max_bytes=history_bytes, on_dropped=compaction.on_event_dropped
        )
        opened = open_store_file(
            Path(path), durability, current, history, compaction, start_empty=start_empty
        )
        return cls(current, history, compaction, opened)

    # Reading

    @property
    def revision(self) -> int:
        """Return the revision of the last write, durable or not."""
        return self._revision

    @property
    def durable(self) -> int:
        """Return the revision up to which watches may see events."""
        return self.history.durable

    @property
    def floor(self) -> int:
        """Return the oldest revision that a watch or a list may start from."""
        return self.history.floor

    @property
    def write_error(self) -> str:
        """Return the error of the last commit; empty if it succeeded."""
        return self._write_error

    def get(self, key: ObjectKey) -> StoredObject | None:
        return self.current.get(key)

    def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        after: NamespacedName | None = None,
        limit: int | None = None,
        at: int | None = None,
    ) -> ListPage:
        """Return the objects of a resource ordered by namespace and name, now or as of an older revision.

        Raises ApiError 410 if that revision is too old, and 504 if it has not been reached.
        """
        if at is None or at == self._revision:
            items, remaining = self.current.page(resource, namespace, after, limit)
            return ListPage(items, self._revision, remaining)
        if at < self.history.floor:
            raise status.resource_expired("The resourceVersion for the provided list is too old.")
        if at > self._revision:
            raise status.resource_version_too_large(at, self._revision)
        return self._snapshots.page(resource, namespace, after, limit, at)

    def watch(self, resource: str, since: int) -> WatchCursor:
        """Return a cursor over the events of a resource after a revision; ApiError 410 if it is too old."""
        return self.history.watch(resource, since)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of objects of each resource, and their bytes."""
        return self.current.counts()

    def resource_size(self, resource: str) -> tuple[int, int]:
        """Return the number of objects of one resource, and their bytes."""
        return self.current.resource_size(resource)

    def stats(self) -> StoreStats:
        history = self.history
        return StoreStats(
            revision=self._revision,
            durable=history.durable,
            floor=history.floor,
            events=len(history),
            event_bytes=history.size_bytes,
            waiting_watches=history.count_waiting(),
            commits=self._commits,
            rows=self._committed_rows,
            failures=self._failures,
            garbage=len(self._compaction.garbage) if self._compaction else 0,
            file_bytes=_file_bytes(self._path) if self._path else 0,
        )

    # Writing

    def observe(self, observer: Observer) -> None:
        """Call an observer after every change: with the key, and the object or None if it was deleted."""
        self._observers.append(observer)

    def create(self, key: ObjectKey, tree: dict[str, Any]) -> StoredObject:
        """Write a new object and set its resourceVersion; ApiError 409 if it exists."""
        if self.current.get(key) is not None:
            raise status.already_exists(*key.group_and_plural, key.name)
        return self._write("ADDED", key, tree, None)

    def update(self, key: ObjectKey, tree: dict[str, Any], expected: int) -> StoredObject:
        """Replace an object at the expected revision; ApiError 404 or 409."""
        return self._write("MODIFIED", key, tree, self._require_revision(key, expected))

    def delete(self, key: ObjectKey, tree: dict[str, Any], expected: int) -> StoredObject:
        """Remove an object at the expected revision; `tree` is the last state that watches see."""
        return self._write("DELETED", key, tree, self._require_revision(key, expected))

    async def wait_durable(self, revision: int) -> None:
        """Wait until everything up to a revision is durable; StoreError if it cannot be."""
        self._attach_loop(asyncio.get_running_loop())
        for first, last, reason in self._failed_ranges:
            if first <= revision <= last:
                raise _write_failed(reason)
        if revision <= self.history.durable:
            return
        if revision > self._revision:
            raise StoreError(f"revision {revision} has not been written")
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, future))
        await future

    async def backup(self, to: Path) -> None:
        """Write a copy of everything durable, while the store continues."""
        if self._path is not None:
            await asyncio.to_thread(copy_store, self._path, to)
            return
        if to.exists():
            raise StoreError(f"{to} already exists")
        objects = sorted(self.current, key=lambda stored: stored.revision)
        rows: list[Row] = [
            (stored.revision, 0, _CODES["MODIFIED"], stored.created, *stored.key, stored.raw)
            for stored in objects
        ]
        try:
            state = CompactionState(self._revision, len(rows), sum(row[0] for row in rows))
            await asyncio.to_thread(create_store, to, state, rows)
        except OSError as error:
            raise StoreError(f"{to} cannot be written: {error.strerror}") from None

    async def close(self) -> None:
        """Make pending writes durable and close the file; StoreError if that failed."""
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._attach_loop(loop)
            self._flush_batch()
            self._closing = loop.create_future()
            if self._writer:
                self._writer.put(None)
            else:
                self._finish_close()
        failures = self._failures
        await asyncio.shield(self._closing)
        if self._failures > failures:
            raise _write_failed(self._failed_ranges[-1][2])

    # Internals

    def _require_revision(self, key: ObjectKey, expected: int) -> StoredObject:
        stored = self.current.get(key)
        if stored is None:
            raise status.not_found(*key.group_and_plural, key.name)
        if stored.revision != expected:
            raise status.conflict(*key.group_and_plural, key.name, status.OPTIMISTIC_LOCK_MESSAGE)
        return stored

    def _write(
        self, kind: EventType, key: ObjectKey, tree: dict[str, Any], before: StoredObject | None
    ) -> StoredObject:
        if self._closing is not None:
            raise StoreError("the store is closed")
        revision = self._assigned + 1
        metadata = tree.get("metadata")
        if not isinstance(metadata, dict):
            metadata = tree["metadata"] = {}
        metadata["resourceVersion"] = str(revision)
        raw = codec.encode(tree)
        if kind != "DELETED":
            check_size(raw)
        created = before.created if before else revision
        stored = StoredObject(key, revision, *self._prefixes.split(key.resource, raw), created)
        if kind == "DELETED":
            self.current.remove(key)
        else:
            self.current.put(stored)
        history = self.history
        history.append(StoreEvent(kind, stored, before, history.decoded_events))
        previous, self._revision, self._assigned = self._revision, revision, revision
        for observer in self._observers:
            observer(key, None if kind == "DELETED" else tree)
        if self._writer is None:
            history.publish(revision)
            return stored
        if not self._rows:
            self._schedule()
        self._rows.append((revision, previous, _CODES[kind], created, *key, raw))
        return stored

    def _schedule(self) -> None:
        """Flush all writes of this iteration of the event loop at its end."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None  # the next loop flushes what was written outside of one
            return
        self._attach_loop(loop)
        loop.call_soon(self._flush_batch)

    def _flush_batch(self) -> None:
        if self._rows and self._writer:
            rows, self._rows = self._rows, []
            self._writer.put(WriteBatch(self._epoch, rows))

    def _attach_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have reports processed by this event loop, after those of an earlier one."""
        if loop is not self._loop:
            self._loop = loop
            self._flush_batch()
            self._process_reports()

    def _notify_loop(self) -> None:
        """Have reports processed by the event loop; called by the writer's thread."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._process_reports)
            except RuntimeError:
                return  # the loop has ended; the next one processes them

    def _process_reports(self) -> None:
        writer = self._writer
        while writer and writer.reports:
            report = writer.reports.popleft()
            chunk: CompactionChunk | None = None
            if isinstance(report, BatchCommitted):
                self._commits += 1
                self._write_error = ""
                self._committed_rows += report.rows
                self.history.publish(report.revision)
                self._resolve_waiters()
                chunk = self._compaction.start_chunk(self.floor) if self._compaction else None
            elif isinstance(report, BatchFailed):
                self._roll_back(report.reason)
            elif isinstance(report, ChunkCompacted):
                failed = bool(report.reason)
                chunk = self._compaction.next_chunk(self.floor, failed=failed) if self._compaction else None
            else:
                self._finish_close()
            if chunk and self._closing is None:
                writer.put(chunk)

    def _resolve_waiters(self) -> None:
        durable = self.history.durable
        left = []
        for waiter in self._waiters:
            revision, future = waiter
            if revision > durable:
                left.append(waiter)
            elif not future.done():
                future.set_result(None)
        self._waiters = left

    def _roll_back(self, reason: str) -> None:
        """Undo every write that is not durable: each may depend on the one before it."""
        self._epoch += 1
        self._failures += 1
        self._rows = []
        self._write_error = reason
        first = last = 0
        for event in self.history.roll_back():
            first = event.revision
            last = last or first
            if event.before is not None:
                self.current.put(event.before)
            else:
                self.current.remove(event.key)
            tree = codec.decode_tree(event.before.raw) if event.before is not None else None
            for observer in self._observers:
                observer(event.key, tree)
        self._revision = self.history.durable
        assert last, "a commit without writes failed"
        if self._failed_ranges and self._failed_ranges[-1][1] == first - 1:
            first = self._failed_ranges.pop()[0]
        self._failed_ranges.append((first, last, reason))
        del self._failed_ranges[:-_MAX_GAPS]
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(_write_failed(reason))

    def _finish_close(self) -> None:
        self._writer = None
        self.history.close()
        if self._closing and not self._closing.done():
            self._closing.set_result(None)


def check_size(raw: bytes) -> None:
    """Raise ApiError 413 if an object is too large to be stored."""
    if len(raw) > status.MAX_OBJECT_BYTES:
        raise status.request_entity_too_large(
            f"the object takes {len(raw)} bytes; at most {status.MAX_OBJECT_BYTES} can be stored"
        )


def _ignore_dropped(change: Change) -> None:
    """Do nothing: in memory, nothing is left of a dropped event."""


def _write_failed(reason: str) -> StoreError:
    return StoreError(f"the store could not be written: {reason}")


def _file_bytes(path: Path) -> int:
    size_bytes = 0
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            size_bytes += os.stat(name).st_size
        except OSError:
            continue
    return size_bytes
