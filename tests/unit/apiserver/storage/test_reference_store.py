"""Property test: the store behaves like its reference implementation under random operations."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.apiserver.storage import ObjectKey, Store, StoreEvent, WatchCursor, compaction
from plimsoll.apiserver.storage.current_state import CurrentState, NamespacedName
from plimsoll.apiserver.storage.event_history import EventHistory
from plimsoll.apiserver.storage.log import Row, StoreLog
from plimsoll.apiserver.storage.records import ListPage
from plimsoll.errors import ApiError, StoreError
from tests.sizes import examples
from tests.unit.apiserver.storage.reference_store import ReferenceStore, make_tree, record_of

T = TypeVar("T")
RESOURCES = ("pods", "resourceclaims.resource.k8s.io")
NAMESPACES = ("", "a", "a-b")
KEYS = [ObjectKey(r, n, name) for r in RESOURCES for n in NAMESPACES for name in ("x", "y")]
keys = st.sampled_from(KEYS)
writes = st.tuples(keys, st.sampled_from(["put", "put", "delete"]), st.integers(0, 9))


def naive_page(
    current: CurrentState,
    history: EventHistory,
    resource: str,
    namespace: str | None,
    after: NamespacedName | None,
    limit: int | None,
    at: int,
) -> ListPage:
    """Revert every event since, newest first, on a copy of all objects; then sort and cut."""
    objects = dict(current.resource(resource))
    for event in reversed(history.since(resource, at)):
        if event.before is not None:
            objects[event.key[1:]] = event.before
        else:
            del objects[event.key[1:]]

    def in_page(name: NamespacedName) -> bool:
        return (namespace is None or name[0] == namespace) and (after is None or name > after)

    names = sorted(name for name in objects if in_page(name))
    stop = len(names) if limit is None else limit
    return ListPage([objects[name] for name in names[:stop]], at, max(0, len(names) - stop))


class StoreMachine(RuleBasedStateMachine):
    """Store in a file, its reference implementation, and cursors with the events they must still return."""

    events = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.db"
        self.reference = ReferenceStore()
        self.cursors: list[tuple[WatchCursor, str, int]] = []  # with the revision they have reached
        self.gate = threading.Event()  # commits wait for it, so that the same steps end the same way
        gate, append = self.gate, StoreLog.append

        def append_when_let(log: StoreLog, rows: Sequence[Row]) -> None:
            gate.wait()
            append(log, rows)

        self.patches: list[Any] = [
            patch.object(compaction, "MIN_GARBAGE_ROWS", 3),
            patch.object(compaction, "CHUNK_ROWS", 2),
            patch.object(StoreLog, "append", append_when_let),
        ]
        for one in self.patches:
            one.start()

    @initialize(
        events=st.sampled_from([1, 4, 15, 10_000]), size_bytes=st.sampled_from([400, 3000, 10_000_000])
    )
    def begin(self, events: int, size_bytes: int) -> None:
        self.bounds = {"history_events": events, "history_bytes": size_bytes}
        self.open()

    def open(self) -> None:
        self.store = Store.open(
            self.path,
            durability="normal",
            history_events=self.bounds["history_events"],
            history_bytes=self.bounds["history_bytes"],
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def write(self, store_only: bool, key: ObjectKey, verb: str, value: int) -> int:
        """Write to the store, and to the reference unless the write is known to be rolled back."""
        tree = make_tree(key, value)
        stored = self.store.get(key)
        if verb == "delete" and stored is None:
            with pytest.raises(ApiError) as refused:
                self.store.delete(key, tree, 1)
            assert (refused.value.code, refused.value.reason) == (404, "NotFound")
            return 0
        if stored is None:
            kind, after = "ADDED", self.store.create(key, tree)
        else:
            with pytest.raises(ApiError) as refused:
                self.store.update(key, tree, stored.revision - 1)
            assert (refused.value.code, refused.value.reason) == (409, "Conflict")
            with pytest.raises(ApiError) as refused:
                self.store.create(key, tree)
            assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")
            write = self.store.delete if verb == "delete" else self.store.update
            kind = "DELETED" if verb == "delete" else "MODIFIED"
            after = write(key, tree, stored.revision)
        if store_only:
            self.reference.assigned += 1
        else:
            expected = self.reference.write(kind, key, tree)
            assert (after.revision, after.raw) == (expected.revision, expected.raw)
        assert after.revision == self.reference.assigned
        return after.revision

    @rule(work=writes)
    def write_outside_of_the_loop(self, work: tuple[ObjectKey, str, int]) -> None:
        self.write(False, *work)

    @rule(work=st.lists(writes, min_size=1, max_size=5))
    def write_some(self, work: Sequence[tuple[ObjectKey, str, int]]) -> None:
        async def write() -> None:
            for one in work:
                self.write(False, *one)
                await asyncio.sleep(0)

        self.run(write())

    @rule()
    def settle(self) -> None:
        self.gate.set()
        self.run(self.store.wait_durable(self.store.revision))
        self.gate.clear()
        assert self.store.durable == self.store.revision == self.reference.revision

    @rule(work=st.lists(writes, min_size=1, max_size=5))
    def fail(self, work: Sequence[tuple[ObjectKey, str, int]]) -> None:
        """Check that writes that cannot be made durable leave nothing but a gap in the revisions."""
        self.settle()

        async def write() -> None:
            revisions = [self.write(True, *one) for one in work]
            waiters = [
                asyncio.ensure_future(self.store.wait_durable(revision)) for revision in revisions if revision
            ]
            for waiter in waiters:
                with pytest.raises(StoreError, match="disk is full"):
                    await waiter
            for revision in revisions:
                if revision:
                    with pytest.raises(StoreError, match="disk is full"):
                        await self.store.wait_durable(revision)

        with patch.object(
            StoreLog, "append", side_effect=sqlite3.OperationalError("database or disk is full")
        ):
            self.run(write())
        assert self.store.revision == self.reference.revision

    @rule(
        resource=st.sampled_from(RESOURCES),
        namespace=st.sampled_from([None, *NAMESPACES]),
        after=st.sampled_from([None, ("", "x"), ("a", ""), ("a", "x"), ("a-b", "y")]),
        limit=st.sampled_from([None, 1, 2, 100]),
        back=st.integers(-1, 30),
    )
    def read(
        self,
        resource: str,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int | None,
        back: int,
    ) -> None:
        at = None if back < 0 else self.store.revision - back
        if at is not None and at < self.store.floor:
            with pytest.raises(ApiError) as refused:
                self.store.list(resource, at=at)
            assert (refused.value.code, refused.value.reason) == (410, "Expired")
            return
        page = self.store.list(resource, namespace, after=after, limit=limit, at=at)
        expected = self.reference.objects(resource, namespace, after, at)
        shown = len(expected) if limit is None else limit
        found = [(stored.key, stored.revision, stored.raw, stored.created) for stored in page.items]
        assert found == expected[:shown]
        assert page.remaining == max(0, len(expected) - shown)
        assert page.revision == (self.store.revision if at is None else at)
        if at is not None:
            head, history = self.store.current, self.store.history
            assert page == naive_page(head, history, resource, namespace, after, limit, at)

    @rule(resource=st.sampled_from(RESOURCES), back=st.integers(-3, 30))
    def watch(self, resource: str, back: int) -> None:
        since = self.store.revision - back
        if since < self.store.floor:
            with pytest.raises(ApiError) as refused:
                self.store.watch(resource, since)
            assert (refused.value.code, refused.value.reason) == (410, "Expired")
        else:
            self.cursors.append((self.store.watch(resource, since), resource, since))

    @rule(number=st.integers(0, 9), limit=st.sampled_from([1, 3, 1000]))
    def read_events(self, number: int, limit: int) -> None:
        if not self.cursors:
            return
        index = number % len(self.cursors)
        cursor, resource, since = self.cursors[index]
        expected = [
            event for event in self.reference.since(resource, since) if event.revision <= self.store.durable
        ]
        events = take(cursor, limit)
        if events is None:
            assert expected[0].revision <= self.store.floor
            del self.cursors[index]
            return
        assert [record_of(event) for event in events] == expected[: len(events)]
        assert len(events) == min(limit, len(expected))
        if events:
            self.cursors[index] = (cursor, resource, events[-1].revision)
        if len(events) == len(expected):
            assert cursor.revision >= self.store.durable

    @rule()
    def reopen(self) -> None:
        self.gate.set()
        self.run(self.store.close())
        self.gate.clear()
        for cursor, _, _ in self.cursors:
            cursor.close()
        self.cursors = []
        self.open()
        assert self.store.revision == self.reference.revision
        self.reference.assigned = self.reference.revision

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.revision == self.reference.revision
        state = self.reference.state()
        for key in KEYS:
            stored = self.store.get(key)
            assert (stored and (stored.revision, stored.created, stored.raw)) == state.get(key)
        counts = self.store.counts()
        for resource in RESOURCES:
            texts = [raw for key, (_, _, raw) in state.items() if key.resource == resource]
            assert counts.get(resource, (0, 0)) == (len(texts), sum(map(len, texts)))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.settle()
            for cursor, resource, since in self.cursors:
                self.drain(cursor, resource, since)
            self.gate.set()
            self.run(self.store.close())
        self.loop.close()
        for one in self.patches:
            one.stop()
        self.directory.cleanup()

    def drain(self, cursor: WatchCursor, resource: str, since: int) -> None:
        """Check that every cursor has returned all events, or has fallen behind."""
        expected = self.reference.since(resource, since)
        events = take(cursor, 100_000)
        if events is None:
            assert expected[0].revision <= self.store.floor
        else:
            assert [record_of(event) for event in events] == expected


def take(cursor: WatchCursor, limit: int) -> list[StoreEvent] | None:
    """Return the events of a cursor; None if it fell behind."""
    try:
        return cursor.take(limit)
    except ApiError as error:
        if (error.code, error.reason) == (410, "Expired"):
            return None
        raise


class TestStore(StoreMachine.TestCase):  # type: ignore[misc, valid-type]  # made at run time
    settings = settings(
        max_examples=examples(40),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
class TestStoreLong(StoreMachine.TestCase):  # type: ignore[misc, valid-type]  # made at run time
    settings = settings(
        max_examples=1500, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
    )
