"""Connections that a test leaves open are found when its event loop is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.leaks import CheckedEventLoop


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def connect(port: int, *, close: bool) -> None:
    transport, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    if close:
        transport.close()
        await client.closed.wait()


@pytest.mark.parametrize("close", [True, False])
def test_open_connections_are_found(close: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(connect(server.getsockname()[1], close=close))
        gc.collect()
    found, CheckedEventLoop.left_open[:] = list(CheckedEventLoop.left_open), []
    assert ["Client" in text for text in found] == ([] if close else [True])
