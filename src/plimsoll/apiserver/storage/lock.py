"""Lock file: ensures one process per store, and records the last committed revision.

The file is `NAME.lock` next to a store. While a StoreLock is held no other process gets it. The mark in it is
the last committed revision that a client may have seen, however the process ended. (After a power failure the
mark may be older than that, never newer.) It reveals a store that has lost its end or is missing, and ensures
that no revision is used twice even then.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from plimsoll.errors import StoreError

_PID = 0
_MARK = 32
_PID_LINE = re.compile(rb"process (\d+)")
_MARK_LINE = re.compile(rb"((full  |normal) (\d{20}) ([0-9a-f]{16})) ([0-9a-f]{8})\n")


class RevisionMark(NamedTuple):
    """Last committed revision, whether it was synced to disk, and the identity of its file."""

    revision: int
    flushed: bool
    identity: int


class StoreLock:
    """Exclusive lock, held from open to close."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        self._file = -1
        try:
            self._file = _acquire(self.path)
            if self._file < 0:
                raise StoreError(f"{store} is in use by {_describe_holder(self.path)}; stop it first")
            self.mark = _read_mark(os.pread(self._file, 64, _MARK))
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from None
        self._write(_PID, b"process %d" % os.getpid(), _MARK - 1)

    def write_mark(self, mark: RevisionMark) -> None:
        """Record that everything up to a revision is committed."""
        kind = b"full  " if mark.flushed else b"normal"
        line = b"%b %020d %016x" % (kind, mark.revision, mark.identity)
        self._write(_MARK, b"%b %08x" % (line, crc32(line)), 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, offset: int, line: bytes, width: int) -> None:
        # The mark is an additional safeguard; a full disk must not stop the store here.
        try:
            os.pwrite(self._file, line.ljust(width) + b"\n", offset)
        except OSError:
            return


def _acquire(path: Path) -> int:
    """Return the descriptor of the locked file, or -1 if another process holds it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return -1
        # The file may have been removed between opening and locking it.
        try:
            same = os.path.samestat(os.fstat(file), os.stat(path))
        except FileNotFoundError:
            same = False
        if same:
            return file
        os.close(file)


def _describe_holder(path: Path) -> str:
    line = _PID_LINE.match(path.read_bytes()[:_MARK])
    return f"process {int(line[1])}" if line else "another process"


def _read_mark(text: bytes) -> RevisionMark:
    line = _MARK_LINE.match(text)
    if line is None or int(line[5], 16) != crc32(line[1]):
        return RevisionMark(0, False, 0)
    return RevisionMark(int(line[3]), line[2] == b"full  ", int(line[4], 16))
