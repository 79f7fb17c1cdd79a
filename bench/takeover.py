"""Time until a new leader schedules, by the number of pods.

    python -m bench.takeover [BOUND] [PENDING]

Starts an API server as a process, with so many bound and pending pods, and then two schedulers in this
process, one after the other. The first takes over from an unknown predecessor: it lists pods and claims anew
and fences every pending pod. The second takes over from one that released its lease: it only lists.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.scheduler.processes import EmbeddedServer, connect
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.scheduler.process.configuration import LeaderElection, SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess

_AT_ONCE = 64


async def fill(client: Client, bound: int, pending: int) -> None:
    line = {"cpu": "100000", "memory": "100Ti", "pods": "1000000"}
    await client.create(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": line}})
    limit = asyncio.Semaphore(_AT_ONCE)

    async def create(name: str, cpu: str, node: str) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec = {
            "schedulerName": "plimsoll",
            "containers": [container],
            **({"nodeName": node} if node else {}),
        }
        async with limit:
            await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")

    await asyncio.gather(
        *(create(f"bound-{number}", "1m", "n1") for number in range(bound)),
        *(create(f"pending-{number}", "200000", "") for number in range(pending)),
    )


async def take_over(client: Client) -> float:
    """Start a scheduler, and stop it as soon as it schedules; return the seconds from the lease to that."""
    settings = SchedulerSettings(election=LeaderElection(elect=True))
    process = SchedulerProcess(client, settings)
    task = asyncio.create_task(process.run())
    while not process.leading:
        await asyncio.sleep(0.001)
    began = time.perf_counter()
    await process.scheduling.wait()
    took = time.perf_counter() - began
    process.stop()
    await task
    return took


async def measure(bound: int, pending: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedServer(Path(directory))
        try:
            async with connect(server) as client:
                await fill(client, bound, pending)
                fenced, released = await take_over(client), await take_over(client)
        finally:
            server.stop()
    print(f"{bound} bound and {pending} pending pods")
    print(f"after a crash (listed, fenced)  {fenced:6.2f} s, {fenced / released:.1f} times as long as")
    print(f"after a release (listed)        {released:6.2f} s")


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]] or [5000, 1000]
    asyncio.run(measure(numbers[0], numbers[1] if len(numbers) > 1 else numbers[0] // 5))
