"""Cgroup of a test in every hierarchy of the machine, for a kubelet that is one of several."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def hierarchies() -> tuple[list[Path], list[Path]]:
    """Return the mount points of cgroups: version 1, and version 2."""
    first, second = [], []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup":
            first.append(Path(place))
        elif kind == "cgroup2":
            second.append(Path(place))
    return first, second


class CgroupRoot:
    """Cgroup with a unique name: `make` it, pass its `path` to a kubelet, `remove` it with its contents."""

    def __init__(self, name: str) -> None:
        self.path = f"/{name}"
        first, second = hierarchies()
        self._directories = [place / name for place in first or second[:1]]
        #: Beside those of version 1 runtimes make them there, too.
        self._others = [place / name for place in second] if first else []

    def make(self) -> str:
        """Return why it cannot be created, or an empty string."""
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
        """Return the processes and their cgroups: `/kubepods/...`."""
        found = {}
        for root in self._directories:
            for directory, _, _ in os.walk(root):
                with suppress(OSError):
                    for line in (Path(directory) / "cgroup.procs").read_text().split():
                        found[int(line)] = directory.removeprefix(str(root))
        return found

    def remove(self) -> None:
        """Kill all processes in it and remove it."""

        def kill() -> dict[int, str]:
            processes = self.processes()
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return processes

        def remaining() -> list[Path]:
            roots = [root for root in (*self._directories, *self._others) if root.exists()]
            for root in roots:
                for directory, _, _ in os.walk(root, topdown=False):
                    with suppress(OSError):
                        Path(directory).rmdir()
            return roots

        wait_until(kill, lambda found: not found, context="processes that do not end")
        wait_until(remaining, lambda found: not found, context="cgroups that cannot be removed")


class SliceRoot(CgroupRoot):
    """Slice of systemd on cgroup v2, which the node's agent creates."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._slice = f"{name.replace('-', '_')}.slice"
        self._directories = [place / self._slice for place in hierarchies()[1][:1]]
        self._others = []

    def make(self) -> str:
        """Return why the machine has no slices, or an empty string; nothing is created."""
        first, second = hierarchies()
        if first or not second:
            return "systemd's slices need cgroup v2 only"
        return "" if Path("/run/systemd/system").is_dir() else "systemd does not run here"

    def remove(self) -> None:
        """Stop the slice with everything in it."""
        subprocess.run(["systemctl", "stop", self._slice], capture_output=True, check=False)
        wait_until(lambda: not any(root.exists() for root in self._directories), context=self.processes)
