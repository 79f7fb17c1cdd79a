"""Plimsoll's own server for the tests: in a thread of its own over HTTP, or in the test's own loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from plimsoll.cluster.client import Client, ClientConfig
from plimsoll.cluster.kubeconfig import find_config
from plimsoll.run.server import RunningServer, ServerSettings, start_server

#: As a kube-apiserver alone: no controllers.
SETTINGS = ServerSettings(controllers=False)


class Thread:
    """A server on a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._thread.start()
        self.server = asyncio.run_coroutine_threadsafe(start_server(SETTINGS), self._loop).result(20)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def age(self, client: Client) -> None:
        done = asyncio.run_coroutine_threadsafe(_forget(self.server), self._loop)
        await asyncio.wrap_future(done)


@contextmanager
def run_embedded(folder: Path) -> Iterator[tuple[Thread, ClientConfig]]:
    thread = Thread()
    try:
        thread.server.write_kubeconfig(folder / "kubeconfig")
        yield thread, find_config(folder / "kubeconfig")
    finally:
        thread.stop()


class Within:
    """Opens a server for each test, on the test's loop."""

    def __init__(self) -> None:
        self._server: RunningServer | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Client]:
        self._server = await start_server(SETTINGS)
        try:
            async with self._server.client() as client:
                yield client
        finally:
            await self._server.stop()

    async def age(self, client: Client) -> None:
        assert self._server is not None
        await _forget(self._server)


async def _forget(server: RunningServer) -> None:
    """Let the history be full at once."""
    history = server.store._history
    most, history._most_events = history._most_events, 0
    history.trim()
    history._most_events = most
