"""Dashboards for browser tests.

`DashboardRunner` runs them in an event loop of its own thread, so that tests are plain functions. `open_page`
opens a page and waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from plimsoll.client import Client, ClientConfig
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.waiting import DEADLINE

R = TypeVar("R")


class DashboardRunner:
    """Event loop in a thread with the dashboards running in it; `close` stops all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dashboards", daemon=True)
        self._thread.start()
        self._running: list[Dashboard] = []
        self._clients: list[Any] = []

    def run(self, work: Coroutine[Any, Any, R], timeout: float = 60) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def dump(self, cluster_state: ClusterState, port: int = 0) -> Dashboard:
        """Start a dashboard of a static cluster state."""
        dashboard = self.run(_start(cluster_state, port))
        self._running.append(dashboard)
        return dashboard

    def following(self, client: Client) -> Dashboard:
        """Start a dashboard that follows a client's cluster."""
        dashboard = self.run(_start(client, 0))
        self._running.append(dashboard)
        return dashboard

    def live(self, config: ClientConfig, port: int = 0) -> Dashboard:
        """Start a dashboard that follows the cluster of a configuration."""
        client, dashboard = self.run(self._follow(config, port))
        self._clients.append(client)
        self._running.append(dashboard)
        return dashboard

    async def _follow(self, config: ClientConfig, port: int) -> tuple[Any, Dashboard]:
        connecting = Client.connect(config)
        client = await connecting.__aenter__()
        return connecting, await _start(client, port)

    def stop(self, dashboard: Dashboard) -> None:
        self._running.remove(dashboard)
        self.run(dashboard.stop())

    def close(self) -> None:
        for dashboard in list(self._running):
            self.stop(dashboard)
        for connecting in self._clients:
            self.run(connecting.__aexit__(None, None, None))
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    """Cancel remaining requests of closed tabs; their threads end by themselves."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


async def _start(shown: ClusterState | Client, port: int) -> Dashboard:
    # Longer than usual, for slow machines, and shorter than a page is waited for.
    dashboard = Dashboard(shown, port=port, query_timeout=DEADLINE / 2)
    await dashboard.start()
    return dashboard


def open_page(page: Page, dashboard: Dashboard, path: str) -> None:
    """Open a page and wait until it is rendered."""
    page.go(f"{dashboard.url}#/{path}")
    page.wait(
        "document.querySelector('#page-title') && !document.querySelector('.loading')"
        f" && location.hash.startsWith({('#/' + path)!r})"
    )


PAGES = [
    "",
    "nodes/numa-1",
    "nodes/past-1",
    "devices",
    "pools",
    "claims",
    "pods",
    "pending",
    "namespaces",
    "history",
    "audit",
    "whatif",
]
