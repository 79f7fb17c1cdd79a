"""Tests of reads, writes and durability that the reference implementation does not cover."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from plimsoll.apiserver.storage import ObjectKey, Store, StoreEvent, compaction
from plimsoll.apiserver.storage.log import Row, StoreLog
from plimsoll.errors import ApiError, StoreError
from tests.unit.apiserver.storage.reference_store import make_tree

POD = ObjectKey("pods", "default", "a")


def rows_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("SELECT count(*) FROM log").fetchone()[0]
        return count


async def put(store: Store, key: ObjectKey, value: object) -> int:
    stored = store.get(key)
    tree = make_tree(key, value)
    written = store.update(key, tree, stored.revision) if stored else store.create(key, tree)
    await store.wait_durable(written.revision)
    return written.revision


def test_errors_have_kubernetes_messages() -> None:
    store = Store.open(None)
    claim = ObjectKey("resourceclaims.resource.k8s.io", "default", "c")
    store.create(POD, {})
    with pytest.raises(ApiError) as refused:
        store.create(POD, {})
    assert refused.value.message == 'pods "a" already exists'
    assert refused.value.details == {"name": "a", "kind": "pods"}
    with pytest.raises(ApiError) as refused:
        store.update(claim, {}, 1)
    assert refused.value.message == 'resourceclaims.resource.k8s.io "c" not found'
    assert refused.value.details == {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"}
    with pytest.raises(ApiError) as refused:
        store.delete(POD, {}, 7)
    assert refused.value.message == (
        'Operation cannot be fulfilled on pods "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    with pytest.raises(ApiError) as refused:
        store.list("pods", at=9)
    assert (refused.value.code, refused.value.message) == (
        504,
        "Timeout: Too large resource version: 9, current: 1",
    )


def test_the_version_is_written_into_the_object() -> None:
    store = Store.open(None)
    tree = {"kind": "Pod", "unknown": [1, {"a": None}]}
    stored = store.create(POD, tree)
    assert stored.raw == b'{"kind":"Pod","unknown":[1,{"a":null}],"metadata":{"resourceVersion":"1"}}'
    gone = store.delete(POD, {"kind": "Pod", "metadata": {"name": "a"}}, 1)
    assert gone.raw == b'{"kind":"Pod","metadata":{"name":"a","resourceVersion":"2"}}'
    assert (gone.created, gone.revision, store.revision) == (1, 2, 2)
    assert store.get(POD) is None


def test_events_decode_and_encode_once() -> None:
    store = Store.open(None)
    cursor = store.watch("pods", 0)
    store.create(POD, {"n": 1})
    store.update(POD, {"n": 2}, 1)
    store.delete(POD, {"n": 2}, 2)
    added, modified, deleted = cursor.take()
    assert (added.type, modified.type, deleted.type) == ("ADDED", "MODIFIED", "DELETED")
    assert added.previous is None
    assert modified.previous == added.raw
    assert modified.tree is modified.tree
    assert deleted.tree["metadata"]["resourceVersion"] == "3"
    frame = modified.frame()
    assert frame == b'{"type":"MODIFIED","object":{"n":2,"metadata":{"resourceVersion":"2"}}}\n'
    assert modified.frame() is frame
    assert modified.frame("ADDED").startswith(b'{"type":"ADDED",')
    assert repr(deleted) == "Event(DELETED pods/default/a at 3)"


def test_the_number_of_decoded_events_is_bounded() -> None:
    store = Store.open(None)
    with patch("plimsoll.apiserver.storage.records.CACHED_EVENTS", 3):
        for number in range(5):
            store.create(ObjectKey("pods", "", str(number)), {})
        events: Sequence[StoreEvent] = store.watch("pods", 0).take()
        frames = [event.frame() for event in events]
        assert [event.frame() is frame for event, frame in zip(events[2:], frames[2:], strict=True)] == [
            True
        ] * 3
        assert events[0].frame() is not frames[0]
        assert events[0].frame() == frames[0]
        assert events[1].tree["metadata"]["resourceVersion"] == "2"


def test_nothing_is_shown_before_it_is_durable(tmp_path: Path) -> None:
    gate = threading.Event()
    append = StoreLog.append

    def slowly(log: StoreLog, rows: Sequence[Row]) -> None:
        gate.wait()
        append(log, rows)

    async def scenario() -> None:
        store = Store.open(tmp_path / "s")
        cursor = store.watch("pods", 0)
        stored = store.create(POD, {})
        waiter = asyncio.create_task(store.wait_durable(stored.revision))
        reader = asyncio.create_task(cursor.next())
        await asyncio.sleep(0.02)
        assert store.get(POD) == stored
        assert not waiter.done()
        assert not reader.done()
        assert (store.durable, cursor.revision) == (0, 0)
        gate.set()
        await waiter
        assert [event.revision for event in await reader] == [1]
        assert (store.durable, cursor.revision) == (1, 1)
        await store.close()

    with patch.object(StoreLog, "append", slowly):
        asyncio.run(scenario())


async def test_writes_of_one_turn_share_a_commit(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s")

    async def write(number: int) -> None:
        await put(store, ObjectKey("pods", "", str(number)), number)

    await asyncio.gather(*(write(number) for number in range(300)))
    assert store.stats().rows == 300
    assert store.stats().commits <= 3
    await store.close()


def test_a_store_outlives_its_event_loop(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s")
    store.create(POD, {})
    for value in range(3):
        asyncio.run(put(store, POD, value))
    store.create(ObjectKey("pods", "", "b"), {})

    async def settle() -> None:
        await store.wait_durable(store.revision)

    asyncio.run(settle())
    asyncio.run(store.close())
    again = Store.open(tmp_path / "s")
    assert again.revision == 5
    asyncio.run(again.close())


def test_closing_commits_pending_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store.open(tmp_path / "s")
        cursor = store.watch("pods", 0)
        store.create(POD, {})
        waiter = asyncio.create_task(store.wait_durable(1))
        await asyncio.gather(store.close(), store.close())
        await waiter
        assert [event.revision for event in await cursor.next()] == [1]
        with pytest.raises(StoreError, match="closed"):
            await cursor.next()
        with pytest.raises(StoreError, match="closed"):
            store.update(POD, {}, 1)
        assert store.get(POD) is not None
        await store.close()

    asyncio.run(scenario())
    again = Store.open(tmp_path / "s")
    assert again.get(POD) is not None
    asyncio.run(again.close())


def test_waiting_for_a_future_revision_is_refused() -> None:
    with pytest.raises(StoreError, match="revision 5"):
        asyncio.run(Store.open(None).wait_durable(5))


def test_old_rows_are_deleted_and_the_file_shrinks(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store.open(tmp_path / "s", durability="normal", history_events=50)
        for value in range(12):
            for number in range(300):
                key = ObjectKey("pods", "", str(number))
                stored = store.get(key)
                tree = make_tree(key, "x" * 4000 + str(value))
                if stored:
                    store.update(key, tree, stored.revision)
                else:
                    store.create(key, tree)
            await store.wait_durable(store.revision)
        most = (tmp_path / "s").stat().st_size
        assert most > 300 * 4000
        for number in range(300):
            stored = store.get(ObjectKey("pods", "", str(number)))
            assert stored
            store.delete(stored.key, {}, stored.revision)
        await store.wait_durable(store.revision)
        for value in range(2000):
            await put(store, POD, value)
            if store.stats().garbage < 10 and (tmp_path / "s").stat().st_size < most / 4:
                break
        else:
            raise AssertionError(f"still {store.stats()}")
        await store.close()

    with (
        patch.object(compaction, "MIN_GARBAGE_ROWS", 100),
        patch("plimsoll.apiserver.storage.log.MIN_FREE_PAGES", 16),
    ):
        asyncio.run(scenario())
    assert rows_in(tmp_path / "s") < 300
    store = Store.open(tmp_path / "s")
    assert [stored.key for stored in store.list("pods").items] == [POD]
    asyncio.run(store.close())


def test_a_busy_event_loop_does_not_starve_the_writer(tmp_path: Path) -> None:
    """Turns of 0.2 ms without a pause: with Python's own switch interval writes here took seconds."""

    async def scenario() -> int:
        store = Store.open(tmp_path / "s", durability="normal")
        busy, turns = True, 0

        async def work() -> None:
            nonlocal turns
            while busy:
                turns += 1
                end = time.perf_counter() + 0.0002
                while time.perf_counter() < end:
                    pass
                await asyncio.sleep(0)

        hog = asyncio.create_task(work())
        for value in range(40):
            await put(store, POD, value)
        busy = False
        await hog
        await store.close()
        return turns

    before = sys.getswitchinterval()
    assert asyncio.run(scenario()) < 50_000  # ten seconds of turns
    assert sys.getswitchinterval() < before or before < 0.001


async def test_figures_for_metrics(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s")
    await put(store, POD, 1)
    await put(store, POD, 2)
    cursor = store.watch("pods", 2)
    reader = asyncio.create_task(cursor.next())
    await asyncio.sleep(0)
    stats = store.stats()
    assert (stats.revision, stats.durable, stats.floor, stats.events) == (2, 2, 0, 2)
    assert (stats.waiting_watches, stats.commits, stats.rows, stats.failures) == (1, 2, 2, 0)
    assert stats.file_bytes > 8192
    stored = store.get(POD)
    assert stored
    assert store.counts() == {"pods": (1, len(stored.raw))}
    cursor.close()
    with pytest.raises(StoreError, match="closed"):
        await reader
    await store.close()
