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
        self._directories = [place / name for place in first or second[:1]]
        #: Beside those of version 1 runtimes make them there, too.
        self._others = [place / name for place in second] if first else []

    def make(self) -> str:
        """Return why it cannot be made, or an empty string."""
        if not self._directories:
            return "no cgroups are mounted"
        try:
            for directory in self._directories:
                self._make_one(directory)
        except OSError as error:
            self.remove()
            return f"cgroups cannot be made: {error}"
        return ""

    @staticmethod
    def _make_one(directory: Path) -> None:
        if (directory.parent / "cgroup.subtree_control").exists():
            enable = " ".join(f"+{name}" for name in _CONTROLLERS)
            (directory.parent / "cgroup.subtree_control").write_text(enable)
            directory.mkdir()
            (directory / "cgroup.subtree_control").write_text(enable)
            return
        directory.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (directory / name).exists():
                (directory / name).write_text((directory.parent / name).read_text())

    def processes(self) -> dict[int, str]:
        """Return who is in it, and in which of its cgroups: `/kubepods/...`."""
        found = {}
        for root in self._directories:
            for directory, _, _ in os.walk(root):
                with suppress(OSError):
                    for line in (Path(directory) / "cgroup.procs").read_text().split():
                        found[int(line)] = directory.removeprefix(str(root))
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
        for root in (*self._directories, *self._others):
            while root.exists():
                for directory, _, _ in os.walk(root, topdown=False):
                    with suppress(OSError):
                        Path(directory).rmdir()
                assert time.monotonic() < deadline, f"{root} cannot be removed"
                time.sleep(0.01)
