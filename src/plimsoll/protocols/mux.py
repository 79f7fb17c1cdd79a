"""Multiplexer: several streams over one connection, as in NRI (docs/spec/node-protocols.md, "NRI").

A frame is a stream's number, a length and so many bytes; there is no handshake. Guarantees: frames are put
together by stream, wherever they are cut; what is held for a reader that is slow is bounded (then nothing
more is read from the connection); frames for streams that no one has opened are dropped; a frame that is
longer than any message ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from plimsoll.common.tasks import cancel_tasks
from plimsoll.protocols.ttrpc import HEADER_SIZE, LARGEST_DATA

#: The streams of an NRI connection: calls of the plugin's service, and calls of the runtime's.
PLUGIN_SERVICE = 1
RUNTIME_SERVICE = 2

#: The longest frame.
LARGEST_FRAME = HEADER_SIZE + LARGEST_DATA
#: Bytes that are held for one stream.
MOST_HELD = 1024 * 1024
_PIECE = 65536

_HEADER = struct.Struct(">II")


def encode_frame(channel: int, data: bytes) -> bytes:
    return _HEADER.pack(channel, len(data)) + data


class Channel:
    """Stream of a connection."""

    def __init__(self, mux: Mux, number: int) -> None:
        self._mux = mux
        self._number = number
        self._held = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def read(self, length: int) -> bytes:
        while not self._held and not self._ended:
            await self._wait()
        some = bytes(self._held[:length])
        del self._held[:length]
        self._changed.set()
        return some

    async def write(self, *parts: bytes) -> bool:
        return await self._mux.write(self._number, parts)

    def close(self) -> None:
        """Close the connection: streams have no end of their own."""
        self._mux.end()

    async def feed(self, data: bytes) -> None:
        """Buffer data for the reader, once there is room."""
        while len(self._held) >= MOST_HELD and not self._ended:
            await self._wait()
        self._held += data
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Mux:
    """Connection with many streams; open the streams before the event loop continues, so that nothing is
    lost.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._channels: dict[int, Channel] = {}
        self._sending = asyncio.Lock()
        self._gone = asyncio.Event()
        #: Why the connection ended, where that was the peer's fault.
        self.reason = ""
        self._task = asyncio.create_task(self._read())

    @property
    def closed(self) -> bool:
        return self._gone.is_set()

    async def wait_closed(self) -> None:
        await self._gone.wait()

    def open(self, number: int) -> Channel:
        """Return the stream of a number; always the same one."""
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
                for start in range(0, len(part), LARGEST_FRAME):
                    self._writer.write(encode_frame(number, part[start : start + LARGEST_FRAME]))
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
                if length > LARGEST_FRAME:
                    self.reason = f"a frame of {length} bytes is longer than any message"
                    return
                channel = self._channels.get(number)
                while length:
                    some = await self._reader.read(min(length, _PIECE))
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
        self._gone.set()
        self._writer.close()
        for channel in self._channels.values():
            channel.end()

    async def close(self) -> None:
        self.end()
        await cancel_tasks([self._task])
        with suppress(OSError):
            await self._writer.wait_closed()
