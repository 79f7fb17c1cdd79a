"""`plimsoll bench`: scheduling throughput on a simulated cluster in memory.

Times the scheduler's own work on one pod, from reading it to charging it in the ledger; no API and no
network. The naive pass evaluates every rule on every node one by one, which is the cost without columns and
indexes. At the end an independent verifier checks every placement: no node past its line, no device allocated
twice.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.errors import InputError
from plimsoll.scheduler.cycle import build_filters, schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_table

Tree = dict[str, Any]
Clock = Callable[[], float]

RESOURCE = "resource.k8s.io/v1"
DRIVER = "bench.example.com"
DEVICES = 8  #: devices, and therefore pods, per node
NAIVE = 5  #: decisions that are also made the naive way
_WARM = 20
#: Requests of a pod.
SCENARIOS = {
    "requests": "CPU and memory requests, no claims",
    "devices": "one device through a claim",
    "cpus": "a core and memory through a claim on a shared device, charged to the node",
}


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Measurements of one scenario; times per decision, in microseconds."""

    scenario: str
    nodes: int
    pods: int
    mean: float
    p50: float
    p99: float
    naive: float  #: pass over all nodes, one by one

    @property
    def rate(self) -> int:
        return round(1e6 / self.mean) if self.mean else 0

    @property
    def ratio(self) -> float:
        """Duration of the naive pass relative to the mean decision."""
        return self.naive / self.mean if self.mean else 0.0

    def as_json(self) -> Tree:
        return {
            "scenario": self.scenario,
            "nodes": self.nodes,
            "pods": self.pods,
            "podsPerSecond": self.rate,
            "meanMicroseconds": round(self.mean),
            "p50Microseconds": round(self.p50),
            "p99Microseconds": round(self.p99),
            "naivePassMicroseconds": round(self.naive),
            "naivePassRatio": round(self.ratio, 1),
        }


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """Measurements of all scenarios."""

    results: tuple[BenchmarkResult, ...]

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        heading = ("SCENARIO", "NODES", "PODS", "PODS/S", "P50", "P99", "NAIVE PASS", "RATIO")
        rows = [
            (
                each.scenario,
                f"{each.nodes:,}",
                f"{each.pods:,}",
                f"{each.rate:,}",
                f"{each.p50:,.0f} us",
                f"{each.p99:,.0f} us",
                f"{each.naive:,.0f} us",
                f"{each.ratio:,.1f} x",
            )
            for each in self.results
        ]
        first, *rest = format_table([heading, *rows])
        yield paint.bold(first)
        yield from rest
        yield ""
        for each in self.results:
            yield paint.dim(f"{each.scenario}: {SCENARIOS[each.scenario]}")
        yield paint.dim(
            "CPU time of scheduling decisions in memory, without API; every placement is verified afterwards."
        )
        yield paint.dim("NAIVE PASS: every rule evaluated on every node one by one, for the same pod.")

    def as_json(self) -> Any:
        return [each.as_json() for each in self.results]


