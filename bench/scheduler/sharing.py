"""Pods that share one claim, over HTTPS: how long they take, and how long they make other pods wait.

All pods of a case are created at once; meanwhile pods without claims (bystanders) are created one after the
other. Own claims instead of a shared one are the comparison.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scheduler.load import Load
from bench.scheduler.processes import (
    SERVERS,
    Program,
    Server,
    connect,
    find_assets,
    start_ours,
    start_theirs,
)
from bench.scheduler.workloads import NAMESPACE, Tree, Workload
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError

SHARERS = (1, 8, 32, 64, 128, 192, 256)
_CLAIM = "shared"
_BYSTANDER_SECONDS = 0.1
#: Devices of a ResourceSlice.
_DEVICES_MAX = 128
#: Seconds after which a case is given up.
_LIMIT = 150.0


@dataclass(frozen=True)
class SharingRun:
    """Results of one case."""

    bound: int
    seconds: float  #: from the first creation to the last binding, or until it was given up
    bystanders: int
    longest_wait: float  #: seconds a bystander waited for its binding
    server_cpu: float  #: seconds
    scheduler_cpu: float


class _LargeNodes(Workload):
    """Nodes for all pods that share a device of one of them."""

    def node(self, number: int) -> Tree:
        tree = super().node(number)
        tree["status"]["capacity"] = tree["status"]["allocatable"] = {
            "cpu": "64",
            "memory": "256Gi",
            "pods": "1000",
        }
        return tree


def measure(sharers: int, *, own: bool = False, theirs: bool = False, kind: str = "embedded") -> SharingRun:
    """Create pods that share one claim, or (with `own`) have one each."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        directory = Path(name)
        server: Server = SERVERS[kind](directory)
        try:
            scheduler = (start_theirs if theirs else start_ours)(server, directory)
            try:
                return asyncio.run(_measure(sharers, own, server, scheduler))
            finally:
                scheduler.stop()
        finally:
            server.stop()


async def _measure(sharers: int, own: bool, server: Server, scheduler: Program) -> SharingRun:
    devices = min(sharers, _DEVICES_MAX) if own else 1
    workload = _LargeNodes("plain", -(-sharers // devices) if own else 1, devices)
    async with connect(server) as client:
        load = Load(client, workload)
        await load.set_up()
        if not own:
            tree = workload.claim(_CLAIM)
            tree["metadata"] = {"name": _CLAIM}
            await client.create(RESOURCE_CLAIMS, tree, NAMESPACE)
        follow = asyncio.create_task(load.follow())
        await load.create([_bystander("warm")])
        await load.all_bound(["warm"], lambda: scheduler.alive)
        names = [f"p-{number}" for number in range(sharers)]
        used = [scheduler.usage().cpu, next(iter(server.usages().values())).cpu]
        begin = time.perf_counter()
        others = asyncio.create_task(_create_bystanders(client, load))
        await load.create(workload.pod(name, "" if own else _CLAIM) for name in names)
        while not load.bound.keys() >= {*names}:
            if time.perf_counter() - begin > _LIMIT or not scheduler.alive:
                break
            await asyncio.sleep(0.05)
        end = time.perf_counter()
        others.cancel()
        after = [scheduler.usage().cpu, next(iter(server.usages().values())).cpu]
        await asyncio.sleep(1.0)
        follow.cancel()
    bound = [load.bound[name] for name in names if name in load.bound]
    done = len(bound) == sharers
    created = {name: at for name, at in load.created.items() if name.startswith("b-")}
    waits = [load.bound.get(name, end) - at for name, at in created.items()]
    cpu = [later - before for before, later in zip(used, after, strict=True)]
    seconds = (max(bound) if done else end) - begin
    return SharingRun(len(bound), seconds, len(waits), max(waits, default=0.0), cpu[1], cpu[0])


async def _create_bystanders(client: Client, load: Load) -> None:
    number = 0
    while True:
        tree = _bystander(f"b-{number}")
        try:
            await client.create(PODS, tree, NAMESPACE)
        except ApiError:
            continue
        load.created[tree["metadata"]["name"]] = time.perf_counter()
        number += 1
        await asyncio.sleep(_BYSTANDER_SECONDS)


def _bystander(name: str) -> Tree:
    tree = Workload("no-dra", 1).pod(name)
    tree["metadata"].pop("uid")
    return tree


def report(
    sizes: Sequence[int], echo: Callable[[str], None], *, server: str = "embedded", compare: bool = False
) -> None:
    echo("pods that share one claim, created at once, with bystanders without claims")
    for sharers in sizes:
        echo(_line("one claim", sharers, measure(sharers, kind=server)))
        if compare:
            echo(_line("one claim, kube-scheduler", sharers, measure(sharers, theirs=True, kind=server)))
    if server == "real" and find_assets("kube-controller-manager") is None:
        return  # nothing generates claims
    largest = max(sizes)
    echo(_line("own claims", largest, measure(largest, own=True, kind=server)))


def _line(name: str, sharers: int, run: SharingRun) -> str:
    state = "" if run.bound == sharers else f" (given up, {run.bound} bound)"
    return (
        f"  {name:26} {sharers:4} pods {run.seconds:7.2f} s{state}  {run.bystanders:4} bystanders, "
        f"longest wait {run.longest_wait:6.2f} s  "
        f"CPU: server {run.server_cpu:6.2f} s, scheduler {run.scheduler_cpu:6.2f} s"
    )
