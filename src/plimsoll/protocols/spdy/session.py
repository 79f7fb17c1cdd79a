"""Server side of a SPDY/3.1 connection: streams over any byte channel.

Every stream that the client opens is accepted, up to a limit, and given to `on_stream`. A stream holds at
most 256 KiB that were not read; then the connection is not read further, as in other implementations: SPDY's
own flow control is not used by Kubernetes. A frame that cannot be decoded, or a closed channel, ends all
streams.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from plimsoll.common.byte_buffer import ByteBuffer
from plimsoll.protocols.spdy.frames import (
    CANCEL,
    INVALID_STREAM,
    REFUSED_STREAM,
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)

#: Bytes of a stream that were received and not read.
MAX_UNREAD_BYTES = 256 << 10
#: Streams of one connection that are open at the same time.
MAX_STREAMS = 256
_CHUNK_BYTES = 32 << 10


class ByteChannel(Protocol):
    """Bytes in both directions: an upgraded HTTP connection, or a WebSocket that carries one."""

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write, and wait while the peer does not read; ConnectionError if it is gone."""
        ...


class SpdyStream:
    """One stream of a connection."""

    def __init__(self, session: SpdySession, id: int, headers: Mapping[str, str]) -> None:
        self.id = id
        self.headers = headers
        self._session = session
        self._received = ByteBuffer(MAX_UNREAD_BYTES)
        self.closed = False  #: nothing more can be written

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end."""
        return await self._received.get()

    async def write(self, data: bytes) -> None:
        """Write, and wait while the peer does not read; ConnectionError if the stream is closed."""
        for start in range(0, len(data), _CHUNK_BYTES):
            if self.closed:
                raise ConnectionResetError("the stream is closed")
            await self._session.send(Data(self.id, data[start : start + _CHUNK_BYTES]))

    async def close(self) -> None:
        """End this direction."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(ConnectionError):
                await self._session.send(Data(self.id, b"", fin=True))
            self._session.forget(self)

    async def reset(self) -> None:
        """End both directions at once."""
        if not (self.closed and self.ended):
            self.end()
            self.closed = True
            with contextlib.suppress(ConnectionError):
                await self._session.send(RstStream(self.id, CANCEL))
            self._session.forget(self)

    # -- called by the session

    async def receive(self, data: bytes, *, fin: bool) -> None:
        """Take a piece of data; wait while too much is unread."""
        await self._received.put(data)
        if fin:
            self.end()

    def end(self) -> None:
        """Record that the peer sends nothing more."""
        self._received.end()

    @property
    def ended(self) -> bool:
        return self._received.ended


class SpdySession:
    """SPDY connection whose client opens the streams; `run` it until the channel ends."""

    def __init__(self, channel: ByteChannel, on_stream: Callable[[SpdyStream], None]) -> None:
        self._channel = channel
        self._on_stream = on_stream
        self._encoder = FrameEncoder()
        self._sending = asyncio.Lock()
        self._streams: dict[int, SpdyStream] = {}
        self._last_stream = 0

    async def run(self) -> None:
        """Serve streams until the channel ends; SpdyProtocolError if it does not carry SPDY."""
        decoder = FrameDecoder()
        try:
            while data := await self._channel.read():
                for frame in decoder.feed(data):
                    await self._on_frame(frame)
        except ConnectionError:
            return
        finally:
            for stream in list(self._streams.values()):
                stream.closed = True
                stream.end()
            self._streams.clear()

    async def send(self, frame: Frame) -> None:
        async with self._sending:  # header blocks must be sent in the order of their compression
            await self._channel.write(self._encoder.encode(frame))

    def forget(self, stream: SpdyStream) -> None:
        """Drop a stream whose both directions have ended."""
        if stream.closed and stream.ended:
            self._streams.pop(stream.id, None)

    async def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, Data):
            stream = self._streams.get(frame.stream)
            if stream is not None:
                await stream.receive(frame.data, fin=frame.fin)
                self.forget(stream)
        elif isinstance(frame, SynStream):
            await self._open(frame)
        elif isinstance(frame, RstStream):
            stream = self._streams.pop(frame.stream, None)
            if stream is not None:
                stream.closed = True
                stream.end()
        elif isinstance(frame, Ping) and frame.id % 2:  # even ones are answers to pings of a server
            await self.send(frame)

    async def _open(self, frame: SynStream) -> None:
        if not frame.stream % 2 or frame.stream <= self._last_stream:
            await self.send(RstStream(frame.stream, INVALID_STREAM))
            return
        self._last_stream = frame.stream
        if len(self._streams) >= MAX_STREAMS:
            await self.send(RstStream(frame.stream, REFUSED_STREAM))
            return
        stream = SpdyStream(self, frame.stream, frame.headers)
        self._streams[frame.stream] = stream
        await self.send(SynReply(frame.stream))
        if frame.fin:
            stream.end()
        self._on_stream(stream)
