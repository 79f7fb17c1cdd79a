"""Loading: reads the file into memory in one pass and checks it.

A file is sound if its pages are (SQLite's integrity check), each row matches its checksum, the sequence is
complete (each row names the one before it, the state has the number of old rows, the lock file has the last
revision), and each write fits the object it changed. A damaged file is renamed and reported; a file of
another application or of a newer format is left alone.
"""

from __future__ import annotations

import gc
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple
from zlib import crc32

from plimsoll.apiserver.storage.compaction import Compactor
from plimsoll.apiserver.storage.current_state import CurrentState, NamespacedName
from plimsoll.apiserver.storage.event_history import Change, EventHistory
from plimsoll.apiserver.storage.files import (
    create_store,
    list_corrupt_files,
    move_aside,
    move_companions_aside,
)
from plimsoll.apiserver.storage.lock import RevisionMark, StoreLock
from plimsoll.apiserver.storage.log import (
    APPLICATION,
    DELETED,
    FORMAT,
    TYPES,
    CheckedRow,
    CompactionState,
    Durability,
    StoreLog,
    connect,
    read_identity,
    read_rows,
    read_state,
)
from plimsoll.apiserver.storage.records import ObjectKey, PrefixTable, StoredObject
from plimsoll.errors import StoreError

_MAGIC = b"SQLite format 3\0"
_MAX_PROBLEMS = 10
#: SQLite errors whose cause is not the content of the file: permissions, space, memory, the disk.
_ENVIRONMENT_ERRORS = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_AUTH,
}


class OpenedStore(NamedTuple):
    """File that was read and can be written."""

    path: Path
    log: StoreLog
    lock: StoreLock
    identity: int


def open_store_file(
    path: Path,
    durability: Durability,
    current: CurrentState,
    history: EventHistory,
    compaction: Compactor,
    *,
    start_empty: bool,
) -> OpenedStore:
    """Open or create the file, and load it into memory; StoreError."""
    lock = StoreLock(path)
    try:
        move_companions_aside(path)
        if not path.exists():
            _create_new(path, lock, start_empty)
        _check_header(path, known=lock.mark.revision > 0)
        with _gc_disabled():
            loader = LogLoader(current, compaction)
            loader.read(path)
            revision = _check_end(loader, lock)
            if loader.problems:
                aside = move_aside(path)
                raise StoreError(
                    f"{path} is damaged: {'; '.join(loader.problems)}. It was renamed to {aside}: "
                    "recover what can be read, or start with an empty store"
                )
            history.load(loader.changes, loader.state.floor, revision)
        if loader.history_dropped:
            with closing(StoreLog(path, "full")) as log:
                log.compact(compaction.state(revision), ())
        log = StoreLog(path, durability)
        lock.write_mark(RevisionMark(revision, log.flushed, loader.identity))
        return OpenedStore(path, log, lock, loader.identity)
    except (OSError, sqlite3.Error) as error:
        lock.close()
        raise StoreError(f"{path} cannot be opened: {error}") from None
    except BaseException:
        lock.close()
        raise


def _create_new(path: Path, lock: StoreLock, start_empty: bool) -> None:
    """Create a new file, unless an earlier one is missing or damaged."""
    aside = list_corrupt_files(path)
    mark = lock.mark.revision
    if aside and not start_empty:
        raise StoreError(
            f"{path} was damaged and renamed to {aside[-1]}: "
            "recover what can be read, or start with an empty store"
        )
    if mark and not start_empty:
        raise StoreError(
            f"{path} is missing; according to {lock.path.name} it had reached revision {mark}: "
            "put it back, restore a backup, or start with an empty store"
        )
    # Revisions that clients may have seen are not used again, and those clients must list again.
    create_store(path, CompactionState(mark + 1 if mark else 0, 0, 0))


def _check_end(loader: LogLoader, lock: StoreLock) -> int:
    """Return the revision to continue from."""
    mark = lock.mark
    copied = mark.identity != loader.identity and mark.revision >= max(1, loader.state.floor)
    if loader.problems or (loader.revision >= mark.revision and not copied):
        return loader.revision
    if mark.flushed and not copied:
        loader.problems.append(f"it ends at revision {loader.revision}, and had reached {mark.revision}")
        return loader.revision
    # The file was replaced by a copy, or a power failure lost unsynced writes: clients have seen revisions
    # that are not in this file. They are not used again, and watches must list again.
    floor = max(mark.revision, loader.revision) + 1
    loader.drop_history(floor)
    return floor


