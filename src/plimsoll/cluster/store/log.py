"""The file: one row for every write, in SQLite.

Owns the tables, how they are written, and how they are read back with every row checked. Promises: a group of
rows is there whole or not at all; a row's checksum covers its key, its place in the sequence and its object,
and each row names the one before it, so that a row that changed or went missing is noticed when the file is
read. Rows at or below the floor are only those that still count: what they replaced is deleted in the
background, and how many there must be is written down with the floor.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple
from zlib import crc32

Durability = Literal["full", "normal"]

APPLICATION = 0x504C494D  # "PLIM"
FORMAT = 1
PAGE_SIZE = 8192
TYPES: tuple[Literal["ADDED", "MODIFIED", "DELETED"], ...] = ("ADDED", "MODIFIED", "DELETED")

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
CREATE TABLE state (
  id INTEGER PRIMARY KEY,
  floor INTEGER NOT NULL,        -- watches may start here or later
  rows INTEGER NOT NULL,         -- how many rows there are at or below the floor
  crc INTEGER NOT NULL
);
"""
_INSERT = "INSERT INTO log VALUES "
_PLACES = "(?,?,?,?,?,?,?,?,?)"
#: One statement for many rows: each statement hands the interpreter lock over and back once.
_STEPS = tuple((count, _INSERT + ",".join([_PLACES] * count)) for count in (128, 32, 8, 1))
_SELECT = "SELECT revision, previous, type, created, resource, namespace, name, value, crc FROM log"

Row = tuple[int, int, int, int, str, str, str, bytes]  # without its checksum
CheckedRow = tuple[int, int, int, int, str, str, str, bytes, int]


class State(NamedTuple):
    """How far the log is compacted."""

    floor: int
    rows: int


def checksum(row: Row) -> int:
    revision, previous, kind, created, resource, namespace, name, value = row
    head = f"{revision} {previous} {kind} {created} {resource}\0{namespace}\0{name}\0"
    return crc32(value, crc32(head.encode()))


def _state_checksum(state: State) -> int:
    return crc32(f"{state.floor} {state.rows}".encode())


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in which every statement is a transaction of its own, for whichever thread uses it."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)


def create_file(path: Path, floor: int) -> None:
    """An empty store that goes on after a revision."""
    path.touch(0o600)
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
        state = State(floor, 0)
        connection.execute("INSERT INTO state VALUES (1, ?, ?, ?)", (*state, _state_checksum(state)))
        connection.execute("PRAGMA journal_mode=WAL")


class Log:
    """The open file; used by one thread at a time."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._connection = connect(path)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={durability.upper()}")
        self._connection.execute(f"PRAGMA journal_size_limit={64 << 20}")

    def append(self, rows: Sequence[Row]) -> None:
        """Commit a group of rows; raises sqlite3.Error, and then none of them is there."""
        connection = self._connection
        one = len(rows) == 1
        if not one:
            connection.execute("BEGIN IMMEDIATE")
        try:
            start = 0
            for count, statement in _STEPS:
                while len(rows) - start >= count:
                    values: list[int | str | bytes] = []
                    for row in rows[start : start + count]:
                        values += row
                        values.append(checksum(row))
                    connection.execute(statement, values)
                    start += count
            if not one:
                connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def compact(self, state: State, revisions: Sequence[int]) -> None:
        """Delete rows that no longer count, and note the floor with it."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            marks = ",".join("?" * len(revisions))
            deleted = connection.execute(f"DELETE FROM log WHERE revision IN ({marks})", revisions).rowcount
            if deleted != len(revisions):
                raise sqlite3.DatabaseError(f"{len(revisions) - deleted} rows are missing")
            values = (*state, _state_checksum(state))
            connection.execute("UPDATE state SET floor=?, rows=?, crc=? WHERE id=1", values)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def close(self) -> None:
        self._connection.close()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def read_state(connection: sqlite3.Connection) -> State | None:
    """The state, or None when it is damaged."""
    rows = connection.execute("SELECT floor, rows, crc FROM state").fetchall()
    if len(rows) != 1:
        return None
    state = State(rows[0][0], rows[0][1])
    return state if _state_checksum(state) == rows[0][2] else None


def read_rows(
    connection: sqlite3.Connection,
) -> Iterator[CheckedRow]:
    """All rows with their checksums, in the order of their revisions."""
    cursor = connection.execute(f"{_SELECT} ORDER BY revision")
    cursor.arraysize = 1000
    while rows := cursor.fetchmany():
        yield from rows
