"""Memory driver process: lock, health pages, metrics and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from plimsoll.client import Client, ClientConfig
from plimsoll.client.delegated_auth import secure_serving
from plimsoll.common.addresses import read_bind_address
from plimsoll.common.counters import MetricCounter
from plimsoll.common.health import HealthServer
from plimsoll.common.lock_file import RootLock
from plimsoll.common.metrics import GaugeFamily, MetricFamily, MetricRegistry, ProcessMetrics
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import stop_on_signals
from plimsoll.drivers.memory.driver import MemoryDriver
from plimsoll.drivers.memory.settings import DRIVER_NAME, MemorySettings
from plimsoll.drivers.plugin import ClaimCall

LOG = logging.getLogger("plimsoll.driver")


class MemoryMetrics:
    """Collector that reads the driver's state at every scrape and counts its calls."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver
        self._calls = MetricCounter(
            "plimsoll_memory_claim_calls_total",
            "Claims that were prepared or unprepared.",
            ("method", "result"),
        )
        driver.plugin_server.metrics.calls.observers.append(self._on_call)
        self.registry = MetricRegistry()
        self.registry.register(self)
        self.registry.register(ProcessMetrics())

    def _on_call(self, call: ClaimCall) -> None:
        self._calls.add(call.method, "success" if call.refusal is None else "error")

    def collect(self) -> Iterator[MetricFamily]:
        driver, allocated = self._driver, self._driver.allocated
        labels = ("device", "resource", "numa_node")
        size = GaugeFamily("plimsoll_memory_device_bytes", "Bytes that can be claimed.", labels=labels)
        taken = GaugeFamily("plimsoll_memory_allocated_bytes", "Bytes of claims.", labels=labels)
        for device in driver.devices.values():
            values = [device.name, device.resource, str(device.node)]
            size.add(values, device.size)
            taken.add(values, allocated.get(device.name, 0))
        yield size
        yield taken
        claims = len(driver.plugin_server.prepared_claims)
        yield GaugeFamily("plimsoll_memory_claims", "Prepared claims.", value=claims)
        healthy = int(not driver.problems())
        yield GaugeFamily("plimsoll_memory_healthy", "1 if the driver is healthy.", value=healthy)
        yield self._calls.family()

    async def expose(self) -> AsyncIterator[bytes]:
        yield self.registry.render()


class MemoryDriverProcess:
    """Process of one memory driver; `run` it on its event loop."""

    def __init__(self, client: Client, settings: MemorySettings) -> None:
        self.settings = settings
        self._client = client
        self.driver = MemoryDriver(client, settings)
        self.metrics = MemoryMetrics(self.driver)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Request a graceful shutdown; `run` returns when it is complete."""
        self._stop.set()

    async def run(self) -> None:
        """Lock, start and run until `stop` is called."""
        lock = RootLock(
            self.driver.plugin_server.plugin_dir / "lock", who="driver", flag="--kubelet-root-dir"
        )
        lock.take()
        pages = None
        try:
            await self.driver.start()
            pages = await self._open_pages()
            log_event(LOG, "started", node=self.settings.node, devices=len(self.driver.devices))
            await self._stop.wait()
        finally:
            if pages is not None:
                await pages.stop()
            await self.driver.stop()
            lock.release()

    async def _open_pages(self) -> HealthServer | None:
        listen = self.settings.bind_address
        if not listen:
            return None
        host, port = read_bind_address(listen)
        checks = {"driver": lambda: "; ".join(self.driver.problems())}
        pages = HealthServer(
            live={"ping": lambda: ""},
            ready=checks,
            health=checks,
            metrics=self.metrics.expose,
            debug={"driver": self._describe},
            unwell=503,
            flag="--bind-address",
            debug_local_only=True,
            secure=secure_serving(self._client, self.settings.cert_dir),
        )
        await pages.start(host, port)
        return pages

    def _describe(self) -> dict[str, Any]:
        driver = self.driver
        return {
            "problems": list(driver.problems()),
            "devices": {
                device.name: {"size": device.size, "allocated": driver.allocated.get(device.name, 0)}
                for device in driver.devices.values()
            },
            "claims": [str(claim.ref) for claim in driver.plugin_server.prepared_claims.values()],
        }


async def serve_memory(
    config: ClientConfig, settings: MemorySettings, *, log_format: str = "text", verbose: bool = False
) -> None:
    """Run `plimsoll driver memory` until a signal stops it."""
    set_up_logging(log_format, verbose=verbose)
    async with Client.connect(config) as client:
        process = MemoryDriverProcess(client, settings)
        stop_on_signals(process.stop)
        log_event(LOG, "starting", driver=DRIVER_NAME, node=settings.node, pid=os.getpid())
        await process.run()
    LOG.info("stopped")