def measure(scenario: str, nodes: int, pods: int, clock: Clock = time.thread_time) -> BenchmarkResult:
    """Schedule `pods` pods on `nodes` nodes. Raise InputError if they do not fit."""
    if scenario not in SCENARIOS:
        raise InputError(f"unknown scenario {scenario}; valid values: {', '.join(SCENARIOS)}")
    room = nodes * DEVICES - _WARM - NAIVE
    if pods > room:
        raise InputError(f"{pods:,} pods do not fit on {nodes:,} nodes; the maximum is {max(room, 0):,}")
    cluster = BenchmarkCluster(scenario, nodes)
    for number in range(_WARM):  # warm up caches
        cluster.place(f"warm-{number}")
    gc.collect()
    gc.freeze()  # as the scheduler does after its caches are synced
    try:
        times = sorted(_time(cluster, f"pod-{number}", clock) for number in range(pods))
    finally:
        gc.unfreeze()
    naive = [_time_naive(cluster, f"naive-{number}", clock) for number in range(NAIVE)]
    problems = verify(cluster.snapshot)
    assert not problems, problems
    return BenchmarkResult(
        scenario,
        nodes,
        pods,
        sum(times) / pods,
        times[pods // 2],
        times[pods * 99 // 100],
        sum(naive) / NAIVE,
    )


def _time(cluster: BenchmarkCluster, name: str, clock: Clock) -> float:
    pod = cluster.new_pod(name)
    start = clock()
    cluster.schedule(pod)
    return (clock() - start) * 1e6


def _time_naive(cluster: BenchmarkCluster, name: str, clock: Clock) -> float:
    pod = cluster.new_pod(name)
    start = clock()
    passed = pass_naively(cluster.task(pod), cluster.snapshot, cluster.settings)
    spent = (clock() - start) * 1e6
    assert passed, "the naive pass finds no node where the cycle finds one"
    cluster.schedule(pod)
    return spent


def pass_naively(task: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> list[int]:
    """Return the feasible nodes by evaluating each rule on each node separately."""
    rules = build_filters(task, snapshot, settings, lambda: "00000000-0000-4000-8000-000000000000")
    if isinstance(rules, NodeReason):
        return []
    return [place for place in snapshot.rows() if not any(rule.filter_node(place) for rule in rules)]


class BenchmarkCluster:
    """Simulated cluster that pods are scheduled on."""

    def __init__(self, scenario: str, nodes: int) -> None:
        self.scenario = scenario
        self.snapshot = Snapshot()
        self.settings = SchedulerProfile.default()
        self._ids = (f"{number:08x}-0000-4000-8000-000000000000" for number in count())
        self.snapshot.set(codec.convert(_class(), DeviceClass))
        for number in range(nodes):
            name = f"node-{number:05d}"
            self.snapshot.set(codec.convert(_node(name, number), Node))
            self.snapshot.set(codec.convert(_slice(name, scenario), ResourceSlice))

    def new_pod(self, name: str) -> Pod:
        """Create a pod; its claim is already in the snapshot."""
        if self.scenario != "requests":
            self.snapshot.set(codec.convert(_claim(name, self.scenario), ResourceClaim))
        return codec.convert(_pod(name, self.scenario), Pod)

    def task(self, pod: Pod) -> PodInfo:
        task = read_pod_info(pod, self.snapshot)
        assert isinstance(task, PodInfo), task
        return task

    def schedule(self, pod: Pod) -> None:
        found = schedule_one(self.task(pod), self.snapshot, self.settings, lambda: next(self._ids))
        assert isinstance(found, Placement), found
        self.snapshot.assume(found)

    def place(self, name: str) -> None:
        self.schedule(self.new_pod(name))


def _class() -> Tree:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {**_head(RESOURCE, "DeviceClass", "bench"), "spec": {"selectors": selectors}}


def _node(name: str, number: int) -> Tree:
    tree = _head("v1", "Node", name)
    tree["metadata"]["labels"] = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    line = {"cpu": str(2 * DEVICES), "memory": f"{4 * DEVICES}Gi", "pods": str(DEVICES)}
    ready = {"type": "Ready", "status": "True"}
    return {**tree, "status": {"capacity": line, "allocatable": line, "conditions": [ready]}}


def _slice(node: str, scenario: str) -> Tree:
    devices: list[Tree] = [{"name": f"device-{index}"} for index in range(DEVICES)]
    if scenario == "cpus":
        names = ("cpu", "memory")
        amounts = {"cpu": str(DEVICES), "memory": f"{DEVICES}Gi"}
        device: Tree = {"name": "shared", "allowMultipleAllocations": True}
        device["capacity"] = {f"{DRIVER}/{name}": {"value": amounts[name]} for name in names}
        device["nodeAllocatableResourceMappings"] = {
            name: {"capacityKey": f"{DRIVER}/{name}"} for name in names
        }
        devices = [device]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {**_head(RESOURCE, "ResourceSlice", f"{node}-bench"), "spec": spec}


def _claim(name: str, scenario: str) -> Tree:
    exactly: Tree = {"deviceClassName": "bench", "allocationMode": "ExactCount", "count": 1}
    if scenario == "cpus":
        exactly["capacity"] = {"requests": {f"{DRIVER}/cpu": "1", f"{DRIVER}/memory": "1Gi"}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {**_head(RESOURCE, "ResourceClaim", name, "bench"), "spec": spec}


def _pod(name: str, scenario: str) -> Tree:
    resources: Tree = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    spec: Tree = {"containers": [{"name": "c", "image": "pause:3.10", "resources": resources}]}
    if scenario != "requests":
        resources["claims"] = [{"name": "r"}]
        spec["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]
    return {**_head("v1", "Pod", name, "bench"), "spec": spec}


def _head(version: str, kind: str, name: str, namespace: str = "") -> Tree:
    metadata = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
