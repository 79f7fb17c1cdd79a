"""Scheduling cycle alone: no HTTP, no clock, one pod after the other.

For each pod `read_pod_info`, `schedule_one` and `assume` are timed; then what the API would return (the claim
allocated, the pod bound) is applied, which is timed separately. Pods are placed before until the cluster is
as full as wanted. Every placement is checked at the end: no node past its line, no device given twice.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.scheduler.workloads import Workload
from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import Form
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.status import write_charges
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify

#: Percentage of the cluster that is in use before pods are timed.
FILLS = {"empty": 0, "half": 50, "nearly": 95}


@dataclass(frozen=True)
class Timing:
    """Microseconds per pod, and the number of pods."""

    pods: int
    mean: float
    p50: float
    p99: float
    events: float  #: to apply the events of the bound pod and its claim
    unschedulable: float = 0.0  #: mean time to reject an unschedulable pod again

    @property
    def rate(self) -> float:
        return 1e6 / self.mean


class SchedulerBench:
    """Snapshot of a workload, and pods scheduled on it."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.settings = SchedulerProfile.default()
        self.snapshot = Snapshot()
        self._numbers = itertools.count()
        self._ids = (f"{number:08x}-0000-4000-8000-000000000000" for number in itertools.count())
        for tree in workload.classes():
            self.snapshot.set(codec.convert(tree, DeviceClass))
        for number in range(workload.nodes):
            self.snapshot.set(codec.convert(workload.node(number), Node))
            for tree in workload.slices(number):
                self.snapshot.set(codec.convert(tree, ResourceSlice))

    def new_pod(self) -> Pod:
        """Create a pod as the API returns it; its claim is already in the snapshot."""
        name = f"p-{next(self._numbers)}"
        if self.workload.claiming:
            self.snapshot.set(codec.convert(self.workload.claim(f"c-{name}"), ResourceClaim))
        return codec.convert(self.workload.pod(name, f"c-{name}"), Pod)

    def unschedulable_pods(self, count: int) -> list[Pod]:
        trees = (self.workload.unschedulable_pod(f"h-{number}", number) for number in range(count))
        return [codec.convert(tree, Pod) for tree in trees]

    def place(self, pod: Pod) -> Placement | FitError:
        """Schedule one pod and assume its placement."""
        task = read_pod_info(pod, self.snapshot)
        assert isinstance(task, PodInfo), task
        found = schedule_one(task, self.snapshot, self.settings, self._new_id)
        if isinstance(found, Placement):
            self.snapshot.assume(found)
        return found

    def on_bound(self, placement: Placement) -> None:
        """Apply what the watch delivers once a placement is written."""
        snapshot, task = self.snapshot, placement.pod_info
        for claim in task.unallocated_claims:
            status = msgspec.structs.replace(
                claim.status, allocation=placement.allocations[claim.metadata.name]
            )
            meta = msgspec.structs.replace(claim.metadata, resource_version="2")
            snapshot.set(msgspec.structs.replace(claim, metadata=meta, status=status))
        pod: Any = (
            write_charges(task.pod, placement.charged_claims, Form.V1_36).lossless(Form.V1_36)
            if placement.charged_claims
            else task.pod
        )
        spec = msgspec.structs.replace(pod.spec, node_name=placement.node)
        snapshot.set(msgspec.structs.replace(pod, spec=spec))

    def fill(self, percent: int) -> None:
        for _ in range(self.workload.capacity * percent // 100):
            found = self.place(self.new_pod())
            assert isinstance(found, Placement), found
            self.on_bound(found)

    def run(self, pods: int, unschedulable: int = 0) -> Timing:
        """Time `pods` pods, with `unschedulable` pods retried between them."""
        count = min(pods, self.free)
        ready = [self.new_pod() for _ in range(count)]
        rejected = self.unschedulable_pods(unschedulable)
        for pod in rejected:
            assert isinstance(self.place(pod), FitError)
        times, handled, tried, attempts = [], 0.0, 0.0, 0
        gc.collect()
        gc.freeze()
        clock = time.thread_time  # other processes of the machine do not count
        for number, pod in enumerate(ready):
            start = clock()
            found = self.place(pod)
            times.append(clock() - start)
            assert isinstance(found, Placement), found
            start = clock()
            self.on_bound(found)
            handled += clock() - start
            for other in rejected[number % 10 :: 10]:
                start = clock()
                again = self.place(other)
                tried += clock() - start
                attempts += 1
                assert isinstance(again, FitError)
        gc.unfreeze()
        times.sort()
        return Timing(
            count,
            sum(times) / count * 1e6,
            times[count // 2] * 1e6,
            times[count * 99 // 100] * 1e6,
            handled / count * 1e6,
            tried / attempts * 1e6 if attempts else 0.0,
        )

    def check(self) -> None:
        problems = verify(self.snapshot)
        assert not problems, problems

    @property
    def free(self) -> int:
        """Return the number of pods that still fit."""
        placed = sum(len(self.snapshot.ledger(row)) for row in self.snapshot.rows())
        return self.workload.capacity - len(self.snapshot.assumed) - placed

    def _new_id(self) -> str:
        return next(self._ids)


def measure(workload: Workload, pods: int, fill: str, unschedulable: int = 0) -> Timing:
    bench = SchedulerBench(workload)
    bench.fill(FILLS[fill])
    # Warm up code and caches, but leave room for the pods that are timed.
    if warm := min(20, pods, bench.free // 2):
        bench.run(warm)
    timing = bench.run(pods, unschedulable if workload.scenario == "unschedulable" else 0)
    bench.check()
    return timing


def report(
    scenarios: list[str],
    sizes: list[int],
    fills: list[str],
    pods: int,
    devices: int,
    echo: Callable[[str], None],
) -> None:
    echo(f"scheduling cycle alone, {devices} devices per node, one pod after the other")
    heads = f"{'nodes':>6} {'fill':>6} {'pods/s':>8} {'p50':>8} {'p99':>8} {'events':>9}  growth"
    echo(f"  {'scenario':27} {heads}")
    for scenario in scenarios:
        for fill in fills:
            first: Timing | None = None
            for nodes in sizes:
                timing = measure(Workload(scenario, nodes, devices), pods, fill, 100)
                first = first or timing
                tried = f", unschedulable again {timing.unschedulable:.0f} us" if timing.unschedulable else ""
                echo(
                    f"  {scenario:27} {nodes:6} {fill:>6} {timing.rate:8.0f} {timing.p50:5.0f} us "
                    f"{timing.p99:5.0f} us {timing.events:6.0f} us  {timing.mean / first.mean:.1f} x{tried}"
                )
