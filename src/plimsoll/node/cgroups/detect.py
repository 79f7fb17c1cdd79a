"""What a machine has of cgroups, and which version an agent is to use.

Owns the look at the mount point: nothing is written. Version 2 is one folder that lists its controllers;
version 1 is a folder for every controller, or for several at once (`cpu,cpuacct`, with links beside it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.node.cgroups.kernel import Kernel

#: What is used if it is there, in the order it is told.
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer")
#: One of these makes a version worth having.
_NEEDED = ("cpu", "memory", "cpuset")


@dataclass(frozen=True, slots=True)
class Detected:
    """The controllers of both versions, by name; `read_only` are there, but not for us."""

    v1: Mapping[str, Path] = field(default_factory=dict)
    v2: tuple[str, ...] = ()
    v2_mount: Path | None = None
    read_only: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version to use; 0 if there is none."""
        if any(name in self.v2 for name in _NEEDED):
            return 2
        return 1 if any(name in self.v1 for name in _NEEDED) else 0

    @property
    def note(self) -> str:
        """What was found, in a line."""
        found = []
        if self.v2:
            found.append(f"cgroup v2: {' '.join(self.v2)}")
        if self.v1:
            found.append(f"cgroup v1: {' '.join(name for name in CONTROLLERS if name in self.v1)}")
        if self.read_only:
            found.append(f"not writable: {' '.join(self.read_only)}")
        return "; ".join(found) or "no cgroup controllers"


def detect(mount: Path, kernel: Kernel) -> Detected:
    """Look at what is mounted here."""
    listed = kernel.read(mount / "cgroup.controllers")
    if listed is not None:
        names = tuple(listed.split())
        if kernel.may_write(mount):
            return Detected(v2=names, v2_mount=mount)
        return Detected(v2_mount=mount, read_only=names)
    v1: dict[str, Path] = {}
    closed = []
    for name in CONTROLLERS:
        folder = _folder(mount, name, kernel)
        if folder is None:
            continue
        if kernel.may_write(folder):
            v1[name] = folder
        else:
            closed.append(name)
    return Detected(v1=v1, read_only=tuple(closed))


def _folder(mount: Path, name: str, kernel: Kernel) -> Path | None:
    """The folder of a controller, whichever others it is mounted together with."""
    joined = [entry for entry in kernel.folders(mount) if name in entry.split(",")]
    for entry in (name, *joined):
        folder = mount / entry
        if kernel.exists(folder / "cgroup.procs") and not kernel.exists(folder / "cgroup.controllers"):
            return folder.resolve()  # links and their target are one hierarchy
    return None
