"""Frames of SPDY/3.1: decoding and encoding, without I/O.

A control frame has a type and at most 64 KiB, its header block at most 64 KiB when decompressed; data frames
are passed on in pieces as they arrive, so that no frame is held in memory. Any other input raises
SpdyProtocolError, after which the decoder cannot be used: both sides share the state of the compression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from plimsoll.errors import SpdyProtocolError
from plimsoll.protocols.spdy.dictionary import DICTIONARY

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY, HEADERS = 1, 2, 3, 6, 7, 8
FIN = 1
#: Status codes of RST_STREAM.
INVALID_STREAM, REFUSED_STREAM, CANCEL = 2, 3, 5
MAX_CONTROL_BYTES = 64 << 10
MAX_HEADER_BYTES = 64 << 10
_MAX_LENGTH = (1 << 24) - 1
_VERSION = 3
_HEAD = struct.Struct(">II")
_ID = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class SynStream:
    """Start of a stream."""

    stream: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class SynReply:
    """Acceptance of a stream."""

    stream: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class RstStream:
    """Abnormal end of a stream."""

    stream: int
    status: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Request for the same frame in return."""

    id: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """Announcement that no more streams are accepted."""

    last_stream: int
    status: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """A piece of a stream's data; `fin` ends this direction."""

    stream: int
    data: bytes
    fin: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """Control frame without effect here: SETTINGS, WINDOW_UPDATE, late HEADERS."""

    type: int


Frame: TypeAlias = SynStream | SynReply | RstStream | Ping | GoAway | Data | Ignored


class FrameDecoder:
    """Decoder of one direction of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)
        #: Stream, remaining bytes and FIN flag of the data frame that is being received.
        self._data: tuple[int, int, bool] | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete, and the pieces of data frames."""
        self._buffer += data
        while True:
            if self._data is not None:
                if not self._buffer:
                    return
                yield self._take_data(*self._data)
                continue
            if len(self._buffer) < _HEAD.size:
                return
            first, second = _HEAD.unpack_from(self._buffer)
            flags, length = second >> 24, second & _MAX_LENGTH
            if not first >> 31:
                del self._buffer[: _HEAD.size]
                stream, fin = first & _ID, bool(flags & FIN)
                if not length:
                    yield Data(stream, b"", fin)
                else:
                    self._data = (stream, length, fin)
                continue
            if (first >> 16) & 0x7FFF != _VERSION:
                raise SpdyProtocolError(f"version {(first >> 16) & 0x7FFF} is not SPDY/3")
            if length > MAX_CONTROL_BYTES:
                raise SpdyProtocolError(f"control frame of {length} bytes, at most {MAX_CONTROL_BYTES}")
            if len(self._buffer) < _HEAD.size + length:
                return
            body = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            yield self._control(first & 0xFFFF, flags, body)

    def _take_data(self, stream: int, left: int, fin: bool) -> Data:
        piece = bytes(self._buffer[:left])
        del self._buffer[:left]
        left -= len(piece)
        self._data = (stream, left, fin) if left else None
        return Data(stream, piece, fin and not left)

    def _control(self, type: int, flags: int, body: bytes) -> Frame:
        fin = bool(flags & FIN)
        if type == SYN_STREAM:
            stream, _, _ = _unpack(">IIH", body)
            return SynStream(stream & _ID, self._headers(body[10:]), fin)
        if type == SYN_REPLY:
            (stream,) = _unpack(">I", body)
            return SynReply(stream & _ID, self._headers(body[4:]), fin)
        if type == HEADERS:
            _unpack(">I", body)
            self._headers(body[4:])  # keeps the state of the compression
            return Ignored(type)
        if type == RST_STREAM:
            stream, status = _unpack(">II", body)
            return RstStream(stream & _ID, status)
        if type == PING:
            return Ping(_unpack(">I", body)[0])
        if type == GOAWAY:
            last, status = _unpack(">II", body)
            return GoAway(last & _ID, status)
        return Ignored(type)

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._zlib.decompress(block, MAX_HEADER_BYTES)
        except zlib.error as error:
            raise SpdyProtocolError(f"header block: {error}") from None
        if self._zlib.unconsumed_tail:
            raise SpdyProtocolError(f"header block of more than {MAX_HEADER_BYTES} bytes")
        return _read_headers(text)


def _unpack(format: str, body: bytes) -> tuple[int, ...]:
    if len(body) < struct.calcsize(format):
        raise SpdyProtocolError(f"control frame of {len(body)} bytes is too short")
    return struct.unpack_from(format, body)


def _read_headers(text: bytes) -> dict[str, str]:
    """Read name and value pairs; of several values, which are separated by NUL, the first counts."""
    found: dict[str, str] = {}
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if len(text) - at < size:
            raise SpdyProtocolError("header block is truncated")
        at += size
        return text[at - size : at]

    for _ in range(int.from_bytes(take(4), "big")):
        name = take(int.from_bytes(take(4), "big"))
        value = take(int.from_bytes(take(4), "big"))
        found[name.decode("latin-1").lower()] = value.decode("latin-1").partition("\0")[0]
    return found


class FrameEncoder:
    """Encoder of one direction of a connection."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        if isinstance(frame, Data):
            head = _HEAD.pack(frame.stream, (FIN if frame.fin else 0) << 24 | len(frame.data))
            return head + frame.data
        if isinstance(frame, SynStream):
            body = struct.pack(">IIH", frame.stream, 0, 0) + self._headers(frame.headers)
            return _control_frame(SYN_STREAM, body, fin=frame.fin)
        if isinstance(frame, SynReply):
            body = struct.pack(">I", frame.stream) + self._headers(frame.headers)
            return _control_frame(SYN_REPLY, body, fin=frame.fin)
        if isinstance(frame, RstStream):
            return _control_frame(RST_STREAM, struct.pack(">II", frame.stream, frame.status))
        if isinstance(frame, Ping):
            return _control_frame(PING, struct.pack(">I", frame.id))
        if isinstance(frame, GoAway):
            return _control_frame(GOAWAY, struct.pack(">II", frame.last_stream, frame.status))
        raise ValueError(f"frames of type {frame.type} are not sent")

    def _headers(self, headers: Mapping[str, str]) -> bytes:
        parts = [len(headers).to_bytes(4, "big")]
        for name, value in headers.items():
            for text in (name.lower().encode("latin-1"), value.encode("latin-1", "replace")):
                parts += (len(text).to_bytes(4, "big"), text)
        return self._zlib.compress(b"".join(parts)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


def _control_frame(type: int, body: bytes, *, fin: bool = False) -> bytes:
    head = _HEAD.pack(1 << 31 | _VERSION << 16 | type, (FIN if fin else 0) << 24 | len(body))
    return head + body
