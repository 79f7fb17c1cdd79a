"""One process for each file, and how far it had come.

Owns the file `NAME.lock` beside a store. Promises: while a Lock is held no other process gets it; the mark in
it is the last revision that was durable and may have been seen by somebody, whatever end the process took.
(After a power cut the mark may be older than that, never newer.) A store that has lost its end, or is gone,
is told by that mark, and no revision is given out twice even then.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from zlib import crc32

from plimsoll.errors import StoreError

_PID = 0
_MARK = 32
_PID_LINE = re.compile(rb"process (\d+)")
_MARK_LINE = re.compile(rb"revision (\d{20}) ([0-9a-f]{8})\n")


class Lock:
    """Held from open to close."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _PID_LINE.match(os.pread(self._file, _MARK, _PID))
            os.close(self._file)
            who = f"process {int(holder[1])}" if holder else "another process"
            raise StoreError(f"{store} is in use by {who}; only one may have it open") from None
        line = _MARK_LINE.match(os.pread(self._file, 64, _MARK))
        self.mark = int(line[1]) if line and int(line[2], 16) == crc32(line[1]) else 0
        self._write(b"process %d" % os.getpid(), _PID, _MARK - 1)

    def write_mark(self, revision: int) -> None:
        """Note that everything up to a revision is durable."""
        digits = b"%020d" % revision
        self._write(b"revision %b %08x" % (digits, crc32(digits)), _MARK, 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes, offset: int, width: int) -> None:
        # The mark is a safeguard beside the file; a disk too full for it must not stop the store.
        try:
            os.pwrite(self._file, line.ljust(width) + b"\n", offset)
        except OSError:
            return
