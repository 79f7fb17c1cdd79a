"""Measured usage of the machine, of pods and of their containers.

Read from cgroups; where cgroups are not applied, from the processes of a container. Reads files, so call it
from a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.node.cgroups.parse import number
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.machine.machine import read_meminfo, read_text
from plimsoll.node.runtime.shims import descendants

PROC = Path("/proc")
_NANOSECONDS = 1_000_000_000
#: Fields of /proc/stat's first line that are time in use: user, nice, system, irq, softirq, steal.
_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """CPU time and memory of the whole machine; None where it cannot be read."""

    cpu: int | None = None  #: nanoseconds since the boot
    memory: int | None = None  #: bytes of the working set
    capacity: int = 0  #: bytes
    booted_at: int = 0  #: seconds since the epoch


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Usage at one point in time: of the machine, of pods by UID, of containers by ID."""

    time: float
    machine: MachineUsage
    pods: Mapping[str, PodUsage] = field(default_factory=dict)
    containers: Mapping[str, PodUsage] = field(default_factory=dict)


def measure(
    now: float, cgroups: Cgroups, running: Mapping[str, Sequence[ContainerInfo]], proc: Path = PROC
) -> UsageSample:
    """Measure the machine, these pods and their running containers."""
    pods: dict[str, PodUsage] = {}
    containers: dict[str, PodUsage] = {}
    for uid, states in running.items():
        inside = []
        for state in states:
            if state.phase is not ContainerPhase.RUNNING:
                continue
            found = cgroups.usage(uid, state.id)
            if found is None or found.cpu is None or found.memory is None:
                found = measure_processes(descendants(state.pid) if state.pid > 0 else (), proc)
            containers[state.id] = found
            inside.append(found)
        own = cgroups.usage(uid)
        pods[uid] = own if own is not None and own.cpu is not None else _total(inside)
    return UsageSample(now, measure_machine(proc), pods, containers)


def measure_processes(pids: Iterable[int], proc: Path = PROC) -> PodUsage:
    """Measure processes: CPU time with that of children they have waited for, and resident memory."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    ticks = pages = count = 0
    for pid in pids:
        # The name of the program, in parentheses, may contain anything.
        fields = read_text(proc / str(pid) / "stat").rpartition(")")[2].split()
        numbers = [number(text) for text in fields[11:15]]
        resident = number(fields[21]) if len(fields) > 21 else None
        if resident is None:
            continue
        ticks += sum(each or 0 for each in numbers)
        pages += resident
        count += 1
    memory = pages * page
    return PodUsage(memory=memory, cpu=ticks * _NANOSECONDS // tick, pids=count, memory_in_use=memory)


def measure_machine(proc: Path = PROC) -> MachineUsage:
    """Measure the machine: all CPU time that was not idle, and memory that cannot be reclaimed at once."""
    cpu, booted = None, 0
    for line in read_text(proc / "stat").splitlines():
        fields = line.split()
        if fields[:1] == ["cpu"] and len(fields) > max(_BUSY_FIELDS):
            busy = sum(number(fields[place]) or 0 for place in _BUSY_FIELDS)
            cpu = busy * _NANOSECONDS // os.sysconf("SC_CLK_TCK")
        elif fields[:1] == ["btime"]:
            booted = number(fields[1]) or 0
    amounts = read_meminfo(proc / "meminfo")
    total, free = amounts.get("MemTotal"), amounts.get("MemFree")
    memory = None
    if total is not None and free is not None:
        memory = max(0, total - free - amounts.get("Inactive(file)", 0)) * 1024
    return MachineUsage(cpu, memory, (total or 0) * 1024, booted)


def _total(parts: Sequence[PodUsage]) -> PodUsage:
    return PodUsage(
        memory=sum(part.memory or 0 for part in parts),
        cpu=sum(part.cpu or 0 for part in parts),
        pids=sum(part.pids or 0 for part in parts),
        memory_in_use=sum(part.memory_in_use or 0 for part in parts),
    )
