"""TCP proxy that breaks connections: at once, during a response, or by becoming silent."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from types import TracebackType

from tests.streams import StreamServer, serving_streams


class Cutter:
    """TCP proxy to one address whose connections can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._to = port
        self._stack = AsyncExitStack()
        self._upstream: set[asyncio.StreamWriter] = set()
        self._server = StreamServer()
        self.refusing = False
        #: Connections accepted so far.
        self.accepted = 0
        #: Answers are broken off after this many bytes of a connection.
        self.bytes_left: int | None = None

    async def __aenter__(self) -> Cutter:
        self._server = await self._stack.enter_async_context(serving_streams(self._accept))
        return self

    @property
    def port(self) -> int:
        return self._server.port

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def cut(self) -> int:
        """Break every connection; return their number."""
        for writer in list(self._upstream):
            writer.transport.abort()
        return self._server.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._to)
        except OSError:
            writer.transport.abort()
            return
        self._upstream.add(up_writer)
        try:
            await asyncio.gather(
                self._copy(reader, up_writer, None), self._copy(up_reader, writer, self.bytes_left)
            )
        finally:
            self._upstream.discard(up_writer)
            for each in (writer, up_writer):
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                if left is not None:
                    chunk = chunk[:left]
                    left -= len(chunk)
                writer.write(chunk)
                await writer.drain()
                if left == 0:
                    break
        writer.transport.abort()
