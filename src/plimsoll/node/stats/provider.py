"""Usage of a node for the kubelet API: `/stats/summary` and `/metrics/resource`.

Measured when it is asked for. CPU usage is the average since the oldest sample of the last ten seconds; if
there is none, two samples are taken half a second apart. A container that is younger counts from its start.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from plimsoll.api.core import Pod
from plimsoll.api.timestamps import format_time
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.stats.resource_metrics import write_resource_metrics
from plimsoll.node.stats.usage import UsageSample, measure

Tree: TypeAlias = "dict[str, Any]"
_WINDOW_SECONDS = 10.0
_FIRST_WINDOW_SECONDS = 0.5


class RunningPods(Protocol):
    """Pods of a node and their containers."""

    def pods(self) -> Sequence[Pod]: ...

    def containers_of(self, uid: str) -> Sequence[ContainerInfo]: ...


class StatsProvider:
    """Usage of one node and its pods."""

    def __init__(
        self,
        node: str,
        pods: RunningPods,
        cgroups: Cgroups,
        *,
        clock: Callable[[], float] = time.time,
        first_window: float = _FIRST_WINDOW_SECONDS,
    ) -> None:
        self._node = node
        self._pods = pods
        self._cgroups = cgroups
        self._clock = clock
        self._first_window = first_window
        self._samples: deque[UsageSample] = deque()
        self._busy = asyncio.Lock()

    async def summary(self) -> Tree:
        """Return the Summary of the kubelet's stats API."""
        base, last = await self._measure()
        running = self._running()
        machine = last.machine
        node: Tree = {"nodeName": self._node, "cpu": _cpu(base, last, base.machine.cpu, machine.cpu)}
        if machine.booted_at:
            node["startTime"] = format_time(machine.booted_at)
        if machine.memory is not None:
            node["memory"] = {
                "time": format_time(last.time),
                "availableBytes": max(0, machine.capacity - machine.memory),
                "workingSetBytes": machine.memory,
            }
        pods = [self._pod_stats(pod, states, base, last) for pod, states in running]
        return {"node": node, "pods": pods}

    async def resource_metrics(self) -> str:
        """Return the node's usage in the Prometheus text format, under the kubelet's names."""
        async with self._busy:
            last = await self._sample()
        return write_resource_metrics(last, self._running())

    # -- internals

    def _running(self) -> Sequence[tuple[Pod, Sequence[ContainerInfo]]]:
        """Return the pods with running containers, and these."""
        found = []
        for pod in self._pods.pods():
            states = [
                state
                for state in self._pods.containers_of(pod.metadata.uid)
                if state.phase is ContainerPhase.RUNNING
            ]
            if states:
                found.append((pod, states))
        return found

    async def _measure(self) -> tuple[UsageSample, UsageSample]:
        """Return the sample that rates are computed from, and the newest one."""
        async with self._busy:
            last = await self._sample()
            if len(self._samples) < 2:
                await asyncio.sleep(self._first_window)
                last = await self._sample()
            return self._samples[0], last

    async def _sample(self) -> UsageSample:
        running = {pod.metadata.uid: states for pod, states in self._running()}
        sample = await asyncio.to_thread(measure, self._clock(), self._cgroups, running)
        while self._samples and self._samples[0].time < sample.time - _WINDOW_SECONDS:
            self._samples.popleft()
        self._samples.append(sample)
        return sample

    def _pod_stats(
        self, pod: Pod, states: Sequence[ContainerInfo], base: UsageSample, last: UsageSample
    ) -> Tree:
        meta = pod.metadata
        usage = last.pods.get(meta.uid, PodUsage())
        stats: Tree = {
            "podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "containers": [_container_stats(state, base, last) for state in states],
            "cpu": _cpu(base, last, _cpu_of(base.pods, meta.uid), usage.cpu, _started(states)),
            "memory": _memory(usage, last.time),
        }
        if pod.status.start_time:
            stats["startTime"] = pod.status.start_time
        if usage.pids is not None:
            stats["process_stats"] = {"process_count": usage.pids}
        return stats


def _container_stats(state: ContainerInfo, base: UsageSample, last: UsageSample) -> Tree:
    usage = last.containers.get(state.id, PodUsage())
    return {
        "name": state.name,
        "startTime": format_time(state.started_at),
        "cpu": _cpu(base, last, _cpu_of(base.containers, state.id), usage.cpu, state.started_at),
        "memory": _memory(usage, last.time),
    }


def _started(states: Sequence[ContainerInfo]) -> float:
    return min((state.started_at for state in states), default=0.0)


def _cpu_of(usages: Mapping[str, PodUsage], key: str) -> int | None:
    found = usages.get(key)
    return found.cpu if found is not None else None


def _cpu(
    base: UsageSample, last: UsageSample, before: int | None, now: int | None, started: float = 0.0
) -> Tree:
    """Return CPU usage: the total, and the rate since the first sample or the start if that is later."""
    if now is None:
        return {"time": format_time(last.time)}
    since = base.time
    if before is None:
        before, since = 0, started
    seconds = last.time - since
    rate = int(max(0, now - before) / seconds) if seconds > 0 else 0
    return {"time": format_time(last.time), "usageNanoCores": rate, "usageCoreNanoSeconds": now}


def _memory(usage: PodUsage, when: float) -> Tree:
    found: Tree = {"time": format_time(when)}
    if usage.memory_in_use is not None:
        found["usageBytes"] = usage.memory_in_use
    if usage.memory is not None:
        found["workingSetBytes"] = usage.memory
    return found
