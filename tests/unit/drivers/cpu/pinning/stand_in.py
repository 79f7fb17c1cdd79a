"""Folders that stand in for cpusets, with the kernel's rules about what lies within what."""

from __future__ import annotations

import errno
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from tests.unit.node.cgroups.stand_in import V1StandIn, V2StandIn

CPUS = "cpuset.cpus"


class V1(V1StandIn):
    """A cpuset lies within the one above it, and holds those below it; both are refused otherwise."""

    def refuse(self, file: Path, value: str) -> int:
        refused = super().refuse(file, value)
        if refused or file.name not in (CPUS, "cpuset.mems"):
            return refused
        below = [file.parent / name / file.name for name in self.subdirectories(file.parent)]
        if any(not CpuSet.parse(inner.read_text()) <= CpuSet.parse(value) for inner in below):
            return errno.EBUSY
        return 0

    def add(self, path: str, cpus: str = "0-3", *, quota: int = -1, procs: str = "7") -> Path:
        """A cgroup in all hierarchies, with those above it."""
        for controller in self.controllers:
            folder = self.mount / controller
            for part in path.split("/"):
                folder = folder / part
                self.make(folder)
                if controller == "cpuset" and not (folder / CPUS).read_text():
                    (folder / CPUS).write_text(cpus)
                    (folder / "cpuset.mems").write_text("0")
            (folder / "cgroup.procs").write_text(procs)
            if controller == "cpu":
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
        return self.mount / "cpuset" / path


class V2(V2StandIn):
    """A cpuset that is not set is that of the one above; what is in force is what both allow."""

    def read(self, file: Path) -> str | None:
        if file.name == "cpuset.cpus.effective" and (file.parent / CPUS).exists():
            return str(self.effective(file.parent))
        if file.name == "cpuset.mems.effective" and (file.parent / "cpuset.mems").exists():
            return (file.parent / "cpuset.mems").read_text() or "0-1"
        return super().read(file)

    def effective(self, folder: Path) -> CpuSet:
        if folder == self.mount:
            return CpuSet.parse("0-3")
        above = self.effective(folder.parent)
        own = folder / CPUS
        text = own.read_text() if own.exists() else ""
        return above & CpuSet.parse(text) or above if text else above

    def add(
        self, path: str, cpus: str = "", *, quota: int = -1, procs: str = "7", hand_down: bool = True
    ) -> Path:
        folder = self.mount
        for part in path.split("/"):
            if hand_down:
                for controller in self.controllers:
                    self.write(folder / "cgroup.subtree_control", f"+{controller}")
            folder = folder / part
            self.make(folder)
        (folder / "cgroup.procs").write_text(procs)
        if cpus:
            (folder / CPUS).write_text(cpus)
        if quota > 0:
            (folder / "cpu.max").write_text(f"{quota} 100000")
        return folder
