"""Kernel cpusets, cgroup v1 and v2.

On v1 a cpuset must be a subset of its parent's at all times: ancestors are widened first, from the top, and
descendants of a container's cgroup are updated with it. On v2 an unset cpuset is that of the parent, and the
files exist only if every ancestor enables the controller. Guarantees: nothing else is written at the root of
the hierarchy; an empty set is never written; every write is read back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.pinning.plan import read_cpus

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
#: Maximum depth of cgroups created by a kubelet or runtime.
MAX_DEPTH = 12


class Files(Protocol):
    """File access for cgroups. Nothing raises; failures return an errno."""

    def read(self, file: Path) -> str | None:
        """Return the stripped text of a file, None if it cannot be read."""
        ...

    def write(self, file: Path, value: str) -> int: ...

    def subdirectories(self, directory: Path) -> tuple[str, ...]:
        """Return the names of subdirectories, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Root of the cpuset hierarchy. `cpu` is the root of the hierarchy with CFS quotas."""

    version: int
    root: Path
    cpu: Path | None


def find_hierarchy(mount: Path, files: Files) -> Hierarchy | str:
    """Find the cpuset hierarchy below a mount point, or return the reason why there is none."""
    listed = files.read(mount / "cgroup.controllers")
    if listed is not None:
        if "cpuset" not in listed.split():
            return f"{mount}: cgroup v2 without the cpuset controller"
        return Hierarchy(2, mount, mount)
    found = {name: _v1_root(mount, name, files) for name in ("cpuset", "cpu")}
    if found["cpuset"] is None:
        return f"{mount}: no cpusets are mounted here"
    return Hierarchy(1, found["cpuset"], found["cpu"])


def _v1_root(mount: Path, controller: str, files: Files) -> Path | None:
    if files.read(mount / controller / "cgroup.procs") is not None:
        return mount / controller
    joined = [name for name in files.subdirectories(mount) if controller in name.split(",")]
    return mount / joined[0] if joined else None


def read_online(files: Files, mount: Path) -> CpuSet | None:
    """Read the online CPUs from the sysfs that contains this cgroup mount; None if that is impossible."""
    text = files.read(mount / "../../devices/system/cpu/online")
    return read_cpus(text) if text else None


class Cpusets:
    """Cpusets of a hierarchy."""

    def __init__(self, hierarchy: Hierarchy, files: Files) -> None:
        self.hierarchy = hierarchy
        self._files = files

    # -- state

    def cpus(self, directory: Path) -> str:
        """Return the effective cpuset, else the configured one."""
        names = ("cpuset.cpus.effective", CPUS) if self.hierarchy.version == 2 else (CPUS,)
        return next(filter(None, (self._files.read(directory / name) for name in names)), "")

    def mems(self, directory: Path) -> str:
        names = ("cpuset.mems.effective", MEMS) if self.hierarchy.version == 2 else (MEMS,)
        return next(filter(None, (self._files.read(directory / name) for name in names)), "")

    def quota(self, directory: Path) -> int:
        """Return the CFS quota of a cgroup in microseconds, 0 for none."""
        cpu = self._cpu_directory(directory)
        if cpu is None:
            return 0
        name = "cpu.max" if self.hierarchy.version == 2 else "cpu.cfs_quota_us"
        text = (self._files.read(cpu / name) or "").partition(" ")[0]
        return int(text) if text.isdecimal() and len(text) < 19 else 0

    # -- writing; methods return the error or ""

    def set(self, directory: Path, cpus: CpuSet, mems: str = "") -> str:
        """Set the CPUs of a cgroup, and its memory nodes if given; return the error or ""."""
        if not cpus:
            return "an empty set is never written"
        if self.hierarchy.version == 2 and (problem := self._enable_controller(directory)):
            return problem
        problem = self._set(directory, CPUS, cpus)
        nodes = read_cpus(mems) or EMPTY
        if nodes and not problem:
            problem = self._set(directory, MEMS, nodes)
        return problem

    def lift_quota(self, directory: Path) -> str:
        cpu = self._cpu_directory(directory)
        if cpu is None or self.quota(directory) <= 0:
            return ""
        file, value = ("cpu.max", "max") if self.hierarchy.version == 2 else ("cpu.cfs_quota_us", "-1")
        number = self._files.write(cpu / file, value)
        return _format_error(cpu / file, value, number) if number else ""

    def _set(self, directory: Path, name: str, desired: CpuSet) -> str:
        for above in self._list_ancestors(directory):
            problem = self._widen(above, name, desired)
            if problem:
                return problem
        if self.hierarchy.version == 1:
            self._update_descendants(directory, name, desired)
        problem = self._write(directory / name, desired)
        return problem or self._check(directory, name, desired)

    def _widen(self, directory: Path, name: str, desired: CpuSet) -> str:
        """Extend the cpuset of an ancestor to include the desired CPUs."""
        has = read_cpus(self._files.read(directory / name) or "")
        if has is None or (not has and self.hierarchy.version == 2) or desired <= has:
            return ""
        return self._write(directory / name, has | desired)

    def _update_descendants(self, directory: Path, name: str, desired: CpuSet) -> None:
        """Update the cgroups inside a container: those with all CPUs get all again, others the intersection.

        Descendants that cannot be updated make the container's own update fail, which is reported.
        """
        futures = dict(self._plan_descendants(directory, name, self._has(directory, name), desired))
        if not futures:
            return
        # Set the union first, so that each cpuset stays a subset of its parent's.
        for inner in (directory, *futures):
            self._write(inner / name, self._has(inner, name) | futures.get(inner, desired))
        for inner in reversed(futures):
            self._write(inner / name, futures[inner])

    def _plan_descendants(
        self, directory: Path, name: str, old: CpuSet, new: CpuSet, depth: int = 0
    ) -> Iterator[tuple[Path, CpuSet]]:
        """Return the new cpusets of the descendants of a cgroup, parents first."""
        if depth >= MAX_DEPTH:
            return
        for part in self._files.subdirectories(directory):
            inner = directory / part
            has = self._has(inner, name)
            if has:  # a cgroup without CPUs has no processes, and neither have its descendants
                future = new if has == old else (has & new or new)
                yield inner, future
                yield from self._plan_descendants(inner, name, has, future, depth + 1)

    def _has(self, directory: Path, name: str) -> CpuSet:
        return read_cpus(self._files.read(directory / name) or "") or EMPTY

    def _write(self, file: Path, value: CpuSet) -> str:
        if read_cpus(self._files.read(file) or "") == value:
            return ""
        number = self._files.write(file, str(value))
        return _format_error(file, str(value), number) if number else ""

    def _check(self, directory: Path, name: str, desired: CpuSet) -> str:
        shown = self.cpus(directory) if name == CPUS else self.mems(directory)
        if read_cpus(shown) == desired:
            return ""
        return f"{directory / name} is {shown!r} after {str(desired)!r} was written"

    def _enable_controller(self, directory: Path) -> str:
        """Enable the cpuset controller in all ancestors (v2)."""
        if self._files.read(directory / CPUS) is not None:
            return ""
        for above in (self.hierarchy.root, *self._list_ancestors(directory)):
            file = above / "cgroup.subtree_control"
            if "cpuset" in (self._files.read(file) or "").split():
                continue
            number = self._files.write(file, "+cpuset")
            if number:
                return _format_error(file, "+cpuset", number)
        return ""

    def _list_ancestors(self, directory: Path) -> list[Path]:
        """Return the ancestors of a cgroup from the top, without the root."""
        inner = directory.relative_to(self.hierarchy.root).parts[:-1]
        return [self.hierarchy.root.joinpath(*inner[: depth + 1]) for depth in range(len(inner))]

    def _cpu_directory(self, directory: Path) -> Path | None:
        cpu = self.hierarchy.cpu
        return None if cpu is None else cpu / directory.relative_to(self.hierarchy.root)


def _format_error(file: Path, value: str, number: int) -> str:
    return f"{file}: {value!r}: {os.strerror(number)}"
