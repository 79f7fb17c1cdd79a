"""Observation of containers and their CPUs, from the runtime's files and the kernel, bypassing driver and
agent.

`look` finds the containers that run. `CpusetWatcher` looks all the time, and notes whatever must not be at
any moment: a CPU in containers of two claims, a container of a claim on other CPUs than its own. How long
containers without a claim stay on claimed CPUs is measured; when all have settled, there must be none.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from plimsoll.node.runtime.state_dir import subdirectories

_ENV = "DRA_CPUSET_"
_ALLOWED = re.compile(r"(?m)^Cpus_allowed_list:\s*(\S+)")


@dataclass(frozen=True)
class ObservedContainer:
    """A running container: its process (PID and start time), its assigned CPUs, and its effective cpuset."""

    pod: str
    name: str
    pid: int
    start: int
    assigned: tuple[tuple[str, CpuSet], ...]
    cpus: CpuSet

    @property
    def own(self) -> CpuSet:
        return _union(cpus for _, cpus in self.assigned)

    @property
    def claims(self) -> frozenset[str]:
        return frozenset(uid for uid, _ in self.assigned)

    def __str__(self) -> str:
        assigned = ", ".join(f"{uid}: {cpus}" for uid, cpus in self.assigned) or "shared"
        return f"{self.pod}/{self.name} (process {self.pid}; {assigned}) on CPUs {self.cpus}"


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    found = CpuSet()
    for cpus in sets:
        found |= cpus
    return found


def look(root: Path, *, real: bool, every: CpuSet) -> list[ObservedContainer]:
    """Return the running containers below an agent's directory; `every` are the CPUs of unpinned ones."""
    found = []
    for pod in subdirectories(root / "pods"):
        for name in subdirectories(pod / "containers"):
            for attempt in subdirectories(name):
                box = read(attempt, real=real, every=every)
                if box is not None:
                    found.append(box)
    return found


def read(directory: Path, *, real: bool, every: CpuSet) -> ObservedContainer | None:
    """Return the container of a directory, if it runs."""
    try:
        run, state = (json.loads((directory / f"{name}.json").read_bytes()) for name in ("run", "state"))
        pid, start = int(run["pid"]), int(run["pid_start"])
        cpus = CpuSet.parse(state["resources"].get("cpus") or "") or every
        if real:
            allowed = _ALLOWED.search(Path(f"/proc/{pid}/status").read_text())
            assert allowed is not None
            cpus = CpuSet.parse(allowed[1])
    except (OSError, ValueError):
        return None
    if (directory / "exit.json").exists() or not is_alive(pid, start):
        return None
    env = state["spec"]["env"]
    assigned = [
        (key.removeprefix(_ENV), CpuSet.parse(env[key])) for key in sorted(env) if key.startswith(_ENV)
    ]
    return ObservedContainer(state["spec"]["pod"], state["spec"]["name"], pid, start, tuple(assigned), cpus)


def is_alive(pid: int, start: int) -> bool:
    """Return whether this very process runs and is not a zombie."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] not in "ZX" and int(fields[19]) == start
    return False


def find_wrongs(boxes: Iterable[ObservedContainer]) -> list[tuple[ObservedContainer, ...]]:
    """Return violations by single containers or pairs."""
    claimed = [box for box in boxes if box.assigned]
    wrongs: list[tuple[ObservedContainer, ...]] = [(box,) for box in claimed if box.cpus != box.own]
    for place, one in enumerate(claimed):
        for other in claimed[place + 1 :]:
            if not one.claims & other.claims and (one.cpus | one.own) & (other.cpus | other.own):
                wrongs.append((one, other))
    return wrongs


class CpusetWatcher:
    """Thread that checks containers continuously."""

    def __init__(self, root: Path, *, real: bool, every: CpuSet) -> None:
        self._root, self._real, self._every = root, real, every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._crowds: dict[tuple[int, str], float] = {}
        self.wrongs: dict[str, None] = {}
        self.looks = 0
        #: The longest time a container without a claim was on CPUs of one that ran, in seconds.
        self.longest_crowd = 0.0
        self.error = ""

    def look(self) -> list[ObservedContainer]:
        return look(self._root, real=self._real, every=self._every)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.wait(0.03):
                self.judge(self.look())
                self.looks += 1
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def judge(self, boxes: list[ObservedContainer]) -> None:
        """Note the violations of one look."""
        for group in find_wrongs(boxes):
            # Files are read one after the other: it counts if it is so twice.
            if {box.pid for box in group} <= {box.pid for box in self.look() if box in group}:
                self.wrongs[" and ".join(map(str, group))] = None
        now = time.monotonic()
        crowds = {
            (box.pid, uid)
            for box in boxes
            for other in boxes
            for uid, cpus in other.assigned
            if not box.assigned and box.cpus & cpus
        }
        self._crowds = {key: self._crowds.get(key, now) for key in crowds}
        self.longest_crowd = max([self.longest_crowd, *(now - since for since in self._crowds.values())])
