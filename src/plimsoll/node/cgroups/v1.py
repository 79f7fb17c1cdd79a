"""cgroup v1: a tree of folders for every controller.

Owns what is particular to it. A cpuset has to have CPUs and memory nodes before a process can join, and they
are not inherited. A cgroup may not have more CPU time than the one above it, at any moment: that is why quota
and period are changed by way of "unlimited", and why callers shrink containers before their pod and let them
grow after it. A process tree is killed frozen, so that nothing forks away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from plimsoll.node.cgroups.kernel import Kernel
from plimsoll.node.cgroups.parse import number, working_set
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.cgroups.writes import Write, v1_writes
from plimsoll.node.resources import LinuxResources

_FREEZE_TRIES = 50


class V1:
    """The hierarchies of cgroup v1, one for each controller or group of controllers."""

    version = 1

    def __init__(self, controllers: Mapping[str, Path], kernel: Kernel) -> None:
        self.controllers = dict(controllers)
        self.mounts = tuple(dict.fromkeys(self.controllers.values()))
        self._kernel = kernel

    def writes(self, resources: LinuxResources) -> tuple[Write, ...]:
        return v1_writes(resources)

    def folder(self, cgroup: str, controller: str) -> Path | None:
        mount = self.controllers.get(controller)
        return None if mount is None else mount / cgroup

    def shown(self, cgroup: str, write: Write) -> str:
        """The name of a file in plans and faults."""
        return f"{write.controller}/{cgroup}/{write.file}"

    def above(self, cgroup: str) -> Iterator[tuple[str, str, int]]:
        """Nothing is needed of the cgroup above one."""
        return iter(())

    def made(self, cgroup: str) -> Iterator[tuple[str, str, int]]:
        """Make a new cgroup fit for processes; what cannot be done, as (file, value, errno)."""
        cpuset = self.folder(cgroup, "cpuset")
        if cpuset is not None:
            for file in ("cpuset.cpus", "cpuset.mems"):
                if self._kernel.read(cpuset / file):
                    continue
                above = self._kernel.read(cpuset.parent / file) or ""
                fault = self._kernel.write(cpuset / file, above)
                if fault:
                    yield f"cpuset/{cgroup}/{file}", above, fault
        memory = self.folder(cgroup, "memory")
        # Old kernels count what is below only if told so before there is anything below.
        if memory is not None and self._kernel.read(memory / "memory.use_hierarchy") == "0":
            self._kernel.write(memory / "memory.use_hierarchy", "1")

    def write(self, folder: Path, write: Write) -> int:
        if write.file == "cpu.cfs_period_us":
            return self._write_period(folder, write.value)
        return self._kernel.write(folder / write.file, write.value)

    def _write_period(self, folder: Path, period: str) -> int:
        """Another period would make the quota another part of a CPU: take the quota away meanwhile."""
        if self._kernel.read(folder / "cpu.cfs_period_us") == period:
            return 0
        quota = self._kernel.read(folder / "cpu.cfs_quota_us")
        if quota is None or quota == "-1":
            return self._kernel.write(folder / "cpu.cfs_period_us", period)
        fault = self._kernel.write(folder / "cpu.cfs_quota_us", "-1")
        if fault:
            return fault
        fault = self._kernel.write(folder / "cpu.cfs_period_us", period)
        # The quota comes back even if none is to follow, as near to what it was as can be.
        self._kernel.write(folder / "cpu.cfs_quota_us", quota)
        return fault

    def kill(self, cgroup: str, pids: Callable[[], tuple[int, ...]]) -> None:
        """Kill what is inside while it is held; what came to be meanwhile is left to the next time."""
        self._freeze(cgroup)
        try:
            for pid in pids():
                self._kernel.end(pid)
        finally:
            self.wake(cgroup)  # only then do they die

    def _freeze(self, cgroup: str) -> None:
        """Hold everything inside, as far as that works in a short time."""
        folder = self.folder(cgroup, "freezer")
        if folder is None or self._kernel.write(folder / "freezer.state", "FROZEN"):
            return
        for _ in range(_FREEZE_TRIES):
            if self._kernel.read(folder / "freezer.state") != "FREEZING":
                return
            self._kernel.wait(0.001)

    def wake(self, cgroup: str) -> None:
        """Let go of what is held, by an agent too that was killed before it could."""
        folder = self.folder(cgroup, "freezer")
        if folder is not None and self._kernel.read(folder / "freezer.state") not in (None, "THAWED"):
            self._kernel.write(folder / "freezer.state", "THAWED")

    def usage(self, cgroup: str) -> PodUsage:
        in_use = memory = self._number(cgroup, "memory", "memory.usage_in_bytes")
        folder = self.folder(cgroup, "memory")
        if in_use is not None and folder is not None:
            memory = working_set(in_use, self._kernel.read(folder / "memory.stat"), "total_inactive_file")
        return PodUsage(
            memory=memory,
            memory_in_use=in_use,
            cpu=self._number(cgroup, "cpuacct", "cpuacct.usage"),
            pids=self._number(cgroup, "pids", "pids.current"),
        )

    def _number(self, cgroup: str, controller: str, file: str) -> int | None:
        folder = self.folder(cgroup, controller)
        return None if folder is None else number(self._kernel.read(folder / file))

    def cpus(self, cgroup: str) -> str:
        folder = self.folder(cgroup, "cpuset")
        if folder is None:
            return ""
        names = ("cpuset.effective_cpus", "cpuset.cpus")
        return next(filter(None, (self._kernel.read(folder / name) for name in names)), "")