def _check_header(path: Path, *, known: bool) -> None:
    """Reject a file of another application or of a newer format, before anything touches it."""
    with path.open("rb") as file:
        header = file.read(100)
    if header.startswith(_MAGIC) and len(header) == 100:
        version, application = struct.unpack(">60xI4xI28x", header)
        if application == APPLICATION and version > FORMAT:
            raise StoreError(
                f"{path} has format {version}, and this version of Plimsoll reads up to {FORMAT}: upgrade it"
            )
        if application == APPLICATION:
            return
    if not known:
        raise StoreError(f"{path} is not a Plimsoll store")


class LogLoader:
    """One pass over a file."""

    def __init__(self, current: CurrentState, compaction: Compactor) -> None:
        self.problems: list[str] = []
        self.changes: list[Change] = []
        self.state = CompactionState(0, 0, 0)
        self.revision = 0
        self.rows = 0
        self.total = 0  # the sum of all revisions
        self.history_dropped = False
        self.identity = 0
        self._current = current
        self._compaction = compaction
        self._objects: dict[str, dict[NamespacedName, StoredObject]] = {}
        self._prefixes = PrefixTable()
        self._last = 0
        self._below = self._below_total = 0

    def read(self, path: Path) -> None:
        """Load the current objects; `problems` gets what is wrong with the file, at most a few entries."""
        try:
            with closing(connect(path, read_only=True)) as connection:
                self._read(connection)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _ENVIRONMENT_ERRORS:
                raise
            self.problems.append(str(error))

    def drop_history(self, floor: int) -> None:
        """Continue from a later floor, without the events before it."""
        for change in self.changes:
            self._compaction.on_event_dropped(change)
        self.changes = []
        self.state = CompactionState(floor, self.rows, self.total)
        self.history_dropped = True

    def _read(self, connection: sqlite3.Connection) -> None:
        for (text,) in connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})"):
            if text != "ok":
                self.problems.append(" ".join(text.split()))
        if self.problems:
            return
        state, identity = read_state(connection), read_identity(connection)
        if state is None or identity is None:
            self.problems.append("the state of the log is damaged")
            return
        self.state, self.identity = state, identity
        self._compaction.load_state(state)
        for rows in read_rows(connection):
            self.rows += len(rows)
            for row in rows:
                self._take(row)
            if len(self.problems) >= _MAX_PROBLEMS:
                return
        if (self._below, self._below_total) != state[1:]:
            self.problems.append(
                f"the {self._below} rows up to revision {state.floor} are not the {state.rows} "
                "that should be there"
            )
        self.revision = max(self._last, state.floor)
        for resource, objects in self._objects.items():
            self._current.load(resource, objects)

    def _take(self, row: CheckedRow) -> None:
        revision, previous, code, created, resource, namespace, name, value, crc = row
        try:
            header = f"{revision} {previous} {code} {created} {resource}\0{namespace}\0{name}\0"
            is_sound = crc32(value, crc32(header.encode())) == crc and type(name) is str
            key = ObjectKey(intern(resource), intern(namespace), name)
        except TypeError:
            is_sound = False
        if not is_sound:
            self.problems.append(f"the row of revision {revision} is damaged")
            return
        objects_of_resource = self._objects.get(resource)
        if objects_of_resource is None:
            objects_of_resource = self._objects[resource] = {}
        qualified = key[1:]
        before = objects_of_resource.get(qualified)
        stored = StoredObject(key, revision, *self._prefixes.split(resource, value), created)
        if revision > self.state.floor:
            self._check_sequence(row, before)
            self.changes.append((TYPES[code], stored, before))
        else:
            self._below += 1
            self._below_total += revision
            if before is not None:
                self._compaction.add_garbage(before.revision, before.size_bytes)
            if code == DELETED:
                self._compaction.add_garbage(revision, len(value))
        if code == DELETED:
            objects_of_resource.pop(qualified, None)
        else:
            objects_of_resource[qualified] = stored
        self._last = revision
        self.total += revision

    def _check_sequence(self, row: CheckedRow, before: StoredObject | None) -> None:
        """Check that no row above the floor is missing, and that it fits the previous state of its object."""
        revision, previous, code = row[:3]
        last = self._last if self._last > self.state.floor else 0
        if last != (previous if previous > self.state.floor else 0):
            self.problems.append(f"the row before that of revision {revision} is missing")
        elif (before is None) != (TYPES[code] == "ADDED"):
            self.problems.append(f"the row of revision {revision} does not fit what was before it")


@contextmanager
def _gc_disabled() -> Iterator[Any]:
    """Disable the garbage collector: loading creates many objects and no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
