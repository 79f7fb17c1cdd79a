"""A cgroup of a test's own in every hierarchy of the machine, for a kubelet that is one of several."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.waiting import DEADLINE

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def hierarchies() -> tuple[list[Path], list[Path]]:
    """Return where cgroups are mounted: those of version 1, and of version 2."""
    first, second = [], []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup":
            first.append(Path(place))
        elif kind == "cgroup2":
            second.append(Path(place))
    return first, second


class CgroupRoot:
    """`make` it, give its `path` to a kubelet, `remove` it with all that is in it. Its name is its own."""

    def __init__(self, name: str) -> None:
        self.path = f"/{name}"
        first, second = hierarchies()
        self._folders = [place / name for place in first or second[:1]]
        #: Beside those of version 1 runtimes make them there, too.
        self._others = [place / name for place in second] if first else []

    def make(self) -> str:
        """Return why it cannot be made, or an empty string."""
        if not self._folders:
            return "no cgroups are mounted"
        try:
            for folder in self._folders:
                self._make_one(folder)
        except OSError as error:
            self.remove()
            return f"cgroups cannot be made: {error}"
        return ""

    @staticmethod
    def _make_one(folder: Path) -> None:
        if (folder.parent / "cgroup.subtree_control").exists():
            enable = " ".join(f"+{name}" for name in _CONTROLLERS)
            (folder.parent / "cgroup.subtree_control").write_text(enable)
            folder.mkdir()
            (folder / "cgroup.subtree_control").write_text(enable)
            return
        folder.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists():
                (folder / name).write_text((folder.parent / name).read_text())

    def processes(self) -> dict[int, str]:
        """Return who is in it, and in which of its cgroups: `/kubepods/...`."""
        found = {}
        for root in self._folders:
            for folder, _, _ in os.walk(root):
                with suppress(OSError):
                    for line in (Path(folder) / "cgroup.procs").read_text().split():
                        found[int(line)] = folder.removeprefix(str(root))
        return found

    def remove(self) -> None:
        """End all processes in it, and take it away."""
        deadline = time.monotonic() + DEADLINE
        while processes := self.processes():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            assert time.monotonic() < deadline, f"processes do not end: {processes}"
            time.sleep(0.05)
        for root in (*self._folders, *self._others):
            while root.exists():
                for folder, _, _ in os.walk(root, topdown=False):
                    with suppress(OSError):
                        Path(folder).rmdir()
                assert time.monotonic() < deadline, f"{root} cannot be removed"
                time.sleep(0.01)
