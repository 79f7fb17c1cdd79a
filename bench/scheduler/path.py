"""Complete path: a server, a scheduler and this load, each in its own process, over HTTPS.

From creating a pod to seeing its node. The claim of each pod is made from a template by the server's
controller. `measure` also runs with something else in the scheduler's place (`limit`, or kube-scheduler).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.scheduler.baseline import NOTE, recorded
from bench.scheduler.load import Load
from bench.scheduler.processes import Program, Server, start_ours, start_theirs
from bench.scheduler.pure import FILLS
from bench.scheduler.workloads import Workload
from bench.scheduler.writes import start_writes

Start = Callable[[Server, Path], Program]
_WARM = 8
_UNSCHEDULABLE = 1000


@dataclass(frozen=True)
class Run:
    """Results of one load."""

    pods: int
    rate: float  #: pods per second, from the first creation to the last binding
    p50: float  #: seconds from a pod's creation to its binding
    p99: float
    scheduler: float  #: CPU milliseconds per pod
    server: float
    scheduler_peak: int  #: MiB
    server_peak: int


def measure(workload: Workload, pods: int, fill: str, start: Start = start_ours) -> Run:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        directory = Path(name)
        server = Server(directory)
        try:
            scheduler = start(server, directory)
            try:
                return asyncio.run(_measure(workload, pods, fill, server, scheduler))
            except BaseException:
                print(scheduler.log.read_text()[-2000:])
                raise
            finally:
                scheduler.stop()
        finally:
            server.stop()


async def _measure(workload: Workload, pods: int, fill: str, server: Server, scheduler: Program) -> Run:
    async with server.client() as client:
        load = Load(client, workload)
        await load.set_up()
        follow = asyncio.create_task(load.follow())
        warm = min(_WARM, workload.capacity // 2)
        before = [f"w-{number}" for number in range(max(warm, workload.capacity * FILLS[fill] // 100))]
        await load.create(workload.pod(name) for name in before)
        await load.all_bound(before, lambda: scheduler.alive)
        if workload.scenario == "unschedulable":
            await load.create(
                workload.unschedulable_pod(f"h-{number}", number) for number in range(_UNSCHEDULABLE)
            )
        count = min(pods, workload.capacity - len(before))
        names = [f"p-{number}" for number in range(count)]
        used = scheduler.usage().cpu, server.usage().cpu
        begin = time.perf_counter()
        await load.create(workload.pod(name) for name in names)
        await load.all_bound(names, lambda: scheduler.alive)
        after = scheduler.usage(), server.usage()
        follow.cancel()
    delays = sorted(load.bound[name] - load.created[name] for name in names)
    if workload.claiming:
        fullest = max(Counter(load.nodes.values()).values())
        assert fullest <= workload.devices, f"{fullest} pods on a node with {workload.devices} devices"
    return Run(
        count,
        count / (max(load.bound[name] for name in names) - begin),
        delays[count // 2],
        delays[count * 99 // 100],
        (after[0].cpu - used[0]) / count * 1e3,
        (after[1].cpu - used[1]) / count * 1e3,
        after[0].peak,
        after[1].peak,
    )


def report(
    scenarios: list[str],
    sizes: list[int],
    fills: list[str],
    pods: int,
    devices: int,
    echo: Callable[[str], None],
    *,
    limit: bool = True,
    compare: bool = False,
) -> None:
    echo("over HTTPS, from creating a pod to its binding; the load is a separate process")
    echo(f"  ({NOTE})")
    for scenario in scenarios:
        for fill in fills:
            first: Run | None = None
            for nodes in sizes:
                workload = Workload(scenario, nodes, devices)
                run = measure(workload, pods, fill)
                first = first or run
                echo(_line(scenario, nodes, fill, run) + f"  growth {first.rate / run.rate:.1f} x")
                theirs = recorded(scenario, nodes)
                if theirs is not None:
                    times = run.rate / theirs
                    echo(f"    kube-scheduler as recorded {theirs:g} pods/s: {times:.1f} times as fast")
                if limit and scenario != "unschedulable":
                    most = measure(workload, pods, fill, partial(start_writes, workload))
                    echo(
                        f"    writes alone, placements known: {most.rate:.0f} pods/s; "
                        f"the scheduler reaches {run.rate / most.rate:.0%} of that"
                    )
                if compare:
                    live = measure(workload, pods, fill, start_theirs)
                    echo("  " + _line("kube-scheduler, this server", nodes, fill, live))
                    echo(f"    {run.rate / live.rate:.1f} times as fast")


def _line(name: str, nodes: int, fill: str, run: Run) -> str:
    return (
        f"  {name:27} {nodes:5} nodes {fill:>6} {run.rate:6.0f} pods/s  p50 {run.p50 * 1e3:6.0f} ms  "
        f"p99 {run.p99 * 1e3:6.0f} ms  CPU per pod: scheduler {run.scheduler:.2f} ms, "
        f"server {run.server:.2f} ms  peak {run.scheduler_peak} + {run.server_peak} MiB"
    )
