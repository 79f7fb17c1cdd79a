"""Tests of damaged files: they are detected, renamed and reported, and readable rows are kept."""

from __future__ import annotations

import asyncio
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from plimsoll.api import codec
from plimsoll.apiserver.storage import ObjectKey, Store, StoredObject, compaction, recover
from plimsoll.apiserver.storage.files import list_corrupt_files, move_aside
from plimsoll.apiserver.storage.log import PAGE_SIZE
from plimsoll.errors import ApiError, StoreError

Contents = tuple[int, int, list[StoredObject], list[tuple[int, bytes]]]
EVENTS = 40


class StoreSample(NamedTuple):
    """Directory with a store's files, its contents, and every state of every object."""

    directory: Path
    contents: Contents
    states: dict[tuple[ObjectKey, int], bytes]


def read(store: Store) -> Contents:
    items = [stored for resource in ("pods", "nodes") for stored in store.list(resource).items]
    events = [
        (event.revision, event.frame())
        for resource in ("pods", "nodes")
        for event in store.watch(resource, store.floor).take(100_000)
    ]
    return store.revision, store.floor, items, events


def make(directory: Path, *, crashed: bool) -> StoreSample:
    """Create a store with deleted rows, large objects and rows of all kinds, optionally as left by a kill."""
    states: dict[tuple[ObjectKey, int], bytes] = {}
    dice = random.Random(1)

    async def scenario() -> Contents:
        store = Store.open(directory / "live" / "s", durability="full", history_events=EVENTS)
        for step in range(200):
            key = ObjectKey(dice.choice(["pods", "nodes"]), dice.choice(["", "a"]), f"n{dice.randrange(20)}")
            stored = store.get(key)
            tree = {"padding": "x" * dice.choice([10, 500, 2300, 2300, 9000, 40_000]), "step": step}
            if stored is None:
                stored = store.create(key, tree)
            elif dice.random() < 0.25:
                store.delete(key, tree, stored.revision)
                continue
            else:
                stored = store.update(key, tree, stored.revision)
            states[key, stored.revision] = stored.raw
            await store.wait_durable(store.revision)
        await store.wait_durable(store.revision)
        if crashed:
            for name in ("s", "s-wal", "s.lock"):
                shutil.copy(directory / "live" / name, directory / name)
        contents = read(store)
        await store.close()
        if not crashed:
            for name in ("s", "s.lock"):
                shutil.copy(directory / "live" / name, directory / name)
        return contents

    (directory / "live").mkdir()
    with patch.object(compaction, "MIN_GARBAGE_ROWS", 20):
        contents = asyncio.run(scenario())
    shutil.rmtree(directory / "live")
    return StoreSample(directory, contents, states)


