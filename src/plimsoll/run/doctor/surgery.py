"""Doing what repairs say.

Owns `Surgery`. Each repair looks again before it acts: what was found must still be there, the same and as it
was. Promises: nothing is raised; what is gone already counts as done, so that a repair can be repeated.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plimsoll.errors import InputError
from plimsoll.node.cgroups import Cgroups
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.folder import Run, folders_in, load, remove_tree
from plimsoll.run.doctor.files import look_at, reason
from plimsoll.run.doctor.pods import find_shims
from plimsoll.run.doctor.repairs import (
    EndPod,
    EndShim,
    Identity,
    RemoveCgroup,
    RemoveFolder,
    RemoveSocket,
    Repair,
    SetAside,
    SetMode,
)
from plimsoll.run.doctor.sockets import REFUSED, probe

_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of a repair; `problem` is empty if it is done."""

    repair: Repair
    problem: str = ""


class Surgery:
    """Repairs of one node. `cgroups` is None where the node has none."""

    def __init__(
        self, layout: Layout, cgroups: Cgroups | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._layout = layout
        self._cgroups = cgroups
        self._now = now

    def apply(self, repair: Repair) -> Outcome:
        try:
            return Outcome(repair, self._apply(repair))
        except FileNotFoundError:
            return Outcome(repair)  # somebody was quicker
        except (OSError, InputError, ValueError) as error:
            return Outcome(repair, reason(error))

    def _apply(self, repair: Repair) -> str:
        if isinstance(repair, EndPod):
            return self._end_pod(repair.uid)
        if isinstance(repair, RemoveCgroup):
            return self._remove_cgroup(repair.uid)
        if isinstance(repair, EndShim):
            return _end([(repair.pid, repair.start)])
        entry = look_at(repair.path)
        if not entry.exists:
            return ""
        if entry.identity != repair.identity:
            return "it has changed since it was looked at"
        if isinstance(repair, SetMode):
            return _set_mode(repair.path, repair.identity, repair.mode)
        if isinstance(repair, SetAside):
            return self._set_aside(repair.path, repair.folder)
        if isinstance(repair, RemoveFolder):
            return remove_tree(repair.path)
        if isinstance(repair, RemoveSocket) and (entry.kind != "socket" or probe(repair.path) != REFUSED):
            return "somebody serves it now"
        os.unlink(repair.path)
        return ""

    def _set_aside(self, path: Path, folder: Path) -> str:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now()))
        place, number = folder / f"{path.name}.{stamp}", 1
        while os.path.lexists(place):
            number += 1
            place = folder / f"{path.name}.{stamp}.{number}"
        os.rename(path, place)
        return ""

    def _end_pod(self, uid: str) -> str:
        folder = self._layout.pod(uid)
        own = [
            (shim.pid, shim.start)
            for shim in find_shims(self._layout)
            if Path(shim.spec).is_relative_to(folder)
        ]
        for name in folders_in(folder / "containers"):
            for attempt in folders_in(name):
                run = load(attempt / "run.json", Run)
                if isinstance(run, Run) and run.boot_id == shims.boot_id():
                    own += [(run.pid, run.pid_start), (run.shim, run.shim_start)]
                    shims.kill_session(run.pid, run.pid_start)
        problem = _end(own) or self._remove_cgroup(uid)
        return problem or remove_tree(folder)

    def _remove_cgroup(self, uid: str) -> str:
        if self._cgroups is None or uid not in self._cgroups.pods():
            return ""
        return "" if self._cgroups.remove_pod(uid) else "its cgroup cannot be removed: something stays inside"


def _end(processes: list[tuple[int, int]]) -> str:
    """Kill processes with all that they have started, and wait until they are gone."""
    targets: dict[int, int] = {}
    for pid, start in processes:
        if shims.start_time(pid) == start:
            for each in shims.descendants(pid):
                began = shims.start_time(each)
                if began is not None and each != os.getpid():
                    targets[each] = began
    for pid, start in targets.items():
        shims.send(pid, start, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE
    left = list(targets.items())
    while left:
        left = [(pid, start) for pid, start in left if _runs(pid, start)]
        if left and time.monotonic() > deadline:
            return f"process {left[0][0]} does not end"
        if left:
            time.sleep(0.01)
    return ""


def _runs(pid: int, start: int) -> bool:
    shims.collect(pid)
    fd = shims.open_process(pid, start)
    if fd is None:
        return False
    os.close(fd)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        return False


def _set_mode(path: Path, identity: Identity, mode: int) -> str:
    """Change the mode of just this file, whatever it is."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != identity or stat.S_ISLNK(found.st_mode):
            return "it has changed since it was looked at"
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)
    return ""
