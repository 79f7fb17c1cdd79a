"""Tests of failing writes to the file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from plimsoll.apiserver.storage import ObjectKey, Store, compaction
from plimsoll.apiserver.storage.log import CompactionState, Row, StoreLog
from plimsoll.errors import StoreError

ROOT = Path(__file__).parents[4]
POD = ObjectKey("pods", "default", "a")
FULL = sqlite3.OperationalError("database or disk is full")


def test_a_full_disk_stops_writes_until_there_is_room(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.apiserver.storage.full_disk", str(tmp_path / "s")]
    output = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, timeout=60).stdout
    report = json.loads(output)
    assert "could not be written" in report["reason"]
    assert report["seen"] == report["acknowledged"]
    assert report["again"] == 5
    assert report["late"] == report["failed"] + 6
    assert report["events"] == [*range(1, report["failed"]), report["late"]]
    store = Store.open(tmp_path / "s")
    assert store.revision == report["late"]
    found = {stored.key.name: stored.revision for stored in store.list("pods").items}
    assert found == {**report["acknowledged"], "late": report["late"]}
    asyncio.run(store.close())


def test_writes_that_depend_on_a_failed_write_are_reverted(tmp_path: Path) -> None:
    """A write made while the commit before it failed must not be committed alone."""
    append = StoreLog.append
    calls: list[list[int]] = []

    async def scenario() -> None:
        store = Store.open(tmp_path / "s")
        other = ObjectKey("pods", "default", "b")
        await store.wait_durable(store.create(other, {"n": 0}).revision)
        loop = asyncio.get_running_loop()
        started = asyncio.Event()

        def fail_once(log: StoreLog, rows: Sequence[Row]) -> None:
            calls.append([row[0] for row in rows])
            if len(calls) == 1:
                loop.call_soon_threadsafe(started.set)
                asyncio.run_coroutine_threadsafe(write_more(), loop).result()
                raise FULL
            append(log, rows)

        async def write_more() -> None:
            store.update(POD, {"n": 2}, 2)
            store.delete(other, {}, 1)
            await asyncio.sleep(0)  # both are handed over while the first commit is under way

        with patch.object(StoreLog, "append", fail_once):
            store.create(POD, {"n": 1})
            waiters = [asyncio.ensure_future(store.wait_durable(2))]
            await started.wait()
            await asyncio.sleep(0)
            waiters += [asyncio.ensure_future(store.wait_durable(revision)) for revision in (3, 4)]
            for outcome in await asyncio.gather(*waiters, return_exceptions=True):
                assert isinstance(outcome, StoreError)
            assert store.get(POD) is None
            assert store.get(other) is not None
            assert (store.revision, store.durable) == (1, 1)
            await store.wait_durable(store.create(POD, {"n": 9}).revision)
        assert store.revision == 5
        assert store.list("pods", at=1).items == [store.get(other)]
        assert calls == [[2], [5]]
        assert store.stats().failures == 1
        await store.close()

    asyncio.run(scenario())
    store = Store.open(tmp_path / "s")
    assert [stored.revision for stored in store.list("pods").items] == [5, 1]
    asyncio.run(store.close())


async def test_a_watch_started_at_a_failed_write_misses_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s")
    with patch.object(StoreLog, "append", side_effect=FULL):
        store.create(POD, {})
        cursor = store.watch("pods", store.revision)
        with pytest.raises(StoreError):
            await store.wait_durable(1)
    await store.wait_durable(store.create(POD, {}).revision)
    assert [event.revision for event in cursor.take()] == [2]
    await store.close()


def test_closing_reports_failed_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store.open(tmp_path / "s")
        store.create(POD, {})
        with (
            patch.object(StoreLog, "append", side_effect=FULL),
            pytest.raises(StoreError, match="disk is full"),
        ):
            await store.close()

    asyncio.run(scenario())
    store = Store.open(tmp_path / "s")
    assert store.revision == 0
    asyncio.run(store.close())


def test_old_rows_that_cannot_be_deleted_wait(tmp_path: Path) -> None:
    compact = StoreLog.compact
    failures = [FULL, FULL]

    def sometimes(log: StoreLog, state: CompactionState, revisions: Sequence[int]) -> None:
        if failures:
            raise failures.pop()
        compact(log, state, revisions)

    async def scenario() -> None:
        store = Store.open(tmp_path / "s", history_events=5)
        store.create(POD, {})
        for revision in range(1, 60):
            store.update(POD, {"n": revision}, revision)
            await store.wait_durable(revision + 1)
        assert not failures
        assert store.stats().garbage < 20
        await store.close()

    with (
        patch.object(StoreLog, "compact", sometimes),
        patch.object(compaction, "MIN_GARBAGE_ROWS", 10),
        patch.object(compaction, "CHUNK_ROWS", 4),
    ):
        asyncio.run(scenario())
    store = Store.open(tmp_path / "s")
    assert store.revision == 60
    asyncio.run(store.close())


async def test_a_write_that_cannot_be_written_does_not_end_the_writer(tmp_path: Path) -> None:
    """A name that cannot be encoded fails alone; other writes continue."""
    store = Store.open(tmp_path / "s")
    with pytest.raises(StoreError, match="could not be written"):
        await store.wait_durable(store.create(ObjectKey("pods", "", "\udcff"), {}).revision)
    await store.wait_durable(store.create(POD, {}).revision)
    await store.close()