@pytest.fixture(scope="module", params=["closed", "crashed"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoreSample:
    return make(tmp_path_factory.mktemp("made"), crashed=request.param == "crashed")


def copy_of(made: StoreSample, directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(made.directory, directory)
    return directory / "s"


def open_store(path: Path) -> Contents:
    store = Store.open(path, history_events=EVENTS)
    contents = read(store)
    asyncio.run(store.close())
    return contents


def damages(dice: random.Random, size: int) -> Iterator[tuple[str, int, bytes | None]]:
    """Yield random damage without end: its kind, offset, and the bytes written there (None: truncated)."""
    while True:
        place = dice.randrange(size)
        page = place // PAGE_SIZE * PAGE_SIZE
        yield "flip", place, bytes([dice.randrange(256)])
        yield "flip in a header", page + dice.randrange(min(110, size - page)), bytes([dice.randrange(256)])
        yield "zeroes", place, bytes(dice.choice([8, 512, 4096]))
        yield "zero page", page, bytes(PAGE_SIZE)
        yield "noise", place, dice.randbytes(dice.choice([2, 100, 5000]))
        yield "cut", place, None


def damage(path: Path, place: int, content: bytes | None) -> None:
    data = bytearray(path.read_bytes())
    if content is None:
        del data[place:]
    else:
        data[place : place + len(content)] = content[: len(data) - place]
    path.write_bytes(data)


def check_damaged(made: StoreSample, directory: Path, name: str, place: int, content: bytes | None) -> str:
    """Check that damage is either detected or has no effect; return which."""
    path = copy_of(made, directory)
    damage(path.with_name(name), place, content)
    try:
        assert open_store(path) == made.contents
    except StoreError as error:
        if "is damaged" not in str(error):
            # It does not say that it is ours, or says that it is newer: left alone.
            assert path.exists()
            return "left alone"
    else:
        return "harmless"
    assert not path.exists()
    aside = list_corrupt_files(path)
    assert len(aside) == 1
    with pytest.raises(StoreError, match="was damaged and renamed to"):
        Store.open(path)
    recovery = recover(path)
    store = Store.open(path)
    assert store.revision > made.contents[0]
    assert store.floor == store.revision
    objects = [stored for resource in ("pods", "nodes") for stored in store.list(resource).items]
    assert len(objects) == recovery.kept
    for stored in objects:
        assert made.states[stored.key, stored.revision] == stored.raw
        assert codec.decode_tree(stored.raw)["metadata"]["resourceVersion"] == str(stored.revision)
    if recovery.lost == 0:
        assert objects == made.contents[2]
    asyncio.run(store.close())
    return "noticed"


@pytest.mark.parametrize("name", ["s", "s-wal"])
def test_damage_is_noticed_or_harmless(made: StoreSample, tmp_path: Path, name: str) -> None:
    file = made.directory / name
    if not file.exists():
        pytest.skip("closed without a write-ahead log")
    dice = random.Random(7)
    found = set()
    for _, (_, place, content) in zip(range(12), damages(dice, file.stat().st_size), strict=False):
        found.add(check_damaged(made, tmp_path / "copy", name, place, content))
    assert "noticed" in found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s", "s-wal"])
def test_much_damage_is_noticed_or_harmless(made: StoreSample, tmp_path: Path, name: str) -> None:
    file = made.directory / name
    if not file.exists():
        pytest.skip("closed without a write-ahead log")
    dice = random.Random()
    for _, (_, place, content) in zip(range(1500), damages(dice, file.stat().st_size), strict=False):
        check_damaged(made, tmp_path / "copy", name, place, content)


def test_damage_is_reported(made: StoreSample, tmp_path: Path) -> None:
    path = copy_of(made, tmp_path / "copy")
    data = path.read_bytes()
    wal = path.with_name("s-wal")
    if wal.exists():
        asyncio.run(Store.open(path).close())  # moves all of it to the file
        data = path.read_bytes()
    row = next(one for one in made.contents[2] if data.count(one.raw) == 1)
    damage(path, data.index(row.raw) + 5, b"!")
    with pytest.raises(StoreError) as found:
        Store.open(path)
    aside = list_corrupt_files(path)[0]
    assert f"the row of revision {row.revision} is damaged" in str(found.value)
    assert str(aside) in str(found.value)
    recovery = recover(path)
    assert recovery.lost >= 1
    assert any(f"revision {row.revision}, {row.key.resource}" in report for report in recovery.reports)
    assert aside.exists()
    store = Store.open(path)
    for kept in made.contents[2]:
        if kept.key != row.key:
            assert store.get(kept.key) == kept
    asyncio.run(store.close())


def test_a_broken_tree_loses_no_row(made: StoreSample, tmp_path: Path) -> None:
    """Rows are found without the inner pages that lead to them."""
    path = copy_of(made, tmp_path / "copy")
    data = path.read_bytes()
    inner = [page for page in range(PAGE_SIZE, len(data), PAGE_SIZE) if data[page] == 5]
    assert inner
    for page in inner:
        damage(path, page, bytes(PAGE_SIZE))
    wal = path.with_name("s-wal")
    if wal.exists():  # it has a newer version of the same pages
        content = wal.read_bytes()
        step = PAGE_SIZE + 24
        for frame in range(32, len(content) - step + 1, step):
            if content[frame + 24] == 5:
                damage(wal, frame + 24, bytes(PAGE_SIZE))
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(path)
    recovery = recover(path)
    assert recovery.lost == 0
    store = Store.open(path)
    objects = [stored for resource in ("pods", "nodes") for stored in store.list(resource).items]
    assert objects == made.contents[2]
    asyncio.run(store.close())


def test_an_empty_file_is_not_a_new_store(made: StoreSample, tmp_path: Path) -> None:
    path = copy_of(made, tmp_path / "copy")
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(path)


def test_a_lost_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    made = make(tmp_path, crashed=True)
    path = copy_of(made, tmp_path / "copy")
    path.with_name("s-wal").unlink()
    with pytest.raises(StoreError, match=r"it ends at revision \d+, and had reached 200"):
        Store.open(path)
    recovery = recover(path)
    assert recovery.lost > 0
    assert any("up to 200" in report for report in recovery.reports)
    store = Store.open(path)
    assert store.revision == 201
    asyncio.run(store.close())


def test_an_unfinished_commit_at_the_end_is_no_damage(tmp_path: Path) -> None:
    """A kill during a commit leaves frames without a commit record."""
    made = make(tmp_path, crashed=True)
    wal = (made.directory / "s-wal").read_bytes()
    salt = wal[16:24]
    frame = struct.pack(">II", 3, 0) + salt + bytes(8) + bytes(PAGE_SIZE)
    for rest in (frame[:10], frame[:3000], frame, frame * 3):
        path = copy_of(made, tmp_path / "copy")
        path.with_name("s-wal").write_bytes(wal + rest)
        assert open_store(path) == made.contents


def test_starting_empty_is_a_decision(made: StoreSample, tmp_path: Path) -> None:
    path = copy_of(made, tmp_path / "copy")
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreError):
            Store.open(path)
    aside = list_corrupt_files(path)
    store = Store.open(path, start_empty=True)
    assert store.counts() == {}
    assert store.revision == made.contents[0] + 1
    with pytest.raises(ApiError):
        store.watch("pods", made.contents[0])
    asyncio.run(store.close())
    asyncio.run(Store.open(path).close())
    assert list_corrupt_files(path) == aside
    with pytest.raises(StoreError, match="already exists"):
        recover(path)


def test_a_kill_while_a_file_is_put_aside_separates_nothing(made: StoreSample, tmp_path: Path) -> None:
    path = copy_of(made, tmp_path / "copy")
    with patch("plimsoll.apiserver.storage.files.move_companions_aside"):
        aside = move_aside(path)
    recovery = recover(path)
    assert recovery.lost == 0
    assert recovery.kept == len(made.contents[2])
    assert aside.with_name(aside.name + "-wal").exists() == (made.directory / "s-wal").exists()


def test_nothing_to_recover(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no damaged file"):
        recover(tmp_path / "s")


def test_several_damaged_files_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "s"
    names = set()
    for _ in range(3):
        path.write_bytes(b"x")
        names.add(move_aside(path).name)
    assert len(names) == 3
    assert len(list_corrupt_files(path)) == 3


def test_without_waiting_for_the_disk_a_lost_end_is_no_damage(tmp_path: Path) -> None:
    """A power cut may lose the last writes; their revisions are not used again."""

    async def write() -> None:
        store = Store.open(tmp_path / "s", durability="normal")
        for number in range(20):
            await store.wait_durable(store.create(ObjectKey("pods", "", str(number)), {}).revision)
            if number == 9:
                shutil.copy(tmp_path / "s", tmp_path / "kept")
                shutil.copy(tmp_path / "s-wal", tmp_path / "kept-wal")
        await store.close()

    asyncio.run(write())
    shutil.copy(tmp_path / "kept", tmp_path / "s")
    shutil.copy(tmp_path / "kept-wal", tmp_path / "s-wal")
    store = Store.open(tmp_path / "s", durability="normal")
    assert len(store.list("pods").items) == 10
    assert (store.revision, store.floor) == (21, 21)
    store.create(ObjectKey("pods", "", "new"), {})
    asyncio.run(store.close())
    store = Store.open(tmp_path / "s")
    assert (store.revision, store.floor, len(store.list("pods").items)) == (22, 21, 11)
    asyncio.run(store.close())
