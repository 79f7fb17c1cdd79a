"""Log file: one row for every write, in SQLite.

A batch of rows is committed completely or not at all. The checksum of a row covers its key, its position in
the sequence and its object, and each row names the one before it, so that a changed or missing row is
detected when the file is read. Of the rows at or below the floor only those of current objects are needed:
the others are deleted in the background, and the number of remaining rows is stored with the floor.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple
from zlib import crc32

from plimsoll.apiserver.storage.records import EventType

Durability = Literal["full", "normal"]

APPLICATION = 0x504C494D  # "PLIM"
FORMAT = 1
# Three objects of typical size fit on such a page (on one of 4 kB only one, half of it empty); larger pages
# make single writes more expensive.
PAGE_SIZE = 8192
#: Pages of the write-ahead log that one checkpoint moves to the file: a pause of a few milliseconds.
CHECKPOINT = 512
#: Free pages are returned to the file system when there are this many, and a quarter of the file is free.
MIN_FREE_PAGES = 1024
_VACUUM_PAGES = 512

TYPES: tuple[EventType, ...] = ("ADDED", "MODIFIED", "DELETED")
DELETED = TYPES.index("DELETED")

_SCHEMA = """
CREATE TABLE log (
  revision INTEGER PRIMARY KEY,  -- of this write
  previous INTEGER NOT NULL,     -- the revision of the row written before this one
  type INTEGER NOT NULL,         -- 0 added, 1 modified, 2 deleted
  created INTEGER NOT NULL,      -- the revision at which the object was created
  resource TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,           -- the object as JSON
  crc INTEGER NOT NULL           -- CRC-32 of all of the above
);
CREATE TABLE origin (
  id INTEGER PRIMARY KEY,
  identity INTEGER NOT NULL,     -- of this file; a copy gets another
  crc INTEGER NOT NULL
);
CREATE TABLE state (
  id INTEGER PRIMARY KEY,
  floor INTEGER NOT NULL,        -- watches may start here or later
  rows INTEGER NOT NULL,         -- how many rows there are at or below the floor
  total INTEGER NOT NULL,        -- the sum of their revisions
  crc INTEGER NOT NULL
);
"""
_PLACEHOLDERS = "(?,?,?,?,?,?,?,?,?)"
#: One statement for many rows: each statement releases and reacquires the GIL once.
_INSERTS = tuple(
    (count, "INSERT INTO log VALUES " + ",".join([_PLACEHOLDERS] * count)) for count in (128, 32, 8, 1)
)
_SELECT = "SELECT revision, previous, type, created, resource, namespace, name, value, crc FROM log"

Row = tuple[int, int, int, int, str, str, str, bytes]  # all but the checksum
CheckedRow = tuple[int, int, int, int, str, str, str, bytes, int]


class CompactionState(NamedTuple):
    """Compaction state of the log: its floor, and number and revision sum of the rows at or below it."""

    floor: int
    rows: int
    total: int


def checksum(row: Row) -> int:
    revision, previous, code, created, resource, namespace, name, value = row
    header = f"{revision} {previous} {code} {created} {resource}\0{namespace}\0{name}\0"
    return crc32(value, crc32(header.encode()))


def state_checksum(state: CompactionState) -> int:
    return crc32(b"%d %d %d" % state)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection with autocommit, usable from any thread.

    A read-only connection leaves the write-ahead log as it is when it is closed.
    """
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def create_file(path: Path, state: CompactionState, rows: Sequence[Row] = ()) -> None:
    """Create a store that continues after its floor."""
    path.touch(0o600)
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=OFF")  # the file has no name until it is complete
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.executescript(_SCHEMA)
        connection.execute("INSERT INTO state VALUES (1, ?, ?, ?, ?)", (*state, state_checksum(state)))
        write_identity(connection)
        connection.execute("BEGIN")
        _insert(connection, rows)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")


class StoreLog:
    """Open log file; used by one thread at a time."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.flushed = durability == "full"
        if self.flushed:
            _sync_wal(path.with_name(path.name + "-wal"))
        self._connection = connect(path)
        try:
            self._set(f"synchronous={durability.upper()}")
            self._set(f"wal_autocheckpoint={CHECKPOINT}")
            self._set(f"journal_size_limit={4 * CHECKPOINT * PAGE_SIZE}")
        except BaseException:
            self._connection.close()
            raise

    def append(self, rows: Sequence[Row]) -> None:
        """Commit a batch of rows; sqlite3.Error if none of them was committed."""
        if len(rows) == 1:
            _insert(self._connection, rows)
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            _insert(self._connection, rows)
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def compact(self, state: CompactionState, revisions: Sequence[int]) -> None:
        """Delete rows, and store the compaction state in the same transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            placeholders = ",".join("?" * len(revisions))
            deleted = connection.execute(
                f"DELETE FROM log WHERE revision IN ({placeholders})", revisions
            ).rowcount
            if deleted != len(revisions):
                raise sqlite3.DatabaseError(f"{len(revisions) - deleted} rows are missing")
            values = (*state, state_checksum(state))
            connection.execute("UPDATE state SET floor=?, rows=?, total=?, crc=? WHERE id=1", values)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._shrink()

    def close(self) -> None:
        self._connection.close()

    def _shrink(self) -> None:
        """Return some free pages to the file system if there are many."""
        connection = self._connection
        free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
        if free > MIN_FREE_PAGES and free * 4 > pages:
            # executescript runs it to the end; `execute` would stop after the first page.
            connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")

    def _set(self, pragma: str) -> None:
        self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _sync_wal(path: Path) -> None:
    """Sync the write-ahead log: rows that a killed process wrote are readable, but may not be on disk yet."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    start = 0
    for count, statement in _INSERTS:
        while len(rows) - start >= count:
            values: list[int | str | bytes] = []
            for row in rows[start : start + count]:
                values += row
                values.append(checksum(row))
            connection.execute(statement, values)
            start += count


def read_state(connection: sqlite3.Connection) -> CompactionState | None:
    """Return the compaction state, or None if it is damaged."""
    rows = connection.execute("SELECT floor, rows, total, crc FROM state").fetchall()
    if len(rows) != 1 or not all(isinstance(value, int) for value in rows[0]):
        return None
    floor, count, total, crc = rows[0]
    state = CompactionState(floor, count, total)
    return state if state_checksum(state) == crc else None


def write_identity(connection: sqlite3.Connection) -> None:
    """Give this file a new random identity, which distinguishes it from the file it was copied from."""
    identity = secrets.randbits(62)
    connection.execute("INSERT OR REPLACE INTO origin VALUES (1, ?, ?)", (identity, crc32(b"%d" % identity)))
    connection.commit()


def read_identity(connection: sqlite3.Connection) -> int | None:
    """Return the identity, or None if it is damaged."""
    rows = connection.execute("SELECT identity, crc FROM origin").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int) or crc32(b"%d" % rows[0][0]) != rows[0][1]:
        return None
    identity: int = rows[0][0]
    return identity


def read_rows(connection: sqlite3.Connection) -> Iterator[list[CheckedRow]]:
    """Yield all rows with their checksums in the order of their revisions, in batches."""
    cursor = connection.execute(f"{_SELECT} ORDER BY revision")
    cursor.arraysize = 1000
    while rows := cursor.fetchmany():
        yield rows
