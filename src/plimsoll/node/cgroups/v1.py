"""Cgroup v1: one hierarchy per controller.

A cpuset needs CPUs and memory nodes before a process can join, and they are not inherited. A cgroup must
never have more CPU time than its parent: that is why quota and period are changed by way of "unlimited", and
why callers shrink containers before their pod and grow them after it. Processes are killed while frozen, so
that none escapes by forking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from plimsoll.node.cgroups.kernel import CgroupKernel
from plimsoll.node.cgroups.parse import number, working_set
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.cgroups.writes import CgroupWrite, v1_writes
from plimsoll.node.resources import LinuxResources

_FREEZE_TRIES = 50


class V1:
    """Hierarchies of cgroup v1, one for each controller or group of controllers."""

    version = 1

    def __init__(self, controllers: Mapping[str, Path], kernel: CgroupKernel) -> None:
        self.controllers = dict(controllers)
        self.mounts = tuple(dict.fromkeys(self.controllers.values()))
        self._kernel = kernel

    def writes(self, resources: LinuxResources) -> tuple[CgroupWrite, ...]:
        return v1_writes(resources)

    def directory(self, cgroup: str, controller: str) -> Path | None:
        mount = self.controllers.get(controller)
        return None if mount is None else mount / cgroup

    def display_name(self, cgroup: str, write: CgroupWrite) -> str:
        """Return the name of a file in plans and faults."""
        return f"{write.controller}/{cgroup}/{write.file}"

    def prepare_parent(self, cgroup: str, skip: Collection[str] = ()) -> Iterator[tuple[str, str, int]]:
        """Prepare the parent of a cgroup: nothing is needed."""
        return iter(())

    def initialize(self, cgroup: str) -> Iterator[tuple[str, str, int]]:
        """Make a new cgroup ready for processes; yield failures as (file, value, errno)."""
        cpuset = self.directory(cgroup, "cpuset")
        if cpuset is not None:
            for file in ("cpuset.cpus", "cpuset.mems"):
                if self._kernel.read(cpuset / file):
                    continue
                above = self._kernel.read(cpuset.parent / file) or ""
                fault = self._kernel.write(cpuset / file, above)
                if fault:
                    yield f"cpuset/{cgroup}/{file}", above, fault
        memory = self.directory(cgroup, "memory")
        # Old kernels count descendants only if configured before there are any.
        if memory is not None and self._kernel.read(memory / "memory.use_hierarchy") == "0":
            self._kernel.write(memory / "memory.use_hierarchy", "1")

    def write(self, directory: Path, write: CgroupWrite) -> int:
        if write.file == "cpu.cfs_period_us":
            return self._write_period(directory, write.value)
        return self._kernel.write(directory / write.file, write.value)

    def _write_period(self, directory: Path, period: str) -> int:
        """Write the period; the quota, whose effect it changes, is lifted meanwhile."""
        if self._kernel.read(directory / "cpu.cfs_period_us") == period:
            return 0
        quota = self._kernel.read(directory / "cpu.cfs_quota_us")
        if quota is None or quota == "-1":
            return self._kernel.write(directory / "cpu.cfs_period_us", period)
        fault = self._kernel.write(directory / "cpu.cfs_quota_us", "-1")
        if fault:
            return fault
        fault = self._kernel.write(directory / "cpu.cfs_period_us", period)
        # The quota is restored even if none follows, as close to the old one as possible.
        self._kernel.write(directory / "cpu.cfs_quota_us", quota)
        return fault

    def kill(self, cgroup: str, pids: Callable[[], tuple[int, ...]]) -> None:
        """Kill all processes while they are frozen; processes created meanwhile are left to the next call."""
        self._freeze(cgroup)
        try:
            for pid in pids():
                self._kernel.end(pid)
        finally:
            self.thaw(cgroup)  # only now do they die

    def _freeze(self, cgroup: str) -> None:
        """Freeze all processes, as far as that works in a short time."""
        directory = self.directory(cgroup, "freezer")
        if directory is None or self._kernel.write(directory / "freezer.state", "FROZEN"):
            return
        for _ in range(_FREEZE_TRIES):
            if self._kernel.read(directory / "freezer.state") != "FREEZING":
                return
            self._kernel.wait(0.001)

    def thaw(self, cgroup: str) -> None:
        """Thaw frozen processes, including those left by an agent that was killed."""
        directory = self.directory(cgroup, "freezer")
        if directory is not None and self._kernel.read(directory / "freezer.state") not in (None, "THAWED"):
            self._kernel.write(directory / "freezer.state", "THAWED")

    def usage(self, cgroup: str) -> PodUsage:
        in_use = memory = self._number(cgroup, "memory", "memory.usage_in_bytes")
        directory = self.directory(cgroup, "memory")
        if in_use is not None and directory is not None:
            memory = working_set(in_use, self._kernel.read(directory / "memory.stat"), "total_inactive_file")
        return PodUsage(
            memory=memory,
            memory_in_use=in_use,
            cpu=self._number(cgroup, "cpuacct", "cpuacct.usage"),
            pids=self._number(cgroup, "pids", "pids.current"),
        )

    def _number(self, cgroup: str, controller: str, file: str) -> int | None:
        directory = self.directory(cgroup, controller)
        return None if directory is None else number(self._kernel.read(directory / file))

    def cpus(self, cgroup: str) -> str:
        directory = self.directory(cgroup, "cpuset")
        if directory is None:
            return ""
        names = ("cpuset.effective_cpus", "cpuset.cpus")
        return next(filter(None, (self._kernel.read(directory / name) for name in names)), "")
