"""TCP proxy that breaks connections: at once, during a response, or by becoming silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType


class Cutter:
    """TCP proxy to one address whose connections can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._to = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.refusing = False
        #: Connections accepted so far.
        self.accepted = 0
        #: Answers are broken off after this many bytes of a connection.
        self.bytes_left: int | None = None

    async def __aenter__(self) -> Cutter:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        while self._tasks:
            self.cut()
            await asyncio.wait(self._tasks, timeout=0.1)

    def cut(self) -> int:
        """Break every connection; return their number."""
        count = 0
        for writer in list(self._open):
            writer.transport.abort()
            count += 1
        self._open.clear()
        return count

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._to)
        except OSError:
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        self._open |= {writer, up_writer}
        try:
            await asyncio.gather(
                self._copy(reader, up_writer, None), self._copy(up_reader, writer, self.bytes_left)
            )
        finally:
            for each in (writer, up_writer):
                self._open.discard(each)
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
