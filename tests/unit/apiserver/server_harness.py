"""API server on a port, and raw connections to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from plimsoll.apiserver.acceptor import ConnectionAcceptor
from plimsoll.apiserver.connections import ServerConnection
from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from tests.fuzz.raw_http import RawConnection, Reply, trusting
from tests.waiting import DEADLINE

REQUEST = b"GET /version HTTP/1.1\r\nHost: x\r\n"


MAPS = "/api/v1/namespaces/default/configmaps"


class ServerHarness:
    """Running server, and connections to it."""

    def __init__(self, running: RunningServer) -> None:
        self.running = running
        self.port = running.port
        self.credentials = f"Authorization: Bearer {running.token}\r\n".encode()
        acceptor = running.http.acceptor
        assert acceptor is not None
        self.acceptor: ConnectionAcceptor = acceptor

    @property
    def connections(self) -> list[ServerConnection]:
        found = self.acceptor.server.connections
        return [connection for connection in found if isinstance(connection, ServerConnection)]

    async def open(self) -> RawConnection:
        return await RawConnection.open(self.port, trusting())

    async def version(self, connection: RawConnection, *, anonymous: bool = False) -> int:
        await connection.send(REQUEST + (b"" if anonymous else self.credentials) + b"\r\n")
        return (await connection.reply()).status

    async def enter(self) -> RawConnection:
        """Connect and authenticate as a regular client, which retries when it is dropped."""
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    connection = await self.open()
                except (ConnectionError, ssl.SSLError):
                    continue
                if await self.version(connection) == 200:
                    return connection
                await connection.abort()


@asynccontextmanager
async def serving(data: Path | None = None, **limits: float) -> AsyncIterator[ServerHarness]:
    bounds = ServerLimits(**limits)  # type: ignore[arg-type]
    running = await start_server(ServerSettings(data=data, controllers=False, limits=bounds))
    try:
        yield ServerHarness(running)
    finally:
        await running.stop()


def run_scenario(scenario: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario()

    asyncio.run(within_time())


async def ends(connection: RawConnection) -> Reply:
    """Return the response of a connection that is then closed; CLOSED if there was none."""
    reply = await connection.reply()
    try:
        while await connection.reader.read(1 << 16):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    return reply
