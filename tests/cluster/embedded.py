"""Embedded server for the tests: in its own thread over HTTP, or in the test's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.apiserver.storage import Store
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.kubeconfig import find_config
from tests.manifests import config_map
from tests.waiting import DEADLINE

#: As a kube-apiserver alone: no controllers.
SETTINGS = ServerSettings(controllers=False)
#: How many events its history holds.
HISTORY = 500


class ServerThread:
    """Server on its own event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._thread.start()
        self.server = asyncio.run_coroutine_threadsafe(start(), self._loop).result(DEADLINE)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def run_embedded(directory: Path) -> Iterator[ClientConfig]:
    thread = ServerThread()
    try:
        thread.server.write_kubeconfig(directory / "kubeconfig")
        yield find_config(directory / "kubeconfig")
    finally:
        thread.stop()


@asynccontextmanager
async def open_within() -> AsyncIterator[Client]:
    """Run a server on the test's event loop, with a client without a network."""
    server = await start()
    try:
        async with server.client() as client:
            yield client
    finally:
        await server.stop()


async def start() -> RunningServer:
    """Start a server with a short history: see `age`."""
    defaults = Store.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
    usual, defaults["history_events"] = defaults["history_events"], HISTORY
    try:
        return await start_server(SETTINGS)
    finally:
        defaults["history_events"] = usual


async def age(client: Client) -> None:
    """Write more than the history holds, so that its first versions are compacted."""
    await client.patch(CONFIG_MAPS, "age", config_map("age"), type="apply")
    for start in range(0, HISTORY + 50, 50):
        patches = [{"data": {"n": f"{start}-{n}"}} for n in range(50)]
        await asyncio.gather(*(client.patch(CONFIG_MAPS, "age", patch) for patch in patches))
