"""Detection of the machine's cgroup versions and controllers.

Reads the mount point; nothing is written. Version 2 is one directory that lists its controllers; version 1 is
a directory for every controller, or for several at once (`cpu,cpuacct`, with symbolic links to it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.node.cgroups.kernel import CgroupKernel

#: Controllers used if available, in report order.
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer")
#: A version is useful if it has one of these controllers.
_NEEDED = ("cpu", "memory", "cpuset")


@dataclass(frozen=True, slots=True)
class DetectedCgroups:
    """Controllers of both versions, by name; `read_only` are present but not writable."""

    v1: Mapping[str, Path] = field(default_factory=dict)
    v2: tuple[str, ...] = ()
    v2_mount: Path | None = None
    read_only: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """Version to use; 0 if there is none."""
        if any(name in self.v2 for name in _NEEDED):
            return 2
        return 1 if any(name in self.v1 for name in _NEEDED) else 0

    @property
    def note(self) -> str:
        """Summary of the detection, in one line."""
        found = []
        if self.v2:
            found.append(f"cgroup v2: {' '.join(self.v2)}")
        if self.v1:
            found.append(f"cgroup v1: {' '.join(name for name in CONTROLLERS if name in self.v1)}")
        if self.read_only:
            found.append(f"not writable: {' '.join(self.read_only)}")
        return "; ".join(found) or "no cgroup controllers"


def detect(mount: Path, kernel: CgroupKernel) -> DetectedCgroups:
    """Detect the cgroups mounted here."""
    listed = kernel.read(mount / "cgroup.controllers")
    if listed is not None:
        names = tuple(listed.split())
        if kernel.may_write(mount):
            return DetectedCgroups(v2=names, v2_mount=mount)
        return DetectedCgroups(v2_mount=mount, read_only=names)
    v1: dict[str, Path] = {}
    closed = []
    for name in CONTROLLERS:
        directory = _directory(mount, name, kernel)
        if directory is None:
            continue
        if kernel.may_write(directory):
            v1[name] = directory
        else:
            closed.append(name)
    return DetectedCgroups(v1=v1, read_only=tuple(closed))


def _directory(mount: Path, name: str, kernel: CgroupKernel) -> Path | None:
    """Return the directory of a controller, even if it is mounted together with others."""
    joined = [entry for entry in kernel.subdirectories(mount) if name in entry.split(",")]
    for entry in (name, *joined):
        directory = mount / entry
        if kernel.exists(directory / "cgroup.procs") and not kernel.exists(directory / "cgroup.controllers"):
            return directory.resolve()  # a symbolic link and its target are one hierarchy
    return None
