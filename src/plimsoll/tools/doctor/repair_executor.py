"""`RepairExecutor`: executes repairs.

Each repair inspects its target again: it must still be present and unchanged. Nothing is raised; a target
that is already gone counts as done, so repairs are idempotent.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from plimsoll.common.checkpoint import read_boot_id
from plimsoll.errors import InputError
from plimsoll.node.cgroups import MOUNT, Cgroups, open_cgroups
from plimsoll.node.cgroups.ownership import hold_root, read_directory
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.state_dir import RunRecord, load, remove_tree
from plimsoll.tools.doctor.files import list_dir, reason, stat_entry
from plimsoll.tools.doctor.processes import Processes, find_shims, read_processes
from plimsoll.tools.doctor.repairs import (
    EndPod,
    EndShim,
    Identity,
    Quarantine,
    RemoveCgroup,
    RemoveCgroupRoot,
    RemoveDir,
    RemoveSocket,
    Repair,
    SetMode,
)
from plimsoll.tools.doctor.sockets import REFUSED, probe

_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class RepairResult:
    """Result of a repair; `problem` is "" if it succeeded."""

    repair: Repair
    problem: str = ""


class RepairExecutor:
    """Executes the repairs of one node. `cgroups` is None if the node has none."""

    def __init__(
        self,
        layout: Layout,
        cgroups: Cgroups | None = None,
        now: Callable[[], float] = time.time,
        mount: Path = MOUNT,
    ) -> None:
        self._layout = layout
        self._cgroups = cgroups
        self._now = now
        self._mount = mount

    def apply(self, repair: Repair) -> RepairResult:
        try:
            return RepairResult(repair, self._apply(repair))
        except FileNotFoundError:
            return RepairResult(repair)  # already removed
        except (OSError, InputError, ValueError) as error:
            return RepairResult(repair, reason(error))

    def _apply(self, repair: Repair) -> str:
        if isinstance(repair, EndPod):
            return self._end_pod(repair.uid)
        if isinstance(repair, RemoveCgroup):
            return self._remove_cgroup(repair.uid)
        if isinstance(repair, RemoveCgroupRoot):
            return self._remove_root(repair.name, repair.owner)
        if isinstance(repair, EndShim):
            processes = read_processes()
            alive = [repair.pid] if processes.is_there(repair.pid, repair.start) else []
            return _end(processes.family(alive), processes)
        entry = stat_entry(repair.path)
        if not entry.exists:
            return ""
        if entry.identity != repair.identity:
            return "it has changed since it was examined"
        if isinstance(repair, SetMode):
            return _set_mode(repair.path, repair.identity, repair.mode)
        if isinstance(repair, Quarantine):
            return self._set_aside(repair.path, repair.directory)
        if isinstance(repair, RemoveDir):
            return remove_tree(repair.path)
        if isinstance(repair, RemoveSocket) and (entry.kind != "socket" or probe(repair.path) != REFUSED):
            return "it is served now"
        os.unlink(repair.path)
        return ""

    def _set_aside(self, path: Path, directory: Path) -> str:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now()))
        place, number = directory / f"{path.name}.{stamp}", 1
        while os.path.lexists(place):
            number += 1
            place = directory / f"{path.name}.{stamp}.{number}"
        os.rename(path, place)
        return ""

    def _end_pod(self, uid: str) -> str:
        directory = self._layout.pod(uid)
        processes = read_processes()
        own = [
            shim.pid
            for shim in find_shims(self._layout, processes)
            if Path(shim.spec).is_relative_to(directory)
            or Path(shim.spec).is_relative_to(directory.resolve())
        ]
        targets = processes.family(own)
        for name in list_dir(directory / "containers").entries:
            for attempt in list_dir(name.path).entries:
                run = load(attempt.path / "run.json", RunRecord)
                if isinstance(run, RunRecord) and run.boot_id == read_boot_id():
                    lead = run.pid, run.pid_start
                    alive = [p for p, s in (lead, (run.shim, run.shim_start)) if processes.is_there(p, s)]
                    targets |= processes.family(alive, lead)
        problem = _end(targets, processes) or self._remove_cgroup(uid)
        return problem or remove_tree(directory)

    def _remove_cgroup(self, uid: str) -> str:
        if self._cgroups is None or uid not in self._cgroups.pods():
            return ""
        return "" if self._cgroups.remove_pod(uid) else "its cgroup cannot be removed: it is not empty"

    def _remove_root(self, name: str, owner: str) -> str:
        tree = open_cgroups(name, mount=self._mount, owner=owner)
        hold = hold_root(tree.root_directories())
        if hold is None:
            return "an agent uses it"
        try:
            # Inspected while no agent can start there.
            if not read_directory(tree.root_directories()).gone:
                return "its directory exists"
            return "" if tree.tear_down() else "it is not empty"
        finally:
            hold.release()


def _end(pids: Collection[int], processes: Processes) -> str:
    """Kill processes and wait until they are gone."""
    left = [processes.by_pid[pid] for pid in pids if pid != os.getpid()]
    for each in left:
        shims.send(each.pid, each.start, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE
    while left:
        for each in left:
            shims.collect(each.pid)
        now = read_processes()
        left = [each for each in left if now.is_there(each.pid, each.start)]
        if left and time.monotonic() > deadline:
            return f"process {left[0].pid} does not end"
        if left:
            time.sleep(0.02)
    return ""


def _set_mode(path: Path, identity: Identity, mode: int) -> str:
    """Change the mode of exactly this file."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != identity or stat.S_ISLNK(found.st_mode):
            return "it has changed since it was examined"
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)
    return ""
