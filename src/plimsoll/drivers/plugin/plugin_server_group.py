"""Several drivers on several nodes in one process.

`NodePaths` holds the directories of a node; `PluginServerGroup` runs one `PluginServer` for each driver on
each node. All are registered and have published when `wait_ready` returns; if one fails to start, all are
stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll.client import Client
from plimsoll.drivers.plugin import Driver, PluginServer
from plimsoll.drivers.plugin.plugin_server import CDI_DIR, KUBELET_ROOT
from plimsoll.errors import ConfigError

#: Number of servers that start concurrently, and how long the next one waits for the registration of the one
#: before: nodes on the same event loop time out registration calls after a second.
_MAX_STARTING = 4
_REGISTRATION_SECONDS = 5.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Node with the root directory of its kubelet or agent and its CDI directory.

    A node without a root has no sockets: its devices are only published.
    """

    node: str
    root: Path | None = KUBELET_ROOT
    cdi: Path | None = None

    @property
    def cdi_dir(self) -> Path:
        """CDI directory: the standard one for a kubelet, below the root for a Plimsoll node agent."""
        if self.cdi is not None:
            return self.cdi
        return CDI_DIR if self.root in (None, KUBELET_ROOT) else Path(self.root or "") / "cdi"


class PluginServerGroup:
    """Plugin servers that start and stop together."""

    def __init__(self) -> None:
        self.all: list[PluginServer] = []

    def add(self, driver: Driver, client: Client, paths: NodePaths) -> PluginServer:
        """Add a plugin server for a driver on a node with sockets; `start` starts it."""
        assert paths.root is not None, "a node without sockets has no plugin server"
        server = PluginServer(driver, client, paths.node, root=paths.root, cdi=paths.cdi_dir)
        self.all.append(server)
        return server

    async def start(self) -> None:
        slots = asyncio.Semaphore(_MAX_STARTING)

        async def start_one(server: PluginServer) -> None:
            async with slots:
                await server.start()
                if len(self.all) > _MAX_STARTING:
                    await server.wait_registered(_REGISTRATION_SECONDS)

        results = await asyncio.gather(*map(start_one, self.all), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.stop()
            raise failures[0]

    async def stop(self, *, withdraw: bool = False) -> None:
        await asyncio.gather(*(server.stop(withdraw=withdraw) for server in self.all))

    async def wait_ready(self, timeout: float) -> None:
        """Wait until all are registered and published; raises ConfigError with the reasons otherwise."""
        try:
            async with asyncio.timeout(timeout):
                while self.list_problems():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ConfigError(
                f"not ready after {timeout:g} s: {'; '.join(self.list_problems()[:3])}"
            ) from None

    def list_problems(self) -> list[str]:
        """Return a message for each server that is not ready."""
        return [problem for server in self.all if (problem := _find_problem(server))]


def _find_problem(server: PluginServer) -> str:
    name = f"{server.driver.name} on {server.node}"
    if not server.registered:
        return f"{name} is not registered: {server.registration_error or 'not discovered by the node yet'}"
    if not server.published:
        return f"{name} has not published its ResourceSlices: {'; '.join(server.publish_errors) or 'not yet'}"
    return ""


def check_unique_names(drivers: Sequence[str]) -> None:
    """Raise ConfigError if two drivers have the same name."""
    for name in drivers:
        if drivers.count(name) > 1:
            raise ConfigError(f"drivers: duplicate driver name {name}: use a unique name for every driver")
