"""`Processes`: parents, sessions and start times of all processes, read from /proc once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.node.layout import Layout
from plimsoll.tools.doctor.facts import ShimProcess
from plimsoll.tools.doctor.files import read_file

PROC = Path("/proc")
SPEC = "spec.json"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    start: int


@dataclass(frozen=True, slots=True)
class Processes:
    """Live processes, without zombies."""

    by_pid: dict[int, Process] = field(default_factory=dict)

    def is_alive(self, pid: int, start: int) -> bool:
        """Return whether exactly this process is alive. PID 1 is never a container."""
        found = self.by_pid.get(pid)
        return found is not None and found.start == start and pid > 1

    def family(self, roots: Iterable[int], leader: tuple[int, int] | None = None) -> set[int]:
        """Return processes and their descendants, and the remaining members of the leader's session."""
        children: dict[int, list[int]] = {}
        for process in self.by_pid.values():
            children.setdefault(process.parent, []).append(process.pid)
        queue = [pid for pid in roots if pid in self.by_pid]
        if leader is not None:
            pid, start = leader
            first = self.by_pid.get(pid)
            if pid > 1 and (first is None or first.start == start):  # else the PID was reused
                queue += [p.pid for p in self.by_pid.values() if p.session == pid and p.start >= start]
        found: set[int] = set()
        while queue:
            pid = queue.pop()
            if pid not in found:
                found.add(pid)
                queue += children.get(pid, [])
        return found


def read_processes(proc: Path = PROC) -> Processes:
    found = {}
    for pid in list_pids(proc):
        fields = read_file(proc / str(pid) / "stat", 4096)[0].rpartition(b")")[2].split()
        if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
            found[pid] = Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))
    return Processes(found)


def find_shims(layout: Layout, processes: Processes, proc: Path = PROC) -> Iterator[ShimProcess]:
    """Yield the processes started for containers of this root, by command line."""
    heads = {os.fsencode(layout.pods) + b"/", os.fsencode(os.path.realpath(layout.pods)) + b"/"}
    tail = b"/" + SPEC.encode()
    for pid, process in sorted(processes.by_pid.items()):
        words = read_file(proc / str(pid) / "cmdline", 65536)[0].split(b"\0")
        if b"-I" not in words:
            continue
        for word in words:
            if word.endswith(tail) and any(word.startswith(head) for head in heads):
                yield ShimProcess(pid=pid, start=process.start, spec=os.fsdecode(word))
                break


def list_pids(proc: Path = PROC) -> list[int]:
    """Return the PIDs of all processes."""
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []
