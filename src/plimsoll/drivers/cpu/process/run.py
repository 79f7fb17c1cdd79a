"""START HERE: the CPU driver as a process, from the lock on its folder to the last answer.

Owns `CpuDriverProcess`: a driver, its pages and its end. Promises: no second driver works in the same folder;
`/livez` says that the process answers, `/healthz` and `/readyz` that the driver can do its work, and if not,
why; what changes between the two is logged once; whoever is asked to stop does so in time and leaves pins,
claims and published devices as they are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.client import Client, ClientConfig
from plimsoll.common.addresses import read_address
from plimsoll.common.health import HealthServer
from plimsoll.common.lock_file import RootLock
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.process.metrics import CpuMetrics, CpuState
from plimsoll.drivers.cpu.process.state import read_state
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings

LOG = logging.getLogger("plimsoll.driver")

#: How long a kubelet may take to register the driver before that is told (the Go driver's).
REGISTRATION_SECONDS = 30.0
#: Between two looks at whether all is well.
_LOOK_SECONDS = 1.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Spans of time, in seconds."""

    registration: float = REGISTRATION_SECONDS
    look: float = _LOOK_SECONDS
    stop: float = _STOP_SECONDS


class CpuDriverProcess:
    """One CPU driver; `run` it on the loop it is to live on."""

    def __init__(
        self,
        client: Client,
        settings: CpuSettings,
        *,
        listen: str = "",
        patience: Patience | None = None,
    ) -> None:
        """`listen` is HOST:PORT of the pages, "" for none; without a host it is every address."""
        self.settings = settings
        self.metrics = CpuMetrics(self._state)
        self.driver = CpuDriver(client, settings, observer=self.metrics)
        self.pages: HealthServer | None = None
        self._listen = listen
        self._patience = patience or Patience()
        self._started = False
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()

    # -- from outside

    def stop(self) -> None:
        """Ask for an orderly end; `run` returns when it is reached."""
        self._stop.set()

    @property
    def address(self) -> str:
        """Where the pages are, for callers on this machine; empty if there are none."""
        if self.pages is None:
            return ""
        host = read_listen(self._listen)[0] or "127.0.0.1"
        return f"[{host}]:{self.pages.port}" if ":" in host else f"{host}:{self.pages.port}"

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the driver is registered and can do its work."""
        async with asyncio.timeout(timeout):
            await self._ready.wait()

    def problems(self) -> tuple[str, ...]:
        """Why it is not well now; nothing if it is.

        DIFF: the Go driver's /healthz is 200 for ever once it has started
        (test_health_tells_the_truth).
        """
        if not self._started:
            return ("the driver has not started yet",)
        try:
            found = (*self.driver.problems(), *self._unwritable())
        except Exception as error:
            LOG.exception("the driver cannot say how it is")
            return (f"the driver cannot say how it is: {type(error).__name__}: {error}",)
        return found

    def _unwritable(self) -> tuple[str, ...]:
        """Whether record and CDI files could be written; a claim for which they cannot is refused."""
        folder, cdi = self.settings.folder, self.settings.cdi
        found = []
        if not _is_open(folder):
            found.append(f"{folder} cannot be written: claims cannot be recorded")
        if os.path.lexists(cdi) and not _is_open(cdi):  # it is made with the first file
            found.append(f"{cdi} cannot be written: containers cannot be told their CPUs")
        return tuple(found)

    # -- the story

    async def run(self) -> None:
        """Lock, start, wait; until `stop`, or until cancelled."""
        lock = RootLock(self.settings.folder / "lock", who="driver", flag="--kubelet-root-dir")
        lock.take()
        try:
            await self._open_pages()
            await self._live()
        finally:
            if self.pages is not None:
                await self.pages.stop()
            lock.release()

    async def _live(self) -> None:
        beside: list[asyncio.Task[None]] = []
        try:
            if not await self._or_stopped(self.driver.start()):
                return
            self._started = True
            log_event(LOG, "started", node=self.settings.node, mode=self.settings.mode.value)
            beside.append(asyncio.create_task(self._await_registration(), name="registration"))
            beside.append(asyncio.create_task(self._watch_health(), name="health"))
            await self._stop.wait()
        finally:
            self._started = False
            await _cancel(beside)
            await self._end()

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self._patience.stop):
                await self.driver.stop()
        except TimeoutError:
            LOG.warning("not everything has stopped in %g s", self._patience.stop)

    async def _await_registration(self) -> None:
        """Tell if the kubelet does not register us in time, and why it says it does not.

        DIFF: the Go driver ends then. This one goes on: who is not registered still pins containers, and a
        kubelet that comes back finds it (test_a_kubelet_that_refuses_is_told_of_and_waited_for).
        """
        station = self.driver.station
        try:
            async with asyncio.timeout(self._patience.registration):
                while not station.registered:
                    await asyncio.sleep(min(0.05, self._patience.look))
        except TimeoutError:
            log_event(
                LOG,
                say_unregistered(station.registration_error, self.settings.kubelet_root),
                level=logging.ERROR,
            )

    async def _watch_health(self) -> None:
        known: tuple[str, ...] | None = None
        while True:
            now = self.problems()
            if now != known:
                if now:
                    level = logging.WARNING if self._ready.is_set() else logging.INFO
                    log_event(LOG, "unwell", level=level, because="; ".join(now))
                else:
                    log_event(LOG, "well")
                    self._ready.set()
                known = now
            await asyncio.sleep(self._patience.look if known == () else min(0.05, self._patience.look))

    async def _or_stopped(self, work: Awaitable[None]) -> bool:
        """Do something unless we are asked to stop before it is done; whether it was."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return task.done()
        finally:
            await _cancel([task, stopped])

    # -- pages

    async def _open_pages(self) -> None:
        if not self._listen:
            return
        host, port = read_listen(self._listen)
        checks = {"started": self._unstarted, "driver": self._unwell}
        self.pages = HealthServer(
            live={"ping": lambda: ""},
            ready=checks,
            health=checks,
            metrics=self.metrics.expose,
            debug={"driver": self._describe},
            unwell=503,
            flag="--bind-address",
            # Names of pods and claims are not for the network; the Go driver shows none either.
            debug_here_only=True,
        )
        await self.pages.start(host, port)
        log_event(LOG, "listening", address=f"{host or '*'}:{self.pages.port}")

    def _unstarted(self) -> str:
        return "" if self._started else "the driver has not started yet"

    def _unwell(self) -> str:
        return "; ".join(self.problems()) if self._started else ""

    def _describe(self) -> dict[str, Any]:
        return {"problems": list(self.problems()), **(self.driver.describe() if self._started else {})}

    def _state(self) -> CpuState:
        return read_state(self.driver, healthy=not self.problems()) if self._started else CpuState()


def _is_open(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def say_unregistered(refusal: str, root: Path) -> str:
    """Why a kubelet has not registered the driver, in the Go driver's words."""
    if refusal:
        return f'kubelet did not register the plugin, last rejection was "{refusal}"'
    folder = root / "plugins_registry"
    return f"kubelet never reported a registration status, check that it watches {folder}"


def read_listen(listen: str) -> tuple[str | None, int]:
    """HOST:PORT; without a host every address is meant (None). ConfigError if it is neither."""
    host, port = read_address(listen, "--bind-address")
    return (None if listen.startswith(":") else host), port


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def serve_driver(
    config: ClientConfig,
    settings: CpuSettings,
    *,
    log_format: str = "text",
    verbose: bool = False,
) -> None:
    """The process behind `plimsoll driver cpu`: runs until a signal asks it to stop."""
    set_up_logging(log_format, verbose=verbose)
    async with Client.connect(config) as client:
        process = CpuDriverProcess(client, settings, listen=settings.bind_address)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, process.stop)
        log_event(
            LOG, "starting", driver=DRIVER_NAME, node=settings.node, server=config.server, pid=os.getpid()
        )
        await process.run()
    LOG.info("stopped")
