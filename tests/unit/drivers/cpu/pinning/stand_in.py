"""Directories that behave as cpusets, with the kernel's rules about parents and children."""

from __future__ import annotations

import errno
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from tests.unit.node.cgroups.stand_in import V1StandIn, V2StandIn

CPUS = "cpuset.cpus"


class V1(V1StandIn):
    """Cpusets of cgroup v1: subsets of their parent, and supersets of their children; other writes are
    refused.
    """

    def refuse(self, file: Path, value: str) -> int:
        refused = super().refuse(file, value)
        if refused or file.name not in (CPUS, "cpuset.mems"):
            return refused
        below = [file.parent / name / file.name for name in self.subdirectories(file.parent)]
        if any(not CpuSet.parse(inner.read_text()) <= CpuSet.parse(value) for inner in below):
            return errno.EBUSY
        return 0

    def add(self, path: str, cpus: str = "0-3", *, quota: int = -1, procs: str = "7") -> Path:
        """Create a cgroup and its ancestors in all hierarchies."""
        for controller in self.controllers:
            directory = self.mount / controller
            for part in path.split("/"):
                directory = directory / part
                self.make(directory)
                if controller == "cpuset" and not (directory / CPUS).read_text():
                    (directory / CPUS).write_text(cpus)
                    (directory / "cpuset.mems").write_text("0")
            (directory / "cgroup.procs").write_text(procs)
            if controller == "cpu":
                (directory / "cpu.cfs_quota_us").write_text(str(quota))
        return self.mount / "cpuset" / path


class V2(V2StandIn):
    """Cpusets of cgroup v2: inherited if not set; the effective cpuset is what both levels allow."""

    def read(self, file: Path) -> str | None:
        if file.name == "cpuset.cpus.effective" and (file.parent / CPUS).exists():
            return str(self.effective(file.parent))
        if file.name == "cpuset.mems.effective" and (file.parent / "cpuset.mems").exists():
            return (file.parent / "cpuset.mems").read_text() or "0-1"
        return super().read(file)

    def effective(self, directory: Path) -> CpuSet:
        if directory == self.mount:
            return CpuSet.parse("0-3")
        above = self.effective(directory.parent)
        own = directory / CPUS
        text = own.read_text() if own.exists() else ""
        return above & CpuSet.parse(text) or above if text else above

    def add(
        self, path: str, cpus: str = "", *, quota: int = -1, procs: str = "7", hand_down: bool = True
    ) -> Path:
        directory = self.mount
        for part in path.split("/"):
            if hand_down:
                for controller in self.controllers:
                    self.write(directory / "cgroup.subtree_control", f"+{controller}")
            directory = directory / part
            self.make(directory)
        (directory / "cgroup.procs").write_text(procs)
        if cpus:
            (directory / CPUS).write_text(cpus)
        if quota > 0:
            (directory / "cpu.max").write_text(f"{quota} 100000")
        return directory
