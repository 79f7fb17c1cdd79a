"""START HERE: CPU driver process.

`CpuDriverProcess` runs a driver with its lock, health pages and shutdown. Guarantees: only one driver runs
per plugin directory; `/livez` reports that the process responds, `/healthz` and `/readyz` that the driver
works, or why not; changes of health are logged once; shutdown is bounded in time and leaves pinned
containers, claims and published devices as they are.

Grouped devices need a server that stores DRAConsumableCapacity fields (enabled from Kubernetes 1.36 on). On
another one the process replaces the driver by one in individual mode, before anything is published.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plimsoll.client import Client, ClientConfig
from plimsoll.client.delegated_auth import secure_serving
from plimsoll.common.addresses import read_bind_address
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.health import HealthServer
from plimsoll.common.lock_file import RootLock
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import cancel_tasks, run_until, sleep_to_tick, stop_on_signals
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.process.control import ControlServer
from plimsoll.drivers.cpu.process.metrics import CpuMetrics, CpuMetricsSnapshot
from plimsoll.drivers.cpu.process.state import read_state
from plimsoll.drivers.cpu.process.watchdog import Watchdog
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, DeviceMode

LOG = logging.getLogger("plimsoll.driver")

#: Time for the kubelet to register the driver before an error is logged (as in the Go driver).
REGISTRATION_SECONDS = 30.0
#: Interval between health checks.
_POLL_SECONDS = 1.0
_STOP_SECONDS = 10.0
_SHARING_DROPPED = (
    "the API server drops grouped devices: CPUs are published one by one, and claims request their number"
)
_SHARING_FIX = (
    "enable its feature gate DRAConsumableCapacity (it is from Kubernetes 1.36 on) and restart the driver, "
    "or set cpuDeviceMode: individual"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimeouts:
    """Timeouts and intervals, in seconds."""

    registration: float = REGISTRATION_SECONDS
    poll: float = _POLL_SECONDS
    stop: float = _STOP_SECONDS


class CpuDriverProcess:
    """Process of one CPU driver; `run` it on its event loop."""

    def __init__(
        self,
        client: Client,
        settings: CpuSettings,
        *,
        listen: str = "",
        timeouts: ProcessTimeouts | None = None,
    ) -> None:
        """`listen` is HOST:PORT of the pages, "" for none; without a host all addresses."""
        self.settings = settings
        self._client = client
        self.metrics = CpuMetrics(self._state)
        self._client = client
        self._sharing_dropped = asyncio.Event()
        self.driver = CpuDriver(
            client, settings, observer=self.metrics, on_sharing_dropped=self._sharing_dropped.set
        )
        self.pages: HealthServer | None = None
        self._control = ControlServer(
            settings.plugin_dir, lambda claim, force: self.driver.forget(claim, force)
        )
        self._listen = listen
        self._timeouts = timeouts or ProcessTimeouts()
        self.started = False
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()

    # -- control

    def stop(self) -> None:
        """Request a graceful shutdown; `run` returns when it is complete."""
        self._stop.set()

    @property
    def address(self) -> str:
        """Address of the pages for callers on this machine, "" if there are none."""
        if self.pages is None:
            return ""
        host = read_bind_address(self._listen)[0] or "127.0.0.1"
        return f"[{host}]:{self.pages.port}" if ":" in host else f"{host}:{self.pages.port}"

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the driver is registered and healthy."""
        async with asyncio.timeout(timeout):
            await self._ready.wait()

    def problems(self) -> tuple[str, ...]:
        """Return the reasons why the driver is unhealthy.

        DIFF: the Go driver's /healthz stays 200 once it has started (test_health_reports_the_real_state).
        """
        if not self.started:
            return ("the driver has not started yet",)
        try:
            found = self.driver.problems()
        except Exception as error:
            LOG.exception("health check failed")
            return (f"health check failed: {type(error).__name__}: {error}",)
        return found

    # -- lifecycle

    async def run(self) -> None:
        """Lock, start and run until `stop` is called or the task is cancelled."""
        lock = RootLock(self.settings.plugin_dir / "lock", who="driver", flag="--kubelet-root-dir")
        lock.take()
        try:
            await self._open_pages()
            await self._run_driver()
        finally:
            if self.pages is not None:
                await self.pages.stop()
            lock.release()

    async def _run_driver(self) -> None:
        background: list[asyncio.Task[None]] = []
        try:
            started, _ = await run_until(self._stop.wait(), self.driver.start())
            if not started:
                return
            await self._control.start()
            self.started = True
            log_event(LOG, "started", node=self.settings.node, mode=self.settings.mode.value)
            background.append(asyncio.create_task(self._report_missing_registration(), name="registration"))
            background.append(asyncio.create_task(self._watch_health(), name="health"))
            await run_until(self._stop.wait(), self._fall_back())
            await self._stop.wait()
        finally:
            self.started = False
            await self._control.stop()
            await cancel_tasks(background)
            await self._end()

    async def _fall_back(self) -> None:
        """Replace the driver by one in individual mode when the API server drops grouped devices."""
        await self._sharing_dropped.wait()
        self.started = False
        await self.driver.stop()
        note = NodeFinding(FindingSeverity.WARNING, _SHARING_DROPPED, _SHARING_FIX)
        self.settings = replace(self.settings, mode=DeviceMode.INDIVIDUAL)
        self.driver = CpuDriver(self._client, self.settings, observer=self.metrics, notes=(note,))
        await self.driver.start()
        self.started = True
        log_event(LOG, "started", node=self.settings.node, mode=self.settings.mode.value)

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.stop):
                await self.driver.stop()
        except TimeoutError:
            LOG.warning("shutdown incomplete after %g s", self._timeouts.stop)

    async def _report_missing_registration(self) -> None:
        """Log an error if the kubelet does not register the driver in time.

        DIFF: the Go driver exits then. This one keeps running: it still pins containers, and a kubelet that
        comes back finds it (test_a_kubelet_that_refuses_is_reported_and_awaited).
        """
        try:
            async with asyncio.timeout(self._timeouts.registration):
                while not self.driver.plugin_server.registered:
                    await asyncio.sleep(min(0.05, self._timeouts.poll))
        except TimeoutError:
            log_event(
                LOG,
                format_registration_error(
                    self.driver.plugin_server.registration_error, self.settings.kubelet_root
                ),
                level=logging.ERROR,
            )

    async def _watch_health(self) -> None:
        known: tuple[str, ...] | None = None
        while True:
            now = self.problems()
            if now != known:
                if now:
                    level = logging.WARNING if self._ready.is_set() else logging.INFO
                    log_event(LOG, "unhealthy", level=level, because="; ".join(now))
                else:
                    log_event(LOG, "healthy")
                    self._ready.set()
                known = now
            await sleep_to_tick(self._timeouts.poll if known == () else min(0.05, self._timeouts.poll))

    # -- pages

    async def _open_pages(self) -> None:
        if not self._listen:
            return
        host, port = read_bind_address(self._listen)
        checks = {"started": self._check_started, "driver": self._list_problems}
        self.pages = HealthServer(
            live={"ping": lambda: ""},
            ready=checks,
            health=checks,
            metrics=self.metrics.expose,
            debug={"driver": self._describe},
            unwell=503,
            flag="--bind-address",
            # Pod and claim names are not exposed to the network; the Go driver exposes none either.
            debug_local_only=True,
            secure=secure_serving(self._client, self.settings.cert_dir),
            ready_note=lambda: self.driver.server_description,
        )
        await self.pages.start(host, port)
        log_event(LOG, "listening", address=f"{host or '*'}:{self.pages.port}")

    def _check_started(self) -> str:
        return "" if self.started else "the driver has not started yet"

    def _list_problems(self) -> str:
        return "; ".join(self.problems()) if self.started else ""

    def _describe(self) -> dict[str, Any]:
        return {"problems": list(self.problems()), **(self.driver.describe() if self.started else {})}

    def _state(self) -> CpuMetricsSnapshot:
        return read_state(self.driver, healthy=not self.problems()) if self.started else CpuMetricsSnapshot()


def format_registration_error(refusal: str, root: Path) -> str:
    """Describe why a kubelet has not registered the driver, with the Go driver's text."""
    if refusal:
        return f'kubelet did not register the plugin, last rejection was "{refusal}"'
    directory = root / "plugins_registry"
    return f"kubelet never reported a registration status, check that it watches {directory}"


async def serve_driver(
    config: ClientConfig,
    settings: CpuSettings,
    *,
    log_format: str = "text",
    verbose: bool = False,
) -> None:
    """Run `plimsoll driver cpu` until a signal stops it."""
    set_up_logging(log_format, verbose=verbose)
    async with Client.connect(config) as client:
        process = CpuDriverProcess(client, settings, listen=settings.bind_address)
        stop_on_signals(process.stop)
        watchdog = Watchdog()
        watchdog.start()
        # Modules live as long as the process: collections while claims are prepared need not visit them.
        gc.collect()
        gc.freeze()
        log_event(
            LOG, "starting", driver=DRIVER_NAME, node=settings.node, server=config.server, pid=os.getpid()
        )
        try:
            await process.run()
        finally:
            watchdog.stop()
    LOG.info("stopped")
