"""Raw bytes to an HTTP server and its responses."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from typing import NamedTuple

from tests.waiting import DEADLINE

_LENGTH = re.compile(rb"^content-length:\s*(\d+)\s*$", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding:\s*chunked\s*$", re.IGNORECASE | re.MULTILINE)


class Reply(NamedTuple):
    """One response; status 0: the connection was closed without one."""

    status: int
    head: bytes = b""
    body: bytes = b""


CLOSED = Reply(0)


def trusting() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class RawConnection:
    """Connection that sends bytes as given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def open(port: int, tls: ssl.SSLContext | None = None) -> RawConnection:
        return RawConnection(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 24))

    async def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Send pieces one by one; a server that has closed the connection is no error."""
        try:
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()
                if pause or len(pieces) > 1:
                    await asyncio.sleep(pause)
        except (ConnectionError, ssl.SSLError):
            return

    async def reply(self, *, whole: bool = True) -> Reply:
        """Read the next response; only the head of a stream unless the body is wanted."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            while head.startswith(b"HTTP/1.1 100"):
                head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            lines = head.replace(b"\r", b"")
            if found := _LENGTH.search(lines):
                return Reply(status, head, await self.reader.readexactly(int(found[1])))
            if not whole:
                return Reply(status, head)
            return Reply(
                status, head, await (self._chunks() if _CHUNKED.search(lines) else self.reader.read())
            )
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return CLOSED

    async def _chunks(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            size = int(await self.reader.readline(), 16)
            piece = await self.reader.readexactly(size + 2)
            if not size:
                return b"".join(pieces)
            pieces.append(piece[:-2])

    def stop_reading(self) -> None:
        """Stop reading from the socket."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def go_on_reading(self) -> None:
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.resume_reading()

    async def abort(self) -> None:
        """Close without shutdown."""
        self.writer.transport.abort()
        await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(1):
                await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            return


async def exchange(
    port: int,
    pieces: Iterable[bytes],
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = DEADLINE,
    whole: bool = True,
) -> Reply:
    """Send bytes on a new connection and return the first response, or raise TimeoutError."""
    try:
        wire = await RawConnection.open(port, tls)
    except (ConnectionError, ssl.SSLError):
        return CLOSED
    try:
        async with asyncio.timeout(seconds):
            await wire.send(*pieces)
            return await wire.reply(whole=whole)
    finally:
        await wire.close()
