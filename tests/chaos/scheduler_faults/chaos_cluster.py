"""Cluster of a chaos test: server, proxy, replicas and observer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from plimsoll.client import Client
from tests.chaos.scheduler_faults.observer import Observer
from tests.chaos.scheduler_faults.proxy import FaultProxy
from tests.chaos.scheduler_faults.replicas import Replicas, run_replicas
from tests.chaos.scheduler_faults.servers import Server
from tests.cluster.kube_apiserver import token_of
from tests.simulation.script import LEADER, OTHER


@dataclass
class ChaosCluster:
    """Cluster under test; `client` reaches the server without faults."""

    server: Server
    client: Client
    proxy: FaultProxy
    replicas: Replicas
    observer: Observer

    def role_of(self, client: str) -> str:
        """Return whether a scheduler has the lease, even if it has been killed."""
        return LEADER if client == self.proxy.leader else OTHER


@asynccontextmanager
async def open_cluster(
    server: Server,
    directory: Path,
    prepare: Callable[[Client], Awaitable[None]],
    *,
    running: tuple[str, ...] = (),
) -> AsyncIterator[ChaosCluster]:
    """Create the objects of a cluster, then observe it and start the replicas that are to run."""
    config = server.config()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client.connect(config))
        await prepare(client)
        observer = Observer(client)
        await observer.begin()
        observing = asyncio.create_task(observer.run())
        stack.push_async_callback(_cancel, observing)
        proxy = FaultProxy(config.server, _trusting_context(), token_of(config))
        await stack.enter_async_context(proxy)
        replicas = await stack.enter_async_context(
            run_replicas(
                directory, config, proxy, client, running=running, with_controllers=server.can_restart
            )
        )
        yield ChaosCluster(server, client, proxy, replicas, observer)
        if observing.done():
            observing.result()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _trusting_context() -> ssl.SSLContext:
    """Return a context that accepts the test certificates of servers on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
