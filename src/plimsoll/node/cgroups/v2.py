"""Cgroup v2: one hierarchy for all controllers.

A cgroup has the files of a controller only if its parent enables the controller (`cgroup.subtree_control`),
and a cgroup that enables controllers has no processes. Values of a parent never cause errors below.
`cgroup.kill` leaves no time to fork.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from plimsoll.node.cgroups.kernel import CgroupKernel
from plimsoll.node.cgroups.parse import entry, number, working_set
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.cgroups.writes import CgroupWrite, v2_writes
from plimsoll.node.resources import LinuxResources

_ENABLED = ("cpu", "cpuset", "memory", "pids", "hugetlb")
_KILL_TRIES = 3


class V2:
    """The single hierarchy of cgroup v2."""

    version = 2

    def __init__(self, mount: Path, controllers: Sequence[str], kernel: CgroupKernel) -> None:
        self.mounts: tuple[Path, ...] = (mount,)
        self.controllers = tuple(name for name in _ENABLED if name in controllers)
        self._mount = mount
        self._kernel = kernel

    def writes(self, resources: LinuxResources) -> tuple[CgroupWrite, ...]:
        return v2_writes(resources)

    def directory(self, cgroup: str, controller: str) -> Path | None:
        return self._mount / cgroup if controller in self.controllers else None

    def display_name(self, cgroup: str, write: CgroupWrite) -> str:
        """Return the name of a file in plans and faults."""
        return f"{cgroup}/{write.file}"

    def prepare_parent(self, cgroup: str, skip: Collection[str] = ()) -> Iterator[tuple[str, str, int]]:
        """Enable controllers in the parent of a cgroup; yield failures as (file, value, errno)."""
        parent = cgroup.rpartition("/")[0]
        file = self._mount / parent / "cgroup.subtree_control"
        enabled = (self._kernel.read(file) or "").split()
        # One by one: a controller that is not available must not prevent the others.
        for name in self.controllers:
            if name not in enabled and name not in skip:
                fault = self._kernel.write(file, f"+{name}")
                if fault:
                    yield f"{parent}/cgroup.subtree_control".lstrip("/"), f"+{name}", fault

    def initialize(self, cgroup: str) -> Iterator[tuple[str, str, int]]:
        return iter(())

    def write(self, directory: Path, write: CgroupWrite) -> int:
        return self._kernel.write(directory / write.file, write.value)

    def kill(self, cgroup: str, pids: Callable[[], tuple[int, ...]]) -> None:
        """Kill all processes; kernels before 5.14 require signals, more than once."""
        if not self._kernel.write(self._mount / cgroup / "cgroup.kill", "1"):
            return
        for _ in range(_KILL_TRIES):
            found = pids()
            for pid in found:
                self._kernel.end(pid)
            if not found:
                return

    def thaw(self, cgroup: str) -> None:
        """Do nothing: nothing is frozen while it is killed."""

    def usage(self, cgroup: str) -> PodUsage:
        directory = self._mount / cgroup
        in_use = memory = number(self._kernel.read(directory / "memory.current"))
        if in_use is not None:
            memory = working_set(in_use, self._kernel.read(directory / "memory.stat"), "inactive_file")
        micros = entry(self._kernel.read(directory / "cpu.stat"), "usage_usec")
        return PodUsage(
            memory=memory,
            memory_in_use=in_use,
            cpu=None if micros is None else micros * 1000,
            pids=number(self._kernel.read(directory / "pids.current")),
        )

    def cpus(self, cgroup: str) -> str:
        directory = self._mount / cgroup
        names = ("cpuset.cpus.effective", "cpuset.cpus")
        return next(filter(None, (self._kernel.read(directory / name) for name in names)), "")
