"""Attempts to schedule pod groups: CPU time of an attempt, and of the longest turn of the event loop.

The cases are large gangs, gangs that do not fit so that a search ends at its limit, topology domains, and
preemption in a full cluster. Turns are those of the scheduler process: whatever the time in total, watches
and leases wait for one turn at most.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.scheduler.workloads import NAMESPACE, Tree, Workload, node_name
from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.gang.cycle import GroupResult, group_turns, schedule_group
from plimsoll.scheduler.gang.preemption import GroupPreemption, preemption_turns
from plimsoll.scheduler.process.group_cycle import SEARCH_SECONDS, TURN_SECONDS
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_ZONE = "topology.kubernetes.io/zone"
_PRIORITY = 10


@dataclass(frozen=True)
class Case:
    """Gang on a cluster of nodes with 64 CPUs and 8 devices; `victims` are pods of 8 CPUs on each node."""

    name: str
    members: int
    cpu: str = "1"
    devices: int = 0  #: of each member
    victims: int = 0
    topology: str = ""
    sizes: int = 1  #: number of different CPU requests


CASES = (
    Case("fits", 64),
    Case("fits, large", 1000),
    Case("fits, devices", 64, devices=1),
    Case("too few CPUs", 64, "65"),
    Case("too few CPUs, different pods", 64, "33", sizes=64),
    Case("one pod too many, devices", 0, devices=5),
    Case("zones", 64, topology=_ZONE),
    Case("preempts", 64, "40", victims=8),
)


@dataclass(frozen=True)
class GangTiming:
    """CPU time in milliseconds of an attempt with its preemption, and of its longest turn."""

    total: float
    longest: float
    result: str


def measure(case: Case, nodes: int) -> GangTiming:
    """Run one attempt in turns, as the scheduler process does."""
    workload = Workload("plain", nodes)
    snapshot = _fill(Snapshot(), workload, case)
    members, group = _members(case, workload, snapshot), _group(case, nodes)
    profile, ids = SchedulerProfile.default(), (f"id-{number}" for number in itertools.count())
    attempt = partial(schedule_group, group, members, snapshot, lambda pod: profile, lambda: next(ids))
    turns = group_turns(group, members, snapshot, lambda pod: profile, lambda: next(ids))
    clock = _TurnClock()
    result: GroupResult = clock.drive(turns)
    text = f"{len(result.placements)} of {len(members)}"
    if result.gave_up:
        text += ", search given up"
    if case.victims and not result.is_scheduled:
        plan = clock.drive(preemption_turns(group, members, snapshot, lambda steps: attempt(steps=steps)))
        text += f", {len(plan.victims)} victims" if isinstance(plan, GroupPreemption) else f", {plan}"
    return GangTiming(clock.total * 1000, clock.longest * 1000, text)


class _TurnClock:
    """CPU time of turns that each take a time slice of the event loop."""

    def __init__(self) -> None:
        self.total = self.longest = 0.0

    def drive(self, turns: Generator[None, bool | None, Any]) -> Any:
        value: bool | None = None
        while True:
            start = time.process_time()
            try:
                while time.process_time() - start < TURN_SECONDS:
                    turns.send(value)
                    value = self.total + time.process_time() - start >= SEARCH_SECONDS
            except StopIteration as end:
                return end.value
            finally:
                spent = time.process_time() - start
                self.total += spent
                self.longest = max(self.longest, spent)


def _fill(snapshot: Snapshot, workload: Workload, case: Case) -> Snapshot:
    for tree in workload.classes():
        snapshot.set(codec.convert(tree, DeviceClass))
    for number in range(workload.nodes):
        snapshot.set(codec.convert(workload.node(number), Node))
        for tree in workload.slices(number):
            snapshot.set(codec.convert(tree, ResourceSlice))
        for victim in range(case.victims):
            spec = {"nodeName": node_name(number), "priority": 0}
            snapshot.set(_pod(f"victim-{number}-{victim}", "8", spec))
    return snapshot


def _group(case: Case, nodes: int) -> PodGroup:
    spec: Tree = {
        "schedulingPolicy": {"gang": {"minCount": case.members or nodes + 1}},
        "priority": _PRIORITY,
    }
    if case.topology:
        spec["schedulingConstraints"] = {"topology": [{"key": case.topology}]}
    metadata = {"name": "gang", "namespace": NAMESPACE, "uid": "gang"}
    return codec.convert({"metadata": metadata, "spec": spec}, PodGroup)


def _members(case: Case, workload: Workload, snapshot: Snapshot) -> list[Pod]:
    found = []
    for number in range(case.members or workload.nodes + 1):
        cpu = f"{case.cpu}{number % case.sizes:03d}m" if case.sizes > 1 else case.cpu
        spec: Tree = {"priority": _PRIORITY, "schedulingGroup": {"podGroupName": "gang"}}
        if case.devices:
            name = f"claim-{number}"
            tree = workload.claim(name)
            tree["spec"]["devices"]["requests"][0]["exactly"]["count"] = case.devices
            snapshot.set(codec.convert(tree, ResourceClaim))
            spec["resourceClaims"] = [{"name": "devices", "resourceClaimName": name}]
        found.append(_pod(f"member-{number}", cpu, spec))
    return found


def _pod(name: str, cpu: str, spec: Tree) -> Pod:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
    return codec.convert({"metadata": metadata, "spec": {"containers": [container], **spec}}, Pod)


def report(sizes: Sequence[int], write: Callable[[str], None]) -> None:
    """Measure all cases on clusters of these sizes."""
    for line in _lines(sizes):
        write(line)


def _lines(sizes: Sequence[int]) -> Iterator[str]:
    yield f"{'gang':<30} {'nodes':>6} {'pods':>6} {'attempt ms':>11} {'turn ms':>8}  result"
    for nodes in sizes:
        for case in CASES:
            timing = measure(case, nodes)
            pods = case.members or nodes + 1
            times = f"{timing.total:>11.1f} {timing.longest:>8.1f}"
            yield f"{case.name:<30} {nodes:>6} {pods:>6} {times}  {timing.result}"
