"""Log of a container: its output in CRI format, rotated by size.

A module of the shim (see shim.py); imports nothing else of this package.
"""

from __future__ import annotations

import contextlib
import os
import time

#: Maximum length of a line in a log, in bytes; longer ones are split.
LINE_MAX = 16 * 1024
#: Size of the message of an exit that is taken from the end of the log, in bytes and lines; the kubelet's.
_TAIL_MAX, _TAIL_LINES = 2048, 80


class ContainerLog:
    """Container log in CRI format: `TIME stdout F line`; rotated files are numbered."""

    def __init__(self, path: str, size: int, files: int) -> None:
        self.path, self.max, self.files = path, size, max(files, 1)
        self.pending = {b"stdout": b"", b"stderr": b""}
        self.lost = 0
        self.fd, self.size, self._second = -1, 0, (-1, b"")
        self._open()

    def feed(self, stream: bytes, data: bytes) -> None:
        """Add output; an incomplete line waits for its end, up to the maximum length."""
        data = self.pending[stream] + data
        end = data.rfind(b"\n") + 1
        body, rest = data[:end], data[end:]
        start = b"%s %s " % (self._stamp(), stream)
        out = b""
        if body and not has_long_line(body):
            # The common case: without building a list of all lines, which may be many thousands.
            full = start + b"F "
            out = full + body[:-1].replace(b"\n", b"\n" + full) + b"\n"
        elif body:
            out = b"".join(format_line(start, line, b"F") for line in body[:-1].split(b"\n"))
        if len(rest) > LINE_MAX:
            *parts, rest = split_line(rest)
            out += b"".join(b"%sP %s\n" % (start, part) for part in parts)
        self.pending[stream] = rest
        if out:
            self._write(out)

    def close(self) -> None:
        """Write incomplete lines as partial ones and close the file."""
        for stream, rest in self.pending.items():
            if rest:
                self._write(b"%s %s P %s\n" % (self._stamp(), stream, rest))
        if self.fd >= 0:
            os.close(self.fd)

    def _stamp(self) -> bytes:
        second, nano = divmod(time.time_ns(), 1_000_000_000)
        if self._second[0] != second:
            self._second = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%s.%09dZ" % (self._second[1], nano)

    def _write(self, data: bytes) -> None:
        if self.size and self.size + len(data) > self.max:
            self._rotate()
        if self.fd < 0:
            self._open()
        try:
            view = memoryview(data)
            while view:
                count = os.write(self.fd, view)
                self.size += count
                view = view[count:]
        except OSError:  # disk full: the container continues, its output is lost
            self.lost += len(data)

    def _open(self) -> None:
        try:
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self.size = os.fstat(self.fd).st_size
        except OSError:
            self.fd = -1

    def _rotate(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.size = -1, 0
        try:
            if self.files == 1:
                os.truncate(self.path, 0)
                return
            for number in range(self.files - 1, 0, -1):
                older = f"{self.path}.{number - 1}" if number > 1 else self.path
                with contextlib.suppress(FileNotFoundError):
                    os.rename(older, f"{self.path}.{number}")
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self.path, 0)


def has_long_line(body: bytes) -> bool:
    """Return whether a text of complete lines contains one over the maximum length."""
    at = 0
    while at < len(body):
        end = body.rfind(b"\n", at, at + LINE_MAX + 1)
        if end < 0:
            return True
        at = end + 1
    return False


def format_line(start: bytes, line: bytes, mark: bytes) -> bytes:
    """Format a line of the log, in parts if it is long; the mark is that of the last."""
    *parts, last = split_line(line) or [b""]
    return b"".join(b"%sP %s\n" % (start, part) for part in parts) + b"%s%s %s\n" % (start, mark, last)


def split_line(line: bytes) -> list[bytes]:
    """Split a line into parts of the maximum length; only the last may be shorter."""
    return [line[at : at + LINE_MAX] for at in range(0, len(line), LINE_MAX)]


def read_tail(path: str) -> bytes:
    """Return the last lines of a log file, see `log_tail`."""
    with open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - 8 * _TAIL_MAX, 0))
        return log_tail(file.read())


def log_tail(data: bytes) -> bytes:
    """Return the last lines of a log without timestamps and tags, within the kubelet's limits."""
    found = []
    for line in data.split(b"\n")[-_TAIL_LINES - 1 :]:
        fields = line.split(b" ", 3)
        if len(fields) == 4:
            found.append(fields[3] + (b"" if fields[2] == b"P" else b"\n"))
    return b"".join(found)[-_TAIL_MAX:]
