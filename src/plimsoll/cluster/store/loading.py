"""From the file to the memory: one pass over the rows builds the objects and the history.

Owns what must hold for a file to be sound. Promises: a file is used only when all of it was checked.
"""

from __future__ import annotations

import gc
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from plimsoll.cluster.store.head import Head
from plimsoll.cluster.store.history import History
from plimsoll.cluster.store.lock import Lock
from plimsoll.cluster.store.log import (
    APPLICATION,
    FORMAT,
    TYPES,
    Durability,
    Log,
    State,
    checksum,
    connect,
    read_rows,
    read_state,
)
from plimsoll.cluster.store.records import Event, Key, Stored
from plimsoll.cluster.store.rescue import make_file, set_aside, sets_aside
from plimsoll.errors import StoreError

_MAGIC = b"SQLite format 3\0"
_MOST_PROBLEMS = 10


class Opened(NamedTuple):
    """An open file, and how far it had come."""

    path: Path
    log: Log
    lock: Lock
    state: State
    revision: int
    rows: int


def open_file(
    path: Path,
    durability: Durability,
    head: Head,
    history: History,
    garbage: list[int],
    *,
    start_empty: bool,
) -> Opened:
    """Open or make the file, and fill the head and the history from it; raises StoreError."""
    lock = Lock(path)
    try:
        return _open(path, lock, durability, head, history, garbage, start_empty)
    except BaseException:
        lock.close()
        raise


def _open(
    path: Path,
    lock: Lock,
    durability: Durability,
    head: Head,
    history: History,
    garbage: list[int],
    start_empty: bool,
) -> Opened:
    try:
        if not path.exists():
            _begin(path, lock, start_empty)
        _look_at_header(path, known=lock.mark > 0)
        with _collector_off():
            loaded = _Load(head, history, garbage)
            loaded.read(path, lock.mark)
        if loaded.problems:
            aside = set_aside(path)
            raise StoreError(f"{path} is damaged and was put aside as {aside}: {'; '.join(loaded.problems)}")
        log = Log(path, durability)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be opened: {error}") from None
    return Opened(path, log, lock, loaded.state, max(loaded.revision, lock.mark), loaded.rows)


def _begin(path: Path, lock: Lock, start_empty: bool) -> None:
    aside = sets_aside(path)
    if not start_empty:
        if aside:
            raise StoreError(f"{path} was damaged and lies beside as {aside[-1]}; recover it, or start empty")
        if lock.mark:
            raise StoreError(f"{path} is gone; {lock.path} knows that it reached revision {lock.mark}")
    make_file(path, lock.mark)


def _look_at_header(path: Path, *, known: bool) -> None:
    """Refuse what is not ours, or newer than we are, before anything touches it."""
    with path.open("rb") as file:
        header = file.read(100)
    if header.startswith(_MAGIC) and len(header) == 100:
        version, application = struct.unpack(">60xI4xI28x", header)
        if application == APPLICATION and version > FORMAT:
            raise StoreError(f"{path} has format {version}; this version reads up to {FORMAT}")
        if application == APPLICATION:
            return
    if not known:
        raise StoreError(f"{path} is not a store of Plimsoll")


class _Load:
    def __init__(self, head: Head, history: History, garbage: list[int]) -> None:
        self._head = head
        self._history = history
        self._garbage = garbage
        self.problems: list[str] = []
        self.state = State(0, 0)
        self.revision = 0
        self.rows = 0

    def read(self, path: Path, mark: int) -> None:
        try:
            with closing(connect(path, read_only=True)) as connection:
                connection.execute("PRAGMA mmap_size=1073741824")
                for (text,) in connection.execute(f"PRAGMA quick_check({_MOST_PROBLEMS})"):
                    if text != "ok":
                        self.problems.append(text)
                state = read_state(connection)
                if state is None:
                    self.problems.append("the state of the log is damaged")
                if not self.problems and state is not None:
                    self._fill(connection, state)
        except sqlite3.DatabaseError as error:
            self.problems.append(str(error))
        if not self.problems and self.revision < mark:
            self.problems.append(f"it ends at revision {self.revision}, but had reached {mark}")

    def _fill(self, connection: sqlite3.Connection, state: State) -> None:
        self.state = state
        history = self._history
        history.floor = history.durable = floor = state.floor
        objects: dict[Key, Stored] = {}
        garbage = self._garbage
        intern = sys.intern
        last = below = rows = 0
        for row in read_rows(connection):
            revision, previous, code, created, resource, namespace, name, value, crc = row
            if checksum(row[:8]) != crc or code not in (0, 1, 2):
                if self._tell(f"the row of revision {revision} is damaged"):
                    return
                continue
            rows += 1
            key = Key(intern(resource), intern(namespace), name)
            before = objects.get(key)
            stored = Stored(key, revision, value, created)
            if revision <= floor:
                below += 1
                if before is not None:
                    garbage.append(before.revision)
                if code == 2:
                    garbage.append(revision)
            else:
                if (last != previous and previous > floor) or (previous <= floor < last):
                    self._tell(f"the row before revision {revision} is missing")
                if (before is None) != (code == 0):
                    self._tell(f"revision {revision} does not fit what was before it")
                history.append(Event(TYPES[code], stored, before, history.warm))
            if code == 2:
                objects.pop(key, None)
            else:
                objects[key] = stored
            last = revision
            if len(self.problems) >= _MOST_PROBLEMS:
                return
            if not rows % 4096 and revision > floor:
                history.show(revision)
        if below != state.rows:
            self._tell(f"there should be {state.rows} rows up to revision {floor}, and are {below}")
        self.rows = rows
        self.revision = max(last, floor)
        history.show(self.revision)
        self._head.load(objects)

    def _tell(self, problem: str) -> bool:
        self.problems.append(problem)
        return len(self.problems) >= _MOST_PROBLEMS


@contextmanager
def _collector_off() -> Iterator[None]:
    """Many objects are made and none is garbage: looking for some takes longer than making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
