"""Selection and format of container log lines, from CRI format to what `kubectl logs` shows. Pure.

A line of a log file is `TIME stdout F text`; the tag P marks a part of a longer line, which the next line of
this stream continues. Semantics are the kubelet's: `tailLines` counts lines of the file, `sinceTime` skips
older ones, `limitBytes` cuts the output, and timestamps are written at the beginnings of lines only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from plimsoll.api.timestamps import parse_datetime
from plimsoll.errors import InputError

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("", "0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a request for logs (PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: bytes = b""  #: oldest timestamp, in the format of log files; b"": no limit
    tail_lines: int | None = None
    limit_bytes: int | None = None
    streams: frozenset[bytes] = frozenset((b"stdout", b"stderr"))


def parse_log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """Parse the query of a request; InputError names the parameter."""
    since_seconds, since_time = _integer(query, "sinceSeconds", 1), query.get("sinceTime") or ""
    if since_seconds is not None and since_time:
        raise InputError("at most one of `sinceTime` or `sinceSeconds` may be specified")
    since = b""
    if since_seconds is not None:
        since = _log_time(now - timedelta(seconds=min(since_seconds, 10**9)))
    elif since_time:
        parsed = parse_datetime(since_time)
        if parsed is None:
            raise InputError(f"sinceTime: {since_time!r} is not an RFC 3339 time")
        since = _log_time(parsed)
    streams = {"": (b"stdout", b"stderr"), "All": (b"stdout", b"stderr")} | {
        "Stdout": (b"stdout",),
        "Stderr": (b"stderr",),
    }
    stream = query.get("stream") or ""
    if stream not in streams:
        raise InputError(f"stream: {stream!r} is not one of All, Stdout, Stderr")
    return LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        since=since,
        tail_lines=_integer(query, "tailLines", 0),
        limit_bytes=_integer(query, "limitBytes", 1),
        streams=frozenset(streams[stream]),
    )


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "")
    if value not in _TRUE and value not in _FALSE:
        raise InputError(f"{name}: {value!r} is not a boolean")
    return value in _TRUE


def _integer(query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise InputError(f"{name}: {text[:40]!r} is not an integer") from None
    if value < least:
        raise InputError(f"{name}: {value} is less than {least}")
    return value


def _log_time(time: datetime) -> bytes:
    utc = time.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond:06d}000Z".encode()


class LogFormatter:
    """Formatter of complete lines of a log file; `done` once the limit of bytes is reached."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._starts_line = True
        self.done = options.limit_bytes == 0

    def format(self, lines: bytes) -> bytes:
        """Format complete lines of the file; lines that are not in CRI format are skipped."""
        options, found = self._options, list[bytes]()
        for line in lines.split(b"\n"):
            fields = line.split(b" ", 3)
            if len(fields) < 4 or fields[1] not in (b"stdout", b"stderr"):
                continue
            time, stream, tag, text = fields
            if stream not in options.streams or time < options.since:
                continue
            if options.timestamps and self._starts_line:
                found += (time, b" ")
            found.append(text)
            self._starts_line = not tag.startswith(b"P")
            if self._starts_line:
                found.append(b"\n")
        return self._cut(b"".join(found))

    def _cut(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        data = data[: self._left]
        self._left -= len(data)
        self.done = self._left == 0
        return data
