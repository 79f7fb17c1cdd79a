"""Repeated kills of a process that writes a store, with a check of the files each time.

    python -m tests.chaos.store_kills DIRECTORY KILLS SEED

A child writes with many writers at once and follows its own events; it says on a pipe what it issued, what
was acknowledged to it and what it was shown. It is killed with SIGKILL at a random moment: while it opens the
file, writes, deletes old rows, or closes. Then the store is opened here, and

- everything acknowledged or shown is there, unchanged, under its revision;
- everything that is there was issued, with that content, under that revision;
- a watch that goes on from the last revision seen before the kill misses nothing and sees nothing twice;
- the objects are what all events so far make of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from plimsoll.apiserver.storage import ObjectKey, Store, StoreEvent, WatchCursor, compaction
from plimsoll.apiserver.storage.log import Durability
from tests.waiting import DEADLINE

RESOURCES = ("pods", "nodes")
EVENTS = 6000
WRITERS = 24


class Write(NamedTuple):
    """One line of the pipe: `I` issued, `A` acknowledged, `S` shown by a watch."""

    what: str
    revision: int
    type: str
    key: ObjectKey
    digest: int

    def line(self) -> bytes:
        return f"{self.what} {self.revision} {self.type} {','.join(self.key)} {self.digest}\n".encode()

    @classmethod
    def parse(cls, line: str) -> Write:
        what, revision, kind, key, digest = line.split(" ")
        return cls(what, int(revision), kind, ObjectKey(*key.split(",")), int(digest))


def open_store(path: Path, durability: Durability = "full") -> Store:
    compaction.MIN_GARBAGE_ROWS = 200  # so that it is at work all the time
    return Store.open(path, durability=durability, history_events=EVENTS)


# The child


class Child:
    """Writer process that runs until it is killed or asked to close."""

    def __init__(self, path: Path, seed: int, pipe: int) -> None:
        self.dice = random.Random(seed)
        self.store = open_store(path, self.dice.choice(["full", "full", "normal"]))
        self.pipe = pipe
        self.closing = False

    async def live(self) -> None:
        tasks = [asyncio.create_task(self.write()) for _ in range(WRITERS)]
        tasks += [
            asyncio.create_task(self.follow(self.store.watch(resource, self.store.revision)))
            for resource in RESOURCES
        ]
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.random() * 0.1)
            self.closing = True
            await asyncio.gather(*tasks[:WRITERS])
            await self.store.close()
            for task in tasks[WRITERS:]:
                task.cancel()
        else:
            await asyncio.gather(*tasks)

    async def write(self) -> None:
        dice = self.dice
        while not self.closing:
            key = ObjectKey(dice.choice(RESOURCES), "", f"o{dice.randrange(60)}")
            stored = self.store.get(key)
            tree = {"padding": "x" * dice.choice([10, 300, 2300, 2300, 12_000]), "n": dice.random().hex()}
            if stored is None:
                kind, after = "ADDED", self.store.create(key, tree)
            elif dice.random() < 0.2:
                kind, after = "DELETED", self.store.delete(key, tree, stored.revision)
            else:
                kind, after = "MODIFIED", self.store.update(key, tree, stored.revision)
            self.report("I", after.revision, kind, key, after.raw)
            await self.store.wait_durable(after.revision)
            self.report("A", after.revision, kind, key, after.raw)

    async def follow(self, cursor: WatchCursor) -> None:
        while True:
            for event in await cursor.next():
                self.report("S", event.revision, event.type, event.key, event.raw)

    def report(self, what: str, revision: int, kind: str, key: ObjectKey, raw: bytes) -> None:
        os.write(self.pipe, Write(what, revision, kind, key, crc32(raw)).line())


# The parent


def run_child(path: Path, dice: random.Random) -> tuple[list[Write], bool]:
    """Start a child and kill it; return its output, and whether it ended by itself."""
    reader, writer = os.pipe()
    seed = dice.randrange(1 << 30)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            asyncio.run(Child(path, seed, writer).live())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    # Half of them early, while the store is opened; half after so many lines, however slow the machine is.
    early = dice.random() < 0.5
    seconds = dice.choice([0.01, 0.05, 0.2]) * dice.random() * 2
    deadline = time.monotonic() + (seconds if early else DEADLINE)
    most = EVENTS // 2 if early else dice.choice([10, 200, 2000])
    os.set_blocking(reader, False)
    parts: list[bytes] = []
    lines_read = 0
    # Not so long that the history no longer reaches back to the beginning of this life.
    while time.monotonic() < deadline and lines_read < most:
        try:
            part = os.read(reader, 1 << 20)
        except BlockingIOError:
            time.sleep(0.0005)
            continue
        if not part:
            break
        parts.append(part)
        lines_read += part.count(b"\n")
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    os.set_blocking(reader, True)
    while part := os.read(reader, 1 << 20):
        parts.append(part)
    os.close(reader)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed"
    lines = b"".join(parts).decode().split("\n")
    return [Write.parse(line) for line in lines[:-1]], not os.WIFSIGNALED(status)


class Parent:
    """Record of all durable writes, which checks each new state against it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.dice = random.Random(seed)
        self.revision = 0
        self.objects: dict[ObjectKey, tuple[int, int]] = {}
        self.acknowledged = self.ended = 0

    def kill_once(self) -> None:
        writes, ended = run_child(self.path, self.dice)
        self.ended += ended
        store = open_store(self.path)
        try:
            self.check(store, writes)
        finally:
            asyncio.run(store.close())

    def check(self, store: Store, writes: list[Write]) -> None:
        events = [
            event for resource in RESOURCES for event in store.watch(resource, self.revision).take(100_000)
        ]
        events.sort(key=lambda event: event.revision)
        issued = {write.revision: write for write in writes if write.what == "I"}
        # Issued in this life, one after the other, and none under a revision of an earlier one.
        assert [*issued] == [*range(self.revision + 1, self.revision + 1 + len(issued))]
        durable = {event.revision: _write("I", event) for event in events}
        assert [*durable] == [*range(self.revision + 1, store.revision + 1)], "a gap, or an event twice"
        for revision, write in durable.items():
            assert issued.get(revision) == write, f"{write} is there and was never issued"
        for write in writes:
            if write.what != "I":
                self.acknowledged += 1
                assert durable.get(write.revision) == write._replace(what="I"), f"{write} is lost"
        for event in events:
            if event.type == "DELETED":
                del self.objects[event.key]
            else:
                self.objects[event.key] = (event.revision, crc32(event.raw))
        found = {
            stored.key: (stored.revision, crc32(stored.raw))
            for resource in RESOURCES
            for stored in store.list(resource).items
        }
        assert found == self.objects
        self.revision = store.revision


def _write(what: str, event: StoreEvent) -> Write:
    return Write(what, event.revision, event.type, event.key, crc32(event.raw))


def main() -> None:
    directory, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    parent = Parent(directory / "store.db", seed)
    for kill in range(kills):
        try:
            parent.kill_once()
        except BaseException:
            sys.stderr.write(f"after kill {kill} with seed {seed}:\n")
            raise
    store = open_store(directory / "store.db")
    floor = store.floor
    asyncio.run(store.close())
    sys.stdout.write(
        f"{kills} kills, {parent.ended} came too late, {parent.revision} revisions, floor {floor}, "
        f"{parent.acknowledged} times acknowledged or shown\n"
    )


if __name__ == "__main__":
    main()
