"""Store files: locking, copies, and foreign files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from plimsoll.apiserver.storage import ObjectKey, Store, StoredObject, copy_store, restore
from plimsoll.apiserver.storage.lock import RevisionMark, StoreLock
from plimsoll.apiserver.storage.log import FORMAT
from plimsoll.errors import ApiError, StoreError


def fill(path: Path | None, count: int = 20) -> Store:
    store = Store.open(path)
    for number in range(count):
        store.create(ObjectKey("pods", "default", f"p{number}"), {"n": number})
    if count > 1:
        store.delete(ObjectKey("pods", "default", "p0"), {}, 1)
        store.update(ObjectKey("pods", "default", "p1"), {"n": "new"}, 2)
    return store


def close(store: Store) -> None:
    asyncio.run(store.close())


def contents(store: Store) -> list[StoredObject]:
    return store.list("pods").items


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = fill(path)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        Store.open(path)
    code = (
        "import sys; from pathlib import Path; from plimsoll.apiserver.storage import Store; "
        "Store.open(Path(sys.argv[1]))"
    )
    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert f"StoreError: {path} is in use by process {os.getpid()}" in other.stderr
    close(store)
    close(Store.open(path))


def test_a_lock_file_that_is_removed_is_made_anew(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "s")
    lock.path.unlink()
    other = StoreLock(tmp_path / "s")
    assert other.path.exists()
    lock.close()
    other.close()


def test_a_damaged_mark_is_ignored(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "s")
    lock.write_mark(RevisionMark(123, True, 77))
    lock.close()
    lock = StoreLock(tmp_path / "s")
    assert lock.mark == RevisionMark(123, True, 77)
    lock.close()
    text = bytearray(lock.path.read_bytes())
    for place in range(32, len(text)):
        lock.path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        damaged = StoreLock(tmp_path / "s")
        assert damaged.mark == RevisionMark(0, False, 0)
        damaged.close()


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened: No such file or directory"):
        Store.open(tmp_path / "missing" / "s")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / "directory")


def test_a_foreign_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    for content in (path.read_bytes(), b"", b"a letter\n" * 100):
        path.write_bytes(content)
        with pytest.raises(StoreError, match="is not a Plimsoll store"):
            Store.open(path)
        assert path.read_bytes() == content
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s", "s.lock"]


def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s"
    close(fill(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 1}")
    content = path.read_bytes()
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_deleted_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s"
    close(fill(path))
    path.unlink()
    with pytest.raises(StoreError, match=r"is missing.*had reached revision 22"):
        Store.open(path)
    store = Store.open(path, start_empty=True)
    assert (store.revision, store.floor, contents(store)) == (23, 23, [])
    with pytest.raises(ApiError):
        store.watch("pods", 22)
    assert store.create(ObjectKey("pods", "", "a"), {}).revision == 24
    close(store)
    store = Store.open(path)
    assert store.revision == 24
    close(store)


def test_a_write_ahead_log_without_its_file_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    (tmp_path / "s-wal").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="already exists"):
        Store.open(path, start_empty=True)
    assert not path.exists()


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_backup_is_a_store(tmp_path: Path, in_memory: bool) -> None:
    async def scenario() -> list[StoredObject]:
        store = fill(None if in_memory else tmp_path / "s")
        await store.wait_durable(store.revision)
        before = contents(store)
        task = asyncio.create_task(store.backup(tmp_path / "copy"))
        for number in range(100, 150):
            store.create(ObjectKey("pods", "default", f"p{number}"), {})
            await asyncio.sleep(0)
        await task
        with pytest.raises(StoreError, match="already exists"):
            await store.backup(tmp_path / "copy")
        with pytest.raises(StoreError, match="cannot be written"):
            await store.backup(tmp_path / "missing" / "copy")
        await store.close()
        return before

    before = asyncio.run(scenario())
    copy = Store.open(tmp_path / "copy")
    kept = [stored for stored in contents(copy) if stored.revision <= 22]
    assert kept == before
    assert copy.create(ObjectKey("nodes", "", "n"), {}).revision > 22
    close(copy)
    close(Store.open(tmp_path / "copy"))
    assert not (tmp_path / "copy.new").exists()


def test_another_process_can_copy_while_the_store_is_written(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        store = fill(tmp_path / "s")
        await store.wait_durable(store.revision)
        code = (
            "import sys; from pathlib import Path; from plimsoll.apiserver.storage import copy_store; "
            "copy_store(Path(sys.argv[1]), Path(sys.argv[2]))"
        )
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, tmp_path / "s", tmp_path / "copy"
        )
        first = store.durable
        number = 1000
        while child.returncode is None:
            number += 1
            stored = store.create(ObjectKey("pods", "default", f"p{number}"), {"x": "y" * 500})
            await store.wait_durable(stored.revision)
            await asyncio.sleep(0.001)
        assert child.returncode == 0
        await store.close()
        return first, store.revision

    first, last = asyncio.run(scenario())
    copy, original = Store.open(tmp_path / "copy"), Store.open(tmp_path / "s")
    assert first <= copy.revision <= last
    events = [event.raw for event in original.watch("pods", 0).take(100_000)]
    assert [event.raw for event in copy.watch("pods", 0).take(100_000)] == events[: copy.revision]
    close(copy)
    close(original)


def test_copying_a_missing_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        copy_store(tmp_path / "s", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_restored_backup_does_not_reuse_revisions(tmp_path: Path) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    store = fill(path)
    asyncio.run(store.wait_durable(22))
    asyncio.run(store.backup(copy))
    store.create(ObjectKey("pods", "", "late"), {})
    close(store)
    with pytest.raises(StoreError, match="already exists"):
        restore(copy, path)
    path.unlink()
    assert restore(copy, path) == 24
    store = Store.open(path)
    assert len(contents(store)) == 19
    assert (store.revision, store.floor) == (24, 24)
    assert store.create(ObjectKey("pods", "", "later"), {}).revision == 25
    close(store)
    close(Store.open(path))
    # A copy elsewhere continues the history.
    assert restore(copy, tmp_path / "other") == 22
    store = Store.open(tmp_path / "other")
    assert (store.revision, store.floor) == (22, 0)
    close(store)
    assert restore(copy, tmp_path / "third", after=500) == 501


def test_a_restored_copy_does_not_reuse_revisions(tmp_path: Path) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    store = fill(path)
    asyncio.run(store.wait_durable(22))
    asyncio.run(store.backup(copy))
    store.create(ObjectKey("pods", "", "late"), {})
    close(store)
    shutil.copy(copy, path)
    for _ in range(2):  # reported once, not every time
        store = Store.open(path)
        assert len(contents(store)) == 19
        assert (store.revision, store.floor) == (24, 24)
        close(store)
    with pytest.raises(ApiError):
        store.watch("pods", 23)
    # The file itself, as it was at an earlier time, has lost its end.
    store = Store.open(path)
    shutil.copy(path, tmp_path / "old")
    store.create(ObjectKey("pods", "", "later"), {})
    close(store)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(StoreError, match="it ends at revision 24, and had reached 25"):
        Store.open(path)


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    close(fill(copy))
    content = bytearray(copy.read_bytes())
    place = content.index(b'"new"')
    content[place + 1] ^= 1
    copy.write_bytes(content)
    with pytest.raises(StoreError, match="revision 22 is damaged"):
        restore(copy, tmp_path / "s")
    assert not (tmp_path / "s").exists()
