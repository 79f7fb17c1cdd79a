"""Complete path: a server, a scheduler and this load, each in its own process, over HTTPS.

From creating a pod to seeing its node. The claim of each pod is made from a template by the server's
controller. `measure` also runs with something else in the scheduler's place (`limit`, or kube-scheduler).
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.scheduler.baseline import NOTE, recorded
from bench.scheduler.load import Load
from bench.scheduler.processes import SERVERS, Program, Server, connect, start_ours, start_theirs
from bench.scheduler.pure import FILLS as PURE_FILLS
from bench.scheduler.workloads import Workload
from bench.scheduler.writes import start_writes
from plimsoll.client import Client

Start = Callable[[Server, Path], Program]
_WARM = 8
_UNSCHEDULABLE = 1000
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
#: Leases are renewed by time, and reviews store nothing.
_OF_NO_POD = ("leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews")
CHURN = "churn"
#: Percentage of the cluster that is in use before pods are timed.
FILLS = {**PURE_FILLS, CHURN: 90}


@dataclass(frozen=True)
class Run:
    """Results of one load."""

    pods: int
    rate: float  #: pods per second, from the first creation to the last binding
    p50: float  #: seconds from a pod's creation to its binding
    p99: float
    cpu: Mapping[str, float]  #: milliseconds per pod of each process
    writes: Mapping[str, float]  #: requests per pod, by verb and resource
    peak: Mapping[str, int]  #: MiB


def measure(
    workload: Workload, pods: int, fill: str, start: Start = start_ours, kind: str = "embedded"
) -> Run:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        directory = Path(name)
        server: Server = SERVERS[kind](directory)
        try:
            filled = asyncio.run(_fill(workload, fill, server, directory))
            scheduler = start(server, directory)
            try:
                return asyncio.run(_measure(workload, pods, filled, fill == CHURN, server, scheduler))
            except BaseException:
                print(scheduler.log.read_text()[-2000:])
                raise
            finally:
                scheduler.stop()
        finally:
            server.stop()


async def _fill(workload: Workload, fill: str, server: Server, directory: Path) -> list[str]:
    """Create the cluster and the pods that are in it before the measurement; return their names.

    Their placements are known, so that a slow scheduler need not find them.
    """
    names = [f"f-{number}" for number in range(workload.capacity * FILLS[fill] // 100)]
    async with connect(server) as client:
        load = Load(client, workload)
        await load.set_up()
        if names:
            writes = start_writes(workload, server, directory)
            follow = asyncio.create_task(load.follow())
            try:
                await load.create(workload.pod(name) for name in names)
                await load.all_bound(names, lambda: writes.alive)
            finally:
                follow.cancel()
                writes.stop()
    return names


async def _measure(
    workload: Workload, pods: int, filled: list[str], churn: bool, server: Server, scheduler: Program
) -> Run:
    async with connect(server) as client:
        load = Load(client, workload)
        follow = asyncio.create_task(load.follow())
        free = workload.capacity - len(filled)
        before = [f"w-{number}" for number in range(min(_WARM, free // 2))]
        await load.create(workload.pod(name) for name in before)
        await load.all_bound(before, lambda: scheduler.alive)
        if workload.scenario == "unschedulable":
            await load.create(
                workload.unschedulable_pod(f"h-{number}", number) for number in range(_UNSCHEDULABLE)
            )
        count = min(pods, len(filled) if churn else free - len(before))
        names = [f"p-{number}" for number in range(count)]
        trees = (workload.pod(name) for name in names)
        written = await _count_writes(client)
        used = {"scheduler": scheduler.usage(), **server.usages()}
        begin = time.perf_counter()
        await (load.replace(trees, filled[:count]) if churn else load.create(trees))
        await load.all_bound(names, lambda: scheduler.alive)
        after = {"scheduler": scheduler.usage(), **server.usages()}
        written = await _count_writes(client) - written
        follow.cancel()
    delays = sorted(load.bound[name] - load.created[name] for name in names)
    if workload.claiming and not churn:
        fullest = max(Counter(load.nodes.values()).values())
        assert fullest <= workload.devices, f"{fullest} pods on a node with {workload.devices} devices"
    return Run(
        count,
        count / (max(load.bound[name] for name in names) - begin),
        delays[count // 2],
        delays[count * 99 // 100],
        {name: (usage.cpu - used[name].cpu) / count * 1e3 for name, usage in after.items()},
        {name: number / count for name, number in written.most_common()},
        {name: usage.peak for name, usage in after.items()},
    )


async def _count_writes(client: Client) -> Counter[str]:
    """Return how many objects the API server has written, by verb and resource."""
    found: Counter[str] = Counter()
    for line in (await client.call("GET", "/metrics")).body.decode().splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(_LABEL.findall(line))
            if labels["verb"] in _WRITES and labels["resource"] not in _OF_NO_POD:
                name = "/".join(filter(None, (labels["resource"], labels.get("subresource"))))
                found[f"{labels['verb']} {name}"] += int(float(line.rpartition(" ")[2]))
    return found


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
    server: str = "embedded",
) -> None:
    echo("over HTTPS, from creating a pod to its binding; the load is a separate process")
    echo(f"  ({NOTE})")
    for scenario in scenarios:
        for fill in fills:
            first: Run | None = None
            for nodes in sizes:
                workload = Workload(scenario, nodes, devices)
                run = measure(workload, pods, fill, kind=server)
                first = first or run
                echo(_line(scenario, nodes, fill, run) + f"  growth {first.rate / run.rate:.1f} x")
                echo(f"    writes per pod: {_list_writes(run)}")
                theirs = recorded(scenario, nodes)
                if theirs is not None and not compare and fill == "empty":
                    times = run.rate / theirs
                    echo(f"    kube-scheduler as recorded {theirs:g} pods/s: {times:.1f} times as fast")
                if limit and scenario != "unschedulable":
                    most = measure(workload, pods, fill, partial(start_writes, workload), server)
                    echo("  " + _line("writes alone", nodes, fill, most))
                    echo(f"    {run.rate / most.rate:.0%} of the writes alone; CPU: {_ratios(run, most)}")
                if compare:
                    live = measure(workload, pods, fill, start_theirs, server)
                    echo("  " + _line("kube-scheduler, this server", nodes, fill, live))
                    echo(f"      writes per pod: {_list_writes(live)}")
                    echo(f"    {run.rate / live.rate:.1f} times as fast; CPU: {_ratios(run, live)}")


def _line(name: str, nodes: int, fill: str, run: Run) -> str:
    return (
        f"  {name:27} {nodes:5} nodes {fill:>6} {run.rate:6.0f} pods/s  p50 {run.p50 * 1e3:6.0f} ms  "
        f"p99 {run.p99 * 1e3:6.0f} ms  CPU per pod: "
        + ", ".join(f"{part} {ms:.2f} ms" for part, ms in run.cpu.items())
        + f"  peak {' + '.join(str(peak) for peak in run.peak.values())} MiB"
    )


def _ratios(run: Run, other: Run) -> str:
    return ", ".join(f"{part} {run.cpu[part] / max(ms, 0.01):.2f} x" for part, ms in other.cpu.items())


def _list_writes(run: Run) -> str:
    return ", ".join(f"{name} {number:.2f}" for name, number in run.writes.items() if number >= 0.005)
