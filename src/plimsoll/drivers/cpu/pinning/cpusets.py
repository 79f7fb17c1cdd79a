"""The kernel's cpusets: reading and writing them, in either version of cgroups.

Owns `Files`, the few calls that touch the machine, `Hierarchy` and what each version wants. On v1 a cpuset
has to lie within the one above it, at every moment: those above are widened first, from the top, and those
inside a container are taken along. On v2 a cpuset that is not set is that of the one above, and the files are
there only if every cgroup above hands the controller down. Promises: nothing is written at the root of the
hierarchy but that; no empty set is ever written; what was written is read again.
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
#: A folder deeper than that is none that a kubelet or a runtime has made.
DEEPEST = 12


class Files(Protocol):
    """What is needed of a machine. Nothing raises; what can fail returns an errno."""

    def read(self, file: Path) -> str | None:
        """The text of a file without blanks around it; None if it cannot be read."""
        ...

    def write(self, file: Path, value: str) -> int: ...

    def folders(self, folder: Path) -> tuple[str, ...]:
        """The names of the folders right below one, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where cpusets are: the root of their tree. `cpu` is the root of the tree with quotas."""

    version: int
    root: Path
    cpu: Path | None


def find_hierarchy(mount: Path, files: Files) -> Hierarchy | str:
    """The cpusets below a mount point, or why there are none."""
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
    for name in files.folders(mount) if files.read(mount / controller / "cgroup.procs") is None else ():
        if controller in name.split(","):
            return mount / name
    return mount / controller if files.read(mount / controller / "cgroup.procs") is not None else None


class Cpusets:
    """The cpusets of a hierarchy."""

    def __init__(self, hierarchy: Hierarchy, files: Files) -> None:
        self.hierarchy = hierarchy
        self._files = files

    # -- state

    def cpus(self, folder: Path) -> str:
        """What is in force, else what is set."""
        names = ("cpuset.cpus.effective", CPUS) if self.hierarchy.version == 2 else (CPUS,)
        return next(filter(None, (self._files.read(folder / name) for name in names)), "")

    def mems(self, folder: Path) -> str:
        names = ("cpuset.mems.effective", MEMS) if self.hierarchy.version == 2 else (MEMS,)
        return next(filter(None, (self._files.read(folder / name) for name in names)), "")

    def quota(self, folder: Path) -> int:
        """The quota of a cgroup in microseconds; 0 for none."""
        cpu = self._cpu_folder(folder)
        if cpu is None:
            return 0
        name = "cpu.max" if self.hierarchy.version == 2 else "cpu.cfs_quota_us"
        text = (self._files.read(cpu / name) or "").partition(" ")[0]
        return int(text) if text.isdecimal() and len(text) < 19 else 0

    # -- writing; each returns why it is not done, or nothing

    def set(self, folder: Path, cpus: CpuSet, mems: str = "") -> str:
        """Let what is inside a cgroup run on these CPUs, and these memory nodes if any are named."""
        if not cpus:
            return "an empty set is never written"
        if self.hierarchy.version == 2 and (problem := self._hand_down(folder)):
            return problem
        problem = self._set(folder, CPUS, cpus)
        nodes = read_cpus(mems) or EMPTY
        if nodes and not problem:
            problem = self._set(folder, MEMS, nodes)
        return problem

    def lift_quota(self, folder: Path) -> str:
        cpu = self._cpu_folder(folder)
        if cpu is None or self.quota(folder) <= 0:
            return ""
        file, value = ("cpu.max", "max") if self.hierarchy.version == 2 else ("cpu.cfs_quota_us", "-1")
        number = self._files.write(cpu / file, value)
        return _why(cpu / file, value, number) if number else ""

    def _set(self, folder: Path, name: str, wanted: CpuSet) -> str:
        for above in self._above(folder):
            problem = self._widen(above, name, wanted)
            if problem:
                return problem
        if self.hierarchy.version == 1:
            self._lead(folder, name, wanted)
        problem = self._write(folder / name, wanted)
        return problem or self._check(folder, name, wanted)

    def _widen(self, folder: Path, name: str, wanted: CpuSet) -> str:
        """Have a cgroup above contain what is wanted below it."""
        has = read_cpus(self._files.read(folder / name) or "")
        if has is None or (not has and self.hierarchy.version == 2) or wanted <= has:
            return ""
        return self._write(folder / name, has | wanted)

    def _lead(self, folder: Path, name: str, wanted: CpuSet) -> None:
        """Take cgroups inside a container along: who had all of the CPUs has all again, others what is left.

        Those that cannot follow make the container's own change fail, and that is told.
        """
        futures = dict(self._futures(folder, name, self._has(folder, name), wanted))
        if not futures:
            return
        # By way of both sets, so that each is within the one above it at every moment.
        for inner in (folder, *futures):
            self._write(inner / name, self._has(inner, name) | futures.get(inner, wanted))
        for inner in reversed(futures):
            self._write(inner / name, futures[inner])

    def _futures(
        self, folder: Path, name: str, old: CpuSet, new: CpuSet, depth: int = 0
    ) -> Iterator[tuple[Path, CpuSet]]:
        """What is to become of the cgroups below one that changes, the highest first."""
        if depth >= DEEPEST:
            return
        for part in self._files.folders(folder):
            inner = folder / part
            has = self._has(inner, name)
            if has:  # one that has none holds nobody, and nobody below it has any
                future = new if has == old else (has & new or new)
                yield inner, future
                yield from self._futures(inner, name, has, future, depth + 1)

    def _has(self, folder: Path, name: str) -> CpuSet:
        return read_cpus(self._files.read(folder / name) or "") or EMPTY

    def _write(self, file: Path, value: CpuSet) -> str:
        if read_cpus(self._files.read(file) or "") == value:
            return ""
        number = self._files.write(file, str(value))
        return _why(file, str(value), number) if number else ""

    def _check(self, folder: Path, name: str, wanted: CpuSet) -> str:
        shown = self.cpus(folder) if name == CPUS else self.mems(folder)
        if read_cpus(shown) == wanted:
            return ""
        return f"{folder / name} says {shown!r} after {str(wanted)!r} was written"

    def _hand_down(self, folder: Path) -> str:
        """On v2: have every cgroup above hand the controller down."""
        if self._files.read(folder / CPUS) is not None:
            return ""
        for above in (self.hierarchy.root, *self._above(folder)):
            file = above / "cgroup.subtree_control"
            if "cpuset" in (self._files.read(file) or "").split():
                continue
            number = self._files.write(file, "+cpuset")
            if number:
                return _why(file, "+cpuset", number)
        return ""

    def _above(self, folder: Path) -> list[Path]:
        """The cgroups above one, the highest first; not the root, which has everything."""
        inner = folder.relative_to(self.hierarchy.root).parts[:-1]
        return [self.hierarchy.root.joinpath(*inner[: depth + 1]) for depth in range(len(inner))]

    def _cpu_folder(self, folder: Path) -> Path | None:
        cpu = self.hierarchy.cpu
        return None if cpu is None else cpu / folder.relative_to(self.hierarchy.root)


def _why(file: Path, value: str, number: int) -> str:
    return f"{file}: {value!r}: {os.strerror(number)}"
