"""Dashboard under test and its HTTP client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from plimsoll.client import Client
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard import Dashboard
from tests.dumps import big_cluster, make_cluster_state
from tests.waiting import DEADLINE

Tree = dict[str, Any]


class DashboardClient:
    """HTTP client of one dashboard."""

    def __init__(self, dashboard: Dashboard, session: aiohttp.ClientSession) -> None:
        self.dashboard = dashboard
        self.session = session

    def at(self, path: str) -> str:
        return self.dashboard.url + path.lstrip("/")

    async def get(self, path: str, **options: Any) -> Tree:
        """Return the JSON at a path."""
        async with self.session.get(self.at(path), **options) as response:
            text = await response.text()
            assert response.status == 200, f"{path}: {response.status}: {text}"
            found: Tree = json.loads(text)
            return found

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, str]:
        async with self.session.request(method, self.at(path), **options) as response:
            return response.status, await response.text()

    async def raw(
        self, path: str, method: str, headers: dict[str, str] | dict[bytes, bytes]
    ) -> tuple[int, str]:
        """Return the response to a request sent as written; one character of `path` is one byte."""
        where = urlsplit(self.dashboard.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        given = {_octets(name).lower(): _octets(value) for name, value in headers.items()}
        given = {b"host": where.netloc.encode(), **given, b"connection": b"close"}
        if method in ("POST", "PUT", "PATCH"):
            given[b"content-length"] = b"0"
        lines = [f"{method} {path} HTTP/1.1".encode("latin-1")]
        lines += [name + b": " + value for name, value in given.items()]
        try:
            writer.write(b"\r\n".join([*lines, b"", b""]))
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split()[1]), body.decode(errors="replace")
        finally:
            writer.close()

    async def until(self, path: str, done: Callable[[Tree], object], seconds: float = DEADLINE) -> Tree:
        """Request a path until a condition holds."""
        async with asyncio.timeout(seconds):
            while not done(found := await self.get(path)):
                await asyncio.sleep(0.02)
        return found


def _octets(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


@asynccontextmanager
async def visiting(shown: ClusterState | Client, **options: Any) -> AsyncIterator[DashboardClient]:
    """Run a dashboard with a client."""
    dashboard = Dashboard(shown, **options)
    await dashboard.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield DashboardClient(dashboard, session)
    finally:
        await dashboard.stop()


def visit(
    shown: ClusterState, scenario: Callable[[DashboardClient], Awaitable[None]], **options: Any
) -> None:
    """Run a scenario with the dashboard of a cluster state."""

    async def run() -> None:
        async with visiting(shown, **options) as visitor:
            await scenario(visitor)

    asyncio.run(run())


WANTED = """
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: work}
spec:
  containers:
  - {name: c, image: x, resources: {requests: {cpu: "1"}}}
"""


@cache
def small() -> ClusterState:
    return make_cluster_state(big_cluster(3, pods_per_node=4, devices=2, pending=3))
