"""Tests of watch cursors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.apiserver.storage import ObjectKey, Store, WatchCursor
from plimsoll.apiserver.storage.event_history import WOKEN_AT_ONCE
from plimsoll.errors import ApiError, StoreError

POD = ObjectKey("pods", "default", "a")


def update(store: Store, key: ObjectKey = POD, padding: str = "") -> int:
    stored = store.get(key)
    tree = {"padding": padding}
    return (store.update(key, tree, stored.revision) if stored else store.create(key, tree)).revision


def test_a_watch_returns_only_its_resource() -> None:
    store = Store.open(None)
    cursor = store.watch("pods", 0)
    update(store, ObjectKey("nodes", "", "n"))
    assert cursor.take() == []
    assert cursor.revision == 1
    update(store)
    assert [event.revision for event in cursor.take()] == [2]


async def test_a_feed_may_start_in_the_future() -> None:
    store = Store.open(None)
    cursor = store.watch("pods", 3)
    reader = asyncio.create_task(cursor.next())
    for _ in range(3):
        update(store)
        await asyncio.sleep(0)
    assert not reader.done()
    update(store)
    assert [event.revision for event in await reader] == [4]


def test_a_watch_from_the_future_is_current_although_events_before_it_are_dropped() -> None:
    store = Store.open(None, history_events=3)
    cursor = store.watch("pods", 2)
    for _ in range(2):
        update(store)
    for _ in range(10):
        update(store, ObjectKey("nodes", "", "n"))
    assert cursor.take() == []
    assert cursor.revision == 12
    update(store)
    assert [event.revision for event in cursor.take()] == [13]


def test_a_watch_that_fell_behind_is_reported() -> None:
    store = Store.open(None, history_events=3)
    update(store)
    slow, quick = store.watch("pods", 0), store.watch("pods", 0)
    for _ in range(10):
        update(store)
        quick.take()
    with pytest.raises(ApiError) as expired:
        slow.take()
    assert (expired.value.code, expired.value.reason) == (410, "Expired")
    assert expired.value.message == f"too old resource version: 0 ({store.floor})"
    assert quick.take() == []


def test_an_idle_feed_does_not_fall_behind() -> None:
    store = Store.open(None, history_events=3)
    cursor = store.watch("nodes", 0)
    for _ in range(50):
        update(store)
    assert store.floor > 40
    assert cursor.take() == []
    assert cursor.revision == 50
    update(store, ObjectKey("nodes", "", "n"))
    assert [event.revision for event in cursor.take()] == [51]


def test_the_history_is_bounded_by_bytes_too() -> None:
    store = Store.open(None, history_bytes=50_000)
    for _ in range(100):
        update(store, padding="x" * 1000)
    stats = store.stats()
    assert 20 < stats.events < 28
    assert stats.floor == 100 - stats.events


async def test_one_object_larger_than_the_history_still_reaches_the_feeds() -> None:
    store = Store.open(None, history_bytes=1000)
    cursor = store.watch("pods", 0)
    for revision in range(1, 5):
        update(store, padding="x" * 5000)
        assert [event.revision for event in await cursor.next()] == [revision]


async def test_many_watches_are_woken_once_for_many_events(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s", durability="normal")
    calls = 0

    async def watch(cursor: WatchCursor) -> list[int]:
        nonlocal calls
        seen: list[int] = []
        while len(seen) < 100:
            calls += 1
            seen += [event.revision for event in await cursor.next()]
        return seen

    tasks = [asyncio.create_task(watch(store.watch("pods", 0))) for _ in range(1000)]
    await asyncio.sleep(0)
    for _ in range(100):
        update(store)
    assert await asyncio.gather(*tasks) == [list(range(1, 101))] * 1000
    assert calls <= 3000
    assert len({event.frame() for event in store.watch("pods", 0).take()}) == 100
    await store.close()


async def test_a_turn_of_the_event_loop_serves_a_bounded_number_of_watches() -> None:
    store = Store.open(None)
    woken = 0

    async def watch(cursor: WatchCursor) -> list[int]:
        nonlocal woken
        events = await cursor.next()
        woken += 1
        return [event.revision for event in events]

    cursors = [store.watch("pods", 0) for _ in range(WOKEN_AT_ONCE * 5 + 1)]
    tasks = [asyncio.create_task(watch(cursor)) for cursor in cursors]
    await asyncio.sleep(0)
    update(store)
    cursors[-1].close()
    tasks[-2].cancel()
    counts = []
    while not all(task.done() for task in tasks):
        before = woken
        await asyncio.sleep(0)
        counts.append(woken - before)
    assert max(counts) <= WOKEN_AT_ONCE
    assert await asyncio.gather(*tasks[:-2]) == [[1]] * (len(tasks) - 2)
    with pytest.raises(StoreError):
        await tasks[-1]


async def test_a_cancelled_reader_leaves_the_feed_usable() -> None:
    store = Store.open(None)
    cursor = store.watch("pods", 0)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(cursor.next(), 0.01)
    assert store.stats().waiting_watches == 0
    update(store)
    assert [event.revision for event in await cursor.next(1)] == [1]


def test_events_are_delivered_in_batches() -> None:
    store = Store.open(None)
    for _ in range(5):
        update(store)
    cursor = store.watch("pods", 1)
    assert [event.revision for event in cursor.take(3)] == [2, 3, 4]
    assert cursor.revision == 4
    assert [event.revision for event in cursor.take(3)] == [5]
