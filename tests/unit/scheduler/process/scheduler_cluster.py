"""Server and schedulers in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client.endpoints import (
    LEASES,
    NODES,
    PODS,
    RESOURCE_SLICES,
)
from plimsoll.client.leader_election import LeaseTiming
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import LeaderElection, SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.manifests import (
    Tree,
    pod,
    resource_slice,
)
from tests.waiting import DEADLINE, until

NS = "default"


QUICK = SchedulerSettings(named_seconds=0.1, generated_seconds=0.1).named(["default-scheduler"])


#: Lease whose end a test can wait for.
SHORT_LEASE = LeaseTiming(lease=6.0, renew=5.0, retry=0.1)


#: Lease that a leader keeps on a busy machine, until it releases it.
LONG_LEASE = LeaseTiming(lease=60.0, renew=40.0, retry=0.1)


class SchedulerCluster:
    """Server, administrator client, and schedulers on one loop."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.admin = server.client()
        self._running: list[tuple[SchedulerProcess, asyncio.Task[None]]] = []

    async def start(self, settings: SchedulerSettings = QUICK, identity: str = "") -> SchedulerProcess:
        process = SchedulerProcess(self.server.client(SCHEDULER), settings, identity=identity)
        self.follow(process)
        await process.ready(DEADLINE)
        return process

    def follow(self, process: SchedulerProcess) -> None:
        """Run a scheduler until it ends, or the cluster is closed."""
        self._running.append((process, asyncio.create_task(process.run())))

    async def stop(self, process: SchedulerProcess) -> None:
        process.stop()
        await self.wait(process)

    async def wait(self, process: SchedulerProcess) -> None:
        """Wait until a scheduler has ended; raises its error."""
        for known, task in self._running:
            if known is process:
                await asyncio.wait_for(task, DEADLINE)
        self._running = [each for each in self._running if each[0] is not process]

    async def kill(self, process: SchedulerProcess) -> None:
        """Stop a scheduler without releasing its lease, which expires soon."""
        for known, task in self._running:
            if known is process:
                if process.election is not None:
                    process.election.release = False
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._running = [each for each in self._running if each[0] is not process]
        await self.shorten_lease()

    async def shorten_lease(self) -> None:
        """Let the lease of a leader that is gone expire after a second."""
        lease = {"spec": {"leaseDurationSeconds": 1}}
        try:
            await self.admin.patch(LEASES, "plimsoll-scheduler", lease, "kube-system")
        except ApiError as error:
            if error.code != 404:  # without election there is none
                raise

    async def close(self) -> None:
        for process, task in self._running:
            process.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def node(self, name: str, cpu: str = "4", **labels: str) -> None:
        line = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        tree = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": line, "capacity": line},
        }
        await self.admin.create(NODES, tree)

    async def devices(self, *nodes: str, count: int = 1) -> None:
        for each in nodes:
            await self.admin.create(RESOURCE_SLICES, resource_slice(f"{each}-gpu", each, count))

    async def pod(self, name: str, cpu: str = "1", **spec: Any) -> Tree:
        tree = pod(name, **spec)
        tree["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        return await self.admin.create(PODS, tree, NS)

    async def bound(self, name: str) -> str:
        tree = await until(lambda: self.admin.get(PODS, name, NS), lambda one: one["spec"].get("nodeName"))
        return str(tree["spec"]["nodeName"])

    async def condition_of(self, name: str) -> Tree:
        """Return the condition of a pending pod."""
        tree = await until(
            lambda: self.admin.get(PODS, name, NS), lambda one: one["status"].get("conditions")
        )
        (condition,) = tree["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
        return dict(condition)


@asynccontextmanager
async def scheduler_cluster(*, controllers: bool = True, gates: str = "") -> AsyncIterator[SchedulerCluster]:
    found = Gates.parse(gates, Gates.default())
    server = await start_server(ServerSettings(controllers=controllers, gates=found))
    try:
        row = SchedulerCluster(server)
        async with asyncio.timeout(3 * DEADLINE):
            yield row
    finally:
        await row.close()
        await server.stop()


def elected(seconds: float = 2.0, timing: LeaseTiming = SHORT_LEASE) -> SchedulerSettings:
    return replace(QUICK, election=LeaderElection(elect=True, **asdict(timing)), stop_seconds=seconds)
