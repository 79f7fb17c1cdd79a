"""Node agent side of the sockets, with plugin servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plimsoll.drivers.plugin import (
    ClaimRef,
    PluginServer,
)
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from tests.directories import short_directory
from tests.unit.drivers.plugin.fixtures import DRIVER, NODE, ClusterFixture, Widgets, cluster_fixture
from tests.unit.node.plugins.peers import QUICK
from tests.waiting import until


class NodeFixture:
    """Directories of a node, the node agent's plugin manager, and plugin servers."""

    def __init__(self, cluster: ClusterFixture, directory: Path) -> None:
        self.cluster = cluster
        self.root = directory / "r"
        self.cdi = directory / "cdi"
        self.plugins = PluginManager(Layout(self.root), times=QUICK)

    async def restart(self) -> None:
        """Replace the plugin manager, as an agent restart does."""
        await self.plugins.stop()
        self.plugins = PluginManager(Layout(self.root), times=QUICK)
        await self.plugins.start()

    def server(self, driver: Widgets, **options: Any) -> PluginServer:
        options = {"root": self.root, "cdi": self.cdi, "socket_poll": 0.05, "grace": 5.0, **options}
        return PluginServer(driver, self.cluster.client, NODE, **options)

    @asynccontextmanager
    async def running(self, driver: Widgets, **options: Any) -> AsyncIterator[PluginServer]:
        server = self.server(driver, **options)
        await server.start()
        try:
            assert await server.wait_registered(10) == ""
            await until(lambda: [each for each in self.plugins.drivers() if each.connected])
            yield server
        finally:
            await server.stop()

    async def prepare(self, *refs: ClaimRef) -> list[Any]:
        responses = await self.plugins.prepare(DRIVER, refs)
        return [responses[ref.uid] for ref in refs]

    async def unprepare(self, *refs: ClaimRef) -> list[Any]:
        responses = await self.plugins.unprepare(DRIVER, refs)
        return [responses[ref.uid] for ref in refs]


@asynccontextmanager
async def node_fixture(gates: str = "") -> AsyncIterator[NodeFixture]:
    with short_directory() as directory:
        async with cluster_fixture(gates) as cluster:
            found = NodeFixture(cluster, directory)
            await found.plugins.start()
            try:
                yield found
            finally:
                await found.plugins.stop()
