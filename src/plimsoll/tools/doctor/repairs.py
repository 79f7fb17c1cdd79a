"""Repairs: changes that fix a finding.

A repair is a value. Its target is identified by device and inode, or by PID and start time, and is inspected
again before the change, so that nothing that replaced it is changed. A target that is already gone counts as
repaired.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from plimsoll.common.checkpoint import move_aside, read_boot_id
from plimsoll.errors import InputError
from plimsoll.node.cgroups import MOUNT, Cgroups, open_cgroups
from plimsoll.node.cgroups.ownership import hold_root, read_directory
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.state_dir import RunRecord, load, remove_tree
from plimsoll.tools.doctor.files import REFUSED, list_dir, probe_socket, reason, stat_entry
from plimsoll.tools.doctor.processes import Processes, find_shims, read_processes

_KILL_SECONDS = 5.0
_CHANGED = "it has changed since it was examined"


@dataclass(frozen=True, slots=True)
class RepairContext:
    """Node to repair; `cgroups` is None if it has none."""

    layout: Layout
    cgroups: Cgroups | None = None
    now: Callable[[], float] = time.time
    mount: Path = MOUNT


@dataclass(frozen=True, slots=True)
class RepairResult:
    """Result of a repair; `problem` is "" if it succeeded."""

    repair: Repair
    problem: str = ""


class Repair:
    """Change that fixes a finding; `exclusive` ones are not made while an agent uses the directory."""

    __slots__ = ()
    exclusive = True

    @property
    def what(self) -> str:
        """Description of the change."""
        raise NotImplementedError

    def run(self, context: RepairContext) -> str:
        """Make the change; return the problem, or ""."""
        raise NotImplementedError


def apply_repair(repair: Repair, context: RepairContext) -> RepairResult:
    """Make a repair; errors are part of the result."""
    try:
        return RepairResult(repair, repair.run(context))
    except FileNotFoundError:
        return RepairResult(repair)  # already removed
    except (OSError, InputError, ValueError) as error:
        return RepairResult(repair, reason(error))


# -- files


@dataclass(frozen=True, slots=True)
class RemoveFile(Repair):
    """Remove an unused file, link or pipe."""

    path: Path
    identity: tuple[int, int]

    @property
    def what(self) -> str:
        return f"remove {self.path}"

    def run(self, context: RepairContext) -> str:
        entry = stat_entry(self.path)
        if not entry.exists:
            return ""
        return self.change(context) if entry.identity == self.identity else _CHANGED

    def change(self, context: RepairContext) -> str:
        """Change the file, which was found unchanged."""
        os.unlink(self.path)
        return ""


@dataclass(frozen=True, slots=True)
class RemoveSocket(RemoveFile):
    """Remove a socket that no process serves."""

    exclusive: bool = True

    @property
    def what(self) -> str:
        return f"remove the socket {self.path}"

    def change(self, context: RepairContext) -> str:
        if stat_entry(self.path).kind != "socket" or probe_socket(self.path) != REFUSED:
            return "it is served now"
        return RemoveFile.change(self, context)


@dataclass(frozen=True, slots=True)
class RemoveDir(RemoveFile):
    """Remove a directory tree."""

    @property
    def what(self) -> str:
        return f"remove the directory {self.path}"

    def change(self, context: RepairContext) -> str:
        return remove_tree(self.path)


@dataclass(frozen=True, slots=True)
class SetMode(RemoveFile):
    """Set the mode of a file."""

    mode: int
    exclusive = False

    @property
    def what(self) -> str:
        return f"set the mode of {self.path} to {self.mode:04o}"

    def change(self, context: RepairContext) -> str:
        fd = os.open(self.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != self.identity or stat.S_ISLNK(found.st_mode):
                return _CHANGED
            os.chmod(f"/proc/self/fd/{fd}", self.mode)
        finally:
            os.close(fd)
        return ""


@dataclass(frozen=True, slots=True)
class Quarantine(RemoveFile):
    """Move an unusable file to the quarantine directory."""

    directory: Path

    @property
    def what(self) -> str:
        return f"move {self.path} to {self.directory}"

    def change(self, context: RepairContext) -> str:
        move_aside(self.path, self.directory, context.now())
        return ""


# -- processes and cgroups


@dataclass(frozen=True, slots=True)
class RemoveCgroup(Repair):
    """Remove the cgroup of a deleted pod and kill its processes."""

    uid: str
    processes: int

    @property
    def what(self) -> str:
        return f"{_describe_kill(self.processes)}remove the cgroup of pod {self.uid}"

    def run(self, context: RepairContext) -> str:
        if context.cgroups is None or self.uid not in context.cgroups.pods():
            return ""
        removed = context.cgroups.remove_pod(self.uid)
        return "" if removed else "its cgroup cannot be removed: it is not empty"


@dataclass(frozen=True, slots=True)
class EndPod(RemoveCgroup):
    """Kill the processes of an unknown pod and remove its cgroup and directory."""

    @property
    def what(self) -> str:
        return f"{_describe_kill(self.processes)}remove the directory and cgroup of pod {self.uid}"

    def run(self, context: RepairContext) -> str:
        directory = context.layout.pod(self.uid)
        processes = read_processes()
        own = [
            shim.pid
            for shim in find_shims(context.layout, processes)
            if Path(shim.spec).is_relative_to(directory)
            or Path(shim.spec).is_relative_to(directory.resolve())
        ]
        targets = processes.family(own)
        for name in list_dir(directory / "containers").entries:
            for attempt in list_dir(name.path).entries:
                run = load(attempt.path / "run.json", RunRecord)
                if isinstance(run, RunRecord) and run.boot_id == read_boot_id():
                    lead = run.pid, run.pid_start
                    alive = [p for p, s in (lead, (run.shim, run.shim_start)) if processes.is_alive(p, s)]
                    targets |= processes.family(alive, lead)
        problem = _kill(targets, processes) or RemoveCgroup.run(self, context)
        return problem or remove_tree(directory)


@dataclass(frozen=True, slots=True)
class EndShim(Repair):
    """Kill a shim whose container is gone, with its descendants."""

    pid: int
    start: int

    @property
    def what(self) -> str:
        return f"kill process {self.pid} and its descendants"

    def run(self, context: RepairContext) -> str:
        processes = read_processes()
        alive = [self.pid] if processes.is_alive(self.pid, self.start) else []
        return _kill(processes.family(alive), processes)


@dataclass(frozen=True, slots=True)
class RemoveCgroupRoot(Repair):
    """Remove the cgroup root of an agent whose directory was deleted and kill its processes."""

    name: str
    owner: str
    processes: int
    exclusive = False  # it belongs to another agent

    @property
    def what(self) -> str:
        return f"{_describe_kill(self.processes)}remove the cgroup root {self.name}"

    def run(self, context: RepairContext) -> str:
        tree = open_cgroups(self.name, mount=context.mount, owner=self.owner)
        hold = hold_root(tree.root_directories())
        if hold is None:
            return "an agent uses it"
        try:
            # Inspected again while no agent can start there.
            if not read_directory(tree.root_directories()).gone:
                return "its directory exists"
            return "" if tree.tear_down() else "it is not empty"
        finally:
            hold.release()


def _describe_kill(processes: int) -> str:
    return f"kill {processes} processes and " if processes else ""


def _kill(pids: Collection[int], processes: Processes) -> str:
    """Kill processes and wait until they are gone; return the problem, or ""."""
    left = [processes.by_pid[pid] for pid in pids if pid != os.getpid()]
    for each in left:
        shims.send(each.pid, each.start, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    while left:
        for each in left:
            shims.collect(each.pid)
        now = read_processes()
        left = [each for each in left if now.is_alive(each.pid, each.start)]
        if left and time.monotonic() > deadline:
            return f"process {left[0].pid} does not end"
        if left:
            time.sleep(0.02)
    return ""
