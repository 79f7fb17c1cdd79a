"""Resource usage of a machine and its pods, for eviction.

Available memory is computed as in the kubelet: free memory plus inactive file pages. Pods are measured by
their cgroups; where cgroups are not applied, by the resident memory of their processes, which counts shared
memory more than once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from plimsoll.node.cgroups.parse import number
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.eviction.manager import NodeStats, PodStats, SignalObservation
from plimsoll.node.eviction.thresholds import (
    ALLOCATABLE_MEMORY,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES,
    PID_AVAILABLE,
)
from plimsoll.node.machine.machine import read_meminfo, read_text

PROC = Path("/proc")


def measure_node(
    cgroups: Cgroups,
    running: Mapping[str, Sequence[ContainerInfo]],
    *,
    directory: Path | None = None,
    pods_memory: int = 0,
) -> NodeStats:
    """Measure the machine and these pods, by UID; reads files, so call it from a thread.

    `pods_memory` is the memory limit of all pods together, 0 if there is none.
    """
    pods: dict[str, PodStats] = {}
    for uid, states in running.items():
        alive = [state for state in states if state.phase is ContainerPhase.RUNNING]
        measured = measure_pod(cgroups, uid, {state.name: state.id for state in alive})
        if measured is None and cgroups.version == 0:
            pids = {state.name: [state.pid] if state.pid > 0 else [] for state in alive}
            measured = measure_processes(pids)
        if measured is not None:
            pods[uid] = measured
    signals = measure_machine(directory=directory)
    if pods_memory > 0:
        used = sum(measured.used.get("memory", 0) for measured in pods.values())
        signals[ALLOCATABLE_MEMORY] = SignalObservation(max(0, pods_memory - used), pods_memory)
    return NodeStats(signals, pods)


def measure_machine(proc: Path = PROC, directory: Path | None = None) -> dict[str, SignalObservation]:
    """Measure the signals of this machine; those of `directory`'s file system if it is given."""
    found = {MEMORY_AVAILABLE: _memory(proc), PID_AVAILABLE: _pids(proc)}
    if directory is not None:
        try:
            disk = os.statvfs(directory)
        except OSError:
            disk = None
        if disk is not None:
            found[NODEFS_AVAILABLE] = SignalObservation(
                disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            )
            # Some file systems have no inodes to count.
            found[NODEFS_INODES] = SignalObservation(disk.f_favail, disk.f_files) if disk.f_files else None
    return {signal: measure for signal, measure in found.items() if measure is not None}


def _memory(proc: Path) -> SignalObservation | None:
    amounts = read_meminfo(proc / "meminfo")
    total, free = amounts.get("MemTotal"), amounts.get("MemFree")
    if total is None or free is None:
        return None
    return SignalObservation(min(total, free + amounts.get("Inactive(file)", 0)) * 1024, total * 1024)


def _pids(proc: Path) -> SignalObservation | None:
    """Return the threads that can still be created; loadavg counts the existing ones."""
    limits = [
        number(read_text(proc / "sys" / "kernel" / name).strip()) for name in ("pid_max", "threads-max")
    ]
    fields = read_text(proc / "loadavg").split()
    running = number(fields[3].rpartition("/")[2]) if len(fields) > 3 else None
    known = [limit for limit in limits if limit is not None]
    if not known or running is None:
        return None
    return SignalObservation(max(0, min(known) - running), min(known))


def measure_pod(cgroups: Cgroups, uid: str, containers: Mapping[str, str]) -> PodStats | None:
    """Read a pod's usage from its cgroup; `containers` are IDs by name. None if it has no cgroup."""
    usage = cgroups.usage(uid)
    if usage is None:
        return None
    used = {"memory": usage.memory, "pids": usage.pids}
    inside = {name: cgroups.usage(uid, id) for name, id in containers.items()}
    return PodStats(
        {name: amount for name, amount in used.items() if amount is not None},
        {name: one.memory for name, one in inside.items() if one is not None and one.memory is not None},
    )


def measure_processes(containers: Mapping[str, Iterable[int]], proc: Path = PROC) -> PodStats:
    """Measure the processes of a pod, by container; exited processes count as zero."""
    page = os.sysconf("SC_PAGE_SIZE")
    memory: dict[str, int] = {}
    count = 0
    for name, pids in containers.items():
        memory[name] = 0
        for pid in pids:
            fields = read_text(proc / str(pid) / "statm").split()
            resident = number(fields[1]) if len(fields) > 1 else None
            if resident is not None:
                memory[name] += resident * page
                count += 1
    return PodStats({"memory": sum(memory.values()), "pids": count}, memory)
