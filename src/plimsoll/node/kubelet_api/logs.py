"""Container logs: reads a log file from the end or the beginning, and follows it across rotations.

A log that is followed ends when its container has exited and all of it was read. Reading is done in threads,
in chunks of 256 KiB, so that neither a large log nor a slow reader delays others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable

from plimsoll.node.kubelet_api.log_format import LogFormatter, LogOptions

_CHUNK_BYTES = 256 << 10
_TAIL_BYTES = 64 << 10
#: More files than a log is rotated to.
_MAX_FILES = 20
#: Time between two looks at a log that is followed (seconds).
POLL_SECONDS = 0.1


async def read_log(
    path: str,
    options: LogOptions,
    is_running: Callable[[], bool] = lambda: False,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> AsyncGenerator[bytes, None]:
    """Yield the output that a request selects; OSError if there is no log."""
    reader = LogFile(path)
    try:
        if options.tail_lines is not None:
            await asyncio.to_thread(reader.seek_tail, options.tail_lines)
        formatter = LogFormatter(options)
        while not formatter.done:
            # In this order: what was written before the container exited is read after that.
            running = options.follow and is_running()
            lines = await asyncio.to_thread(reader.read_lines)
            if lines:
                text = formatter.format(lines)
                if text:
                    yield text
            elif not running:
                rest = formatter.format(reader.rest())
                if rest:
                    yield rest
                return
            else:
                await asyncio.sleep(poll_seconds)
    finally:
        reader.close()


class LogFile:
    """Log file that another process appends to and rotates."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._next_fd = -1
        self._rest = b""

    def close(self) -> None:
        for fd in (self._fd, self._next_fd):
            if fd >= 0:
                os.close(fd)

    def seek_tail(self, count: int) -> None:
        """Continue with the last lines of the file."""
        end = os.fstat(self._fd).st_size
        at, left = end, count
        if end and os.pread(self._fd, 1, end - 1) == b"\n":
            left += 1  # the end of the last line
        while at > 0:
            size = min(_TAIL_BYTES, at)
            block = os.pread(self._fd, size, at - size)
            found = len(block)
            while left > 0 and found >= 0:
                found = block.rfind(b"\n", 0, found)
                left -= found >= 0
            if left <= 0:
                os.lseek(self._fd, end if not count else at - size + found + 1, os.SEEK_SET)
                return
            at -= size
        os.lseek(self._fd, end if not count else 0, os.SEEK_SET)

    def read_lines(self) -> bytes:
        """Return the next complete lines; b"" if there are none now."""
        while True:
            data = os.read(self._fd, _CHUNK_BYTES)
            if data:
                data = self._rest + data
                end = data.rfind(b"\n") + 1
                self._rest = data[end:]
                if end:
                    return data[:end]
            elif self._next_fd >= 0:
                os.close(self._fd)
                self._fd, self._next_fd, self._rest = self._next_fd, -1, b""
            elif os.lseek(self._fd, 0, os.SEEK_CUR) > os.fstat(self._fd).st_size:  # truncated
                os.lseek(self._fd, 0, os.SEEK_SET)
                self._rest = b""
            elif not self._find_next():  # else the old file is read once more before the switch
                return b""

    def rest(self) -> bytes:
        """Return an incomplete last line."""
        rest, self._rest = self._rest, b""
        return rest

    def _find_next(self) -> bool:
        """Open the file that follows this one if the log was rotated."""
        mine, newer = os.fstat(self._fd), ""
        for path in (self._path, *(f"{self._path}.{number}" for number in range(1, _MAX_FILES))):
            try:
                found = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                continue  # between two steps of a rotation, or the last one
            if (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino):
                break
            newer = path
        else:
            newer = self._path  # removed by several rotations
        if not newer:
            return False
        try:
            self._next_fd = os.open(newer, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        return True
