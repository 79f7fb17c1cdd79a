"""Two scheduler replicas and controllers behind the fault proxy, restarted when they exit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import LEASES
from plimsoll.errors import ApiError
from tests.chaos.forked_scheduler import ForkedScheduler
from tests.chaos.scheduler_faults.controllers import ForkedControllers
from tests.chaos.scheduler_faults.proxy import FaultProxy
from tests.cluster.kube_apiserver import write_kubeconfig
from tests.waiting import until

NAMES = ("a", "b")
LEASE_SECONDS = 3.0
_CONFIGURATION = f"""
kind: SchedulerConfiguration
queue: {{initialBackoff: 100ms, maxBackoff: 1s, flush: 5s}}
leaderElection:
  {{leaderElect: true, leaseDuration: {LEASE_SECONDS:g}s, renewDeadline: 2s, retryPeriod: 400ms}}
"""
#: How long a replica that ended is left down.
_RESTART_SECONDS = 0.3


@dataclass
class Replica:
    """One process: a scheduler, or the controllers."""

    name: str
    process: ForkedScheduler | ForkedControllers
    #: Whether it is meant to run.
    wanted: bool = False
    paused: bool = False
    #: How often it ended by itself.
    ended: int = 0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        async with self._lock:
            self.wanted = True
            if not self.process.is_running():
                await asyncio.to_thread(self.process.start)

    async def kill(self) -> None:
        """Kill the process; it stays down until it is started."""
        async with self._lock:
            self.wanted = self.paused = False
            await asyncio.to_thread(self.process.kill)

    def pause(self) -> None:
        if self.process.is_running():
            os.kill(self.process.pid, signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        if self.paused:
            os.kill(self.process.pid, signal.SIGCONT)
        self.paused = False

    async def supervise(self) -> None:
        """Restart the process whenever it exits."""
        while True:
            await asyncio.sleep(_RESTART_SECONDS)
            async with self._lock:
                if not self.wanted or self.process.is_running():
                    continue
                self.ended += 1
                await asyncio.to_thread(self.process.kill)  # forget what it was
                await asyncio.to_thread(self.process.start)


@dataclass
class Replicas:
    """All schedulers, the leader, and the controllers."""

    by_name: dict[str, Replica]
    proxy: FaultProxy
    client: Client
    #: None: the server has controllers of its own.
    controllers: Replica | None = None

    def __getitem__(self, name: str) -> Replica:
        return self.by_name[name]

    async def lease(self) -> dict[str, Any]:
        """Return the spec of the lease; empty if there is none or the server does not respond."""
        with suppress(ApiError):
            tree = await self.client.get(LEASES, "plimsoll-scheduler", "kube-system")
            return dict(tree.get("spec") or {})
        return {}

    async def leader(self) -> Replica | None:
        """Return the replica that holds the lease, if it is known."""
        holder = str((await self.lease()).get("holderIdentity") or "")
        return self.by_name.get(self.proxy.identities.get(holder, ""))

    async def await_leader(self, seconds: float, *, other_than: Replica | None = None) -> Replica:
        """Wait until a replica leads, or another than the given one does."""
        leader = await until(self.leader, lambda found: found not in (None, other_than), seconds=seconds)
        assert leader is not None
        return leader

    def all(self) -> list[Replica]:
        return [*self.by_name.values(), *filter(None, [self.controllers])]

    def other(self, replica: Replica) -> Replica:
        return next(each for each in self.by_name.values() if each is not replica)

    def problems(self) -> list[str]:
        """Return unexpected log lines."""
        return [
            f"{replica.name}: Traceback in {replica.process.log}"
            for replica in self.all()
            if "Traceback" in replica.process.log.read_text(errors="replace")
        ]


@asynccontextmanager
async def run_replicas(
    directory: Path,
    config: ClientConfig,
    proxy: FaultProxy,
    client: Client,
    *,
    running: tuple[str, ...] = (),
    with_controllers: bool,
) -> AsyncIterator[Replicas]:
    """Prepare the replicas and start those that are to run, and controllers if the server has none."""
    settings = directory / "scheduler.yaml"
    settings.write_text(_CONFIGURATION)
    found: dict[str, Replica] = {}
    tasks: list[asyncio.Task[None]] = []
    try:
        for name in NAMES:
            own = directory / f"scheduler-{name}"
            own.mkdir()
            write_kubeconfig(own / "kubeconfig", config, await proxy.listen(name))
            process = ForkedScheduler(own, own / "kubeconfig", f"--config {settings}")
            found[name] = Replica(name, process)
        replicas = Replicas(dict(found), proxy, client)
        if with_controllers:
            own = directory / "controllers"
            own.mkdir()
            write_kubeconfig(own / "kubeconfig", config, await proxy.listen("controllers"))
            controllers = Replica("controllers", ForkedControllers(own, own / "kubeconfig"))
            found["controllers"] = replicas.controllers = controllers
        for replica in found.values():
            tasks.append(asyncio.create_task(replica.supervise()))
            if replica.name in running:
                await replica.start()
        yield replicas
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in found.values():
            await asyncio.to_thread(replica.process.close)
