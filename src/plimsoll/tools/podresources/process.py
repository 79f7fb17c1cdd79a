"""`Exporter` and the process of `plimsoll podresources export`.

Concurrent scrapes share one call to the kubelet, repeated after the interval at the earliest. Errors become
metrics and one log line; the exporter keeps running. Nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceSlice
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import PODS, RESOURCE_SLICES
from plimsoll.client.informer import Informer
from plimsoll.common.addresses import read_address
from plimsoll.common.metrics import CONTENT_TYPE, MetricFamily
from plimsoll.common.structured_log import set_up_logging
from plimsoll.common.tasks import cancel_tasks, stop_on_signals
from plimsoll.errors import ConfigError, InputError
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.tools.podresources.client import SOCKET, PodResourcesClient
from plimsoll.tools.podresources.exporter import (
    ExporterHealth,
    NodeObjects,
    health_metrics,
    node_metrics,
    read_node_objects,
)

_log = logging.getLogger("plimsoll.exporter")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Kubelet socket, listen address and cluster of the exporter."""

    node: str
    socket: Path = SOCKET
    listen: str = "127.0.0.1:9478"
    interval: float = 5.0
    timeout: float = 10.0
    #: Cluster of the node; None: only its kubelet is queried.
    cluster: ClientConfig | None = None


class NodeWatcher:
    """Informers of the pods and ResourceSlices of one node."""

    def __init__(self, client: Client, node: str) -> None:
        fields = f"spec.nodeName={node}"
        self.synced = False
        self.pods = Informer(client, PODS, lambda raw: codec.decode(raw, Pod), fields=fields)
        self.slices = Informer(
            client,
            RESOURCE_SLICES,
            lambda raw: codec.decode(raw, ResourceSlice),
            fields=fields,
            optional=True,
        )

    async def run(self) -> None:
        """Follow both kinds until cancelled. Raise if the configuration is invalid."""
        tasks = [asyncio.create_task(work) for work in (self.pods.run(), self.slices.run(), self._wait())]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_tasks(tasks)

    async def _wait(self) -> None:
        await self.pods.synced()
        await self.slices.synced()
        self.synced = True

    def known(self) -> NodeObjects:
        return read_node_objects(self.pods.items(), self.slices.items())


class Exporter:
    """Metrics of one node; `scrape` may be called at any rate."""

    def __init__(
        self,
        node: str,
        kubelet: PodResourcesClient,
        cluster: NodeWatcher | None = None,
        *,
        interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self.health = ExporterHealth()
        self._kubelet = kubelet
        self._cluster = cluster
        self._interval = interval
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._pods: tuple[v1.PodResources, ...] = ()
        self._allocatable: v1.AllocatableResourcesResponse | None = None

    async def scrape(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        async with self._reading:
            if self._read_at is None or self._clock() - self._read_at >= self._interval:
                await self._read()
        return "".join(family.render() for family in self._families()).encode()

    async def _read(self) -> None:
        health, began = self.health, self._clock()
        health.reads += 1
        try:
            self._pods = tuple((await self._kubelet.list()).pod_resources)
            self._allocatable = await self._kubelet.allocatable()
        except InputError as error:
            if health.up or health.errors == 0:
                _log.warning("%s", error)
            health.up = False
            health.errors += 1
        else:
            if not health.up and health.errors:
                _log.warning("the kubelet responds again")
            health.up = True
        health.rate_limited = self._kubelet.rate_limited
        self._read_at = self._clock()
        health.seconds = self._read_at - began

    def _families(self) -> Iterator[MetricFamily]:
        if self._cluster is not None:
            self.health.synced = self._cluster.synced
        yield from health_metrics(self.node, self.health)
        # Old data may be wrong, including which devices are free.
        if self.health.up:
            known = self._cluster.known() if self._cluster is not None else NodeObjects()
            yield from node_metrics(self.node, self._pods, self._allocatable, known)


class ExporterServer:
    """HTTP server of the exporter."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, listen: str) -> None:
        host, port = read_address(listen, example="127.0.0.1:9478")
        app = web.Application()
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/", _healthy)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(f"--listen: cannot listen on {listen}: {error.strerror or error}") from None
        self._runner = runner
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{runner.addresses[0][1]}/metrics"

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._exporter.scrape(), headers={"Content-Type": CONTENT_TYPE})


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok: metrics are at /metrics\n")


async def serve_exporter(
    settings: ExporterSettings, ready: Callable[[str], None], stopped: asyncio.Event | None = None
) -> None:
    """Run until a signal or `stopped`; `ready` receives the URL once the server is listening."""
    set_up_logging(level=logging.WARNING)
    if stopped is None:
        stopped = asyncio.Event()
        stop_on_signals(stopped.set)
    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(
            PodResourcesClient(settings.socket, timeout=settings.timeout)
        )
        cluster, following = None, None
        if settings.cluster is not None:
            client = await stack.enter_async_context(Client.connect(settings.cluster))
            cluster = NodeWatcher(client, settings.node)
            following = asyncio.create_task(cluster.run())
            stack.push_async_callback(cancel_tasks, (following,))
        exporter = Exporter(settings.node, kubelet, cluster, interval=settings.interval)
        server = ExporterServer(exporter)
        await server.start(settings.listen)
        stack.push_async_callback(server.stop)
        ready(server.url)
        waiting = asyncio.create_task(stopped.wait())
        stack.push_async_callback(cancel_tasks, (waiting,))
        tasks: set[asyncio.Task[object]] = {waiting, *([following] if following else [])}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if following is not None and following in done:
            following.result()  # a configuration that cannot work
