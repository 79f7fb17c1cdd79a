"""Servers of tests on asyncio streams that leave no connection open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class StreamServer:
    """A server on a free port of the loopback interface."""

    port: int = 0
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def abort(self) -> int:
        """Break all connections; return their number."""
        for writer in (writers := list(self.open)):
            writer.transport.abort()
        return len(writers)


@asynccontextmanager
async def serving_streams(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncIterator[StreamServer]:
    """Run a coroutine for every connection, which is closed when the coroutine or the server ends.

    asyncio closes nothing: if the loop ends before the task of a new connection has begun, its transport is
    found unclosed during a later test.
    """
    served = StreamServer(scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        served.open.add(writer)
        task = asyncio.create_task(run(reader, writer))
        tasks.add(task)
        task.add_done_callback(lambda done: finish(done, writer))

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await handle(reader, writer)
            writer.close()

    def finish(task: asyncio.Task[Any], writer: asyncio.StreamWriter) -> None:
        tasks.discard(task)
        served.open.discard(writer)
        if not writer.is_closing():
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for _ in range(3):  # a connection that was just accepted is reported within two turns of the loop
            await asyncio.sleep(0)
        served.abort()
        for task in (remaining := list(tasks)):
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
