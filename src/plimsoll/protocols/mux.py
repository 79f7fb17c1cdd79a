"""Multiplexer: several streams over one connection, as in NRI (docs/spec/node-protocols.md, "NRI").

A frame consists of a stream ID, a length and that many bytes; there is no handshake. Guarantees: frames of a
stream are joined, wherever they are split; the buffer of a slow reader is bounded (when it is full, nothing
more is read from the connection); frames of streams that are not open are dropped; a frame longer than any
message ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from plimsoll.common.tasks import cancel_tasks
from plimsoll.protocols.ttrpc import HEADER_SIZE, MAX_MESSAGE_SIZE

#: Stream IDs of an NRI connection: calls of the plugin's service, and calls of the runtime's.
PLUGIN_SERVICE = 1
RUNTIME_SERVICE = 2

#: Maximum length of a frame.
MAX_FRAME_SIZE = HEADER_SIZE + MAX_MESSAGE_SIZE
#: Maximum number of bytes buffered for one stream.
MAX_BUFFERED = 1024 * 1024
CHUNK_SIZE = 65536

_HEADER = struct.Struct(">II")


def encode_frame(channel: int, data: bytes) -> bytes:
    return _HEADER.pack(channel, len(data)) + data


class Channel:
    """Stream of a connection."""

    def __init__(self, mux: Mux, number: int) -> None:
        self._mux = mux
        self._number = number
        self.buffer = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def read(self, length: int) -> bytes:
        while not self.buffer and not self._ended:
            await self._wait()
        some = bytes(self.buffer[:length])
        del self.buffer[:length]
        self._changed.set()
        return some

    async def write(self, *parts: bytes) -> bool:
        return await self._mux.write(self._number, parts)

    def close(self) -> None:
        """Close the connection: single streams cannot be closed."""
        self._mux.end()

    async def feed(self, data: bytes) -> None:
        """Buffer data for the reader, waiting while the buffer is full."""
        while len(self.buffer) >= MAX_BUFFERED and not self._ended:
            await self._wait()
        self.buffer += data
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Mux:
    """Connection with many streams. Open the streams before the event loop continues, or frames are lost."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._channels: dict[int, Channel] = {}
        self._sending = asyncio.Lock()
        self._closed = asyncio.Event()
        #: Reason why the connection ended, if the peer violated the protocol.
        self.reason = ""
        self._task = asyncio.create_task(self._read())

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def open(self, number: int) -> Channel:
        """Return the stream with an ID, the same object on every call."""
        channel = self._channels.get(number)
        if channel is None:
            channel = self._channels[number] = Channel(self, number)
            if self.closed:
                channel.end()
        return channel

    async def write(self, number: int, parts: tuple[bytes, ...]) -> bool:
        async with self._sending:
            if self.closed or self._writer.is_closing():
                return False
            for part in parts:
                for start in range(0, len(part), MAX_FRAME_SIZE):
                    self._writer.write(encode_frame(number, part[start : start + MAX_FRAME_SIZE]))
            try:
                await self._writer.drain()
            except OSError:
                self.end()
                return False
        return True

    async def _read(self) -> None:
        try:
            while True:
                number, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
                if length > MAX_FRAME_SIZE:
                    self.reason = f"a frame of {length} bytes is longer than any message"
                    return
                channel = self._channels.get(number)
                while length:
                    some = await self._reader.read(min(length, CHUNK_SIZE))
                    if not some:
                        return
                    length -= len(some)
                    if channel is not None:
                        await channel.feed(some)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.end()

    def end(self) -> None:
        """Close the connection and all its streams; buffered data can still be read."""
        if self.closed:
            return
        self._closed.set()
        self._writer.close()
        for channel in self._channels.values():
            channel.end()

    async def close(self) -> None:
        self.end()
        await cancel_tasks([self._task])
        with suppress(OSError):
            await self._writer.wait_closed()
