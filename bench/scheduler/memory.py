"""Memory of a snapshot of a large cluster, and pauses of the garbage collector.

5,000 nodes with 8 devices each, every device allocated to a pod, and further pods without claims. Then pods
are replaced by others, while `GCControl` runs the collector as in the scheduler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.scheduler.pure import SchedulerBench
from bench.scheduler.workloads import Workload
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.process.gc_control import GCControl
from plimsoll.scheduler.result import Placement

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE >> 20


def report(nodes: int, devices: int, pods: int, cycles: int, echo: Callable[[str], None]) -> None:
    before = resident()
    begin = time.perf_counter()
    bench = SchedulerBench(Workload("node-allocatable", nodes, devices))
    bench.fill(100)
    plain = Workload("no-dra", nodes, devices)
    for number in range(pods - nodes * devices):
        tree = plain.pod(f"plain-{number}")
        placed = bench.place(codec.convert(tree, Pod))
        assert isinstance(placed, Placement), placed
        bench.on_bound(placed)
    taken = time.perf_counter() - begin
    pauses: list[float] = []
    gc_control = GCControl(lambda generation, seconds: pauses.append(seconds))
    gc_control.start()
    first = pauses.pop() if pauses else 0.0  # at the start, before anything is decided
    begin = time.perf_counter()
    for number in range(cycles):
        swap(bench, number)
        gc_control.on_busy()
        if number % 100 == 99:
            gc_control.on_idle()
    rate = cycles / (time.perf_counter() - begin)
    gc_control.stop()
    echo(f"{nodes} nodes, {nodes * devices} devices, {pods} pods in one snapshot")
    echo(f"  {resident() - before} MiB; filled in {taken:.0f} s")
    echo(f"  the collector paused it {len(pauses)} times, for {max(pauses, default=0) * 1e3:.1f} ms at most")
    echo(f"  (at the start once, for {first * 1e3:.0f} ms)")
    echo(f"  {rate:.0f} pods/s deleted and replaced")
    bench.check()


def swap(bench: SchedulerBench, number: int) -> None:
    """Delete a pod with its claim and schedule another one."""
    snapshot = bench.snapshot
    gone = snapshot.find_pod(f"uid-p-{number}")
    assert gone is not None
    claim = snapshot.claim("bench", f"c-p-{number}")
    assert isinstance(claim, ResourceClaim)
    snapshot.remove(gone[1])
    snapshot.remove(claim)
    placed = bench.place(bench.new_pod())
    assert isinstance(placed, Placement), placed
    bench.on_bound(placed)
