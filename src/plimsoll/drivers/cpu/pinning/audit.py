"""Whether containers have what they were given: what the kernel says, beside what the runtime was told.

Owns `Sights`, which looks, and `Audit`, which looks every while, tells of differences and has them set right.
Something else may write cpusets (a kubelet whose CPU manager is on, an operator by hand), and runtimes pass
over failures. A difference counts if it is seen twice while nothing was changed in between. A process that
keeps itself to fewer CPUs than its container has is no difference.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.cgroupfs import LinuxFiles
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.cpusets import Cpusets, Files, find_hierarchy
from plimsoll.drivers.cpu.pinning.folders import Folders
from plimsoll.drivers.cpu.pinning.plan import ContainerView, PinFault, Wanted, drift, read_cpus

_log = logging.getLogger("plimsoll.cpu.pinning")

Expected = Mapping[str, tuple[ContainerView, Wanted]]


class Audited(Protocol):
    """Who gives containers their CPUs."""

    counters: Counters

    @property
    def pushes(self) -> bool:
        """Whether it can give them again at any time."""
        ...

    def expected(self) -> Expected: ...
    async def reassert(self, containers: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """What the kernel lets a container run on. `whole`: the container, not just a process of it."""

    cpus: CpuSet
    whole: bool
    folder: Path | None = None

    def differs(self, wanted: CpuSet) -> bool:
        return self.cpus != wanted if self.whole else not self.cpus <= wanted


class Sights:
    """Looks at containers, by their cgroups below `mount` or else by their processes below `proc`."""

    def __init__(self, mount: Path, proc: Path, files: Files | None = None) -> None:
        self._files = files or LinuxFiles()
        self._mount = mount
        self._proc = proc
        self._cpusets: Cpusets | None = None
        self._folders: Folders | None = None

    def look(self, views: Iterable[ContainerView]) -> dict[str, Sight]:
        """What can be seen."""
        wanted = {view.id: view for view in views}
        found = self._by_folder(wanted)
        for id, view in wanted.items():
            if id not in found and (cpus := self._by_process(view)) is not None:
                found[id] = Sight(cpus, whole=False)
        return found

    def restore(self, sight: Sight, wanted: Wanted) -> str:
        """Write what is wanted; why that is not done."""
        if sight.folder is None or self._cpusets is None:
            return "its cgroup is not known"
        return self._cpusets.set(sight.folder, wanted.cpus, wanted.mems)

    def _by_folder(self, views: Mapping[str, ContainerView]) -> dict[str, Sight]:
        if self._cpusets is None or self._folders is None:
            hierarchy = find_hierarchy(self._mount, self._files)
            if isinstance(hierarchy, str):
                return {}
            self._cpusets = Cpusets(hierarchy, self._files)
            self._folders = Folders(hierarchy.root, self._files)
        found = {}
        pods = self._folders.pods({view.pod_uid for view in views.values() if view.pod_uid})
        for folder in pods.values():
            for id, inner in self._folders.containers(folder, views).items():
                cpus = read_cpus(self._cpusets.cpus(inner)) if id in views else None
                if cpus:
                    found[id] = Sight(cpus, whole=True, folder=inner)
        return found

    def _by_process(self, view: ContainerView) -> CpuSet | None:
        if view.pid <= 0:
            return None
        place = self._proc / str(view.pid)
        # The process may be gone, and another have its number.
        if view.id not in (self._files.read(place / "cgroup") or ""):
            return None
        for line in (self._files.read(place / "status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                return read_cpus(value) or None
        return None


def compare(expected: Expected, sights: Mapping[str, Sight]) -> dict[str, PinFault]:
    """Containers that have something else than is expected. Pure."""
    found = {}
    for id, (view, wanted) in expected.items():
        sight = sights.get(id)
        if sight is not None and wanted.cpus and sight.differs(wanted.cpus):
            found[id] = drift(view, wanted.cpus, sight.cpus)
    return found


class Audit:
    """Looks `every` so many seconds; differences are looked at once more after `again`."""

    def __init__(self, subject: Audited, sights: Sights, *, every: float = 30.0, again: float = 0.2) -> None:
        self._subject = subject
        self._sights = sights
        self._every = every
        self._again = again
        #: What differed when it was last looked at.
        self.faults: dict[str, PinFault] = {}
        #: How many containers could be seen then.
        self.seen = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.look()

    async def look(self) -> tuple[PinFault, ...]:
        """Look once, and have differences set right."""
        first, _, _ = await self._compare()
        if first:
            await asyncio.sleep(self._again)
        second, sights, expected = await self._compare() if first else ({}, {}, {})
        self.faults = {id: fault for id, fault in second.items() if first.get(id) == fault}
        self._subject.counters.audits += 1
        for id, fault in self.faults.items():
            self._subject.counters.drifted += 1
            _log.warning("%s", fault)
            if not self._subject.pushes:
                # The runtime would do it with the next event, whenever that is.
                problem = await asyncio.to_thread(self._sights.restore, sights[id], expected[id][1])
                if problem:
                    _log.warning("%s: %s", fault.where, problem)
        if self.faults:
            await self._subject.reassert(self.faults)
        return tuple(self.faults.values())

    async def _compare(self) -> tuple[dict[str, PinFault], dict[str, Sight], Expected]:
        expected = self._subject.expected()
        sights = await asyncio.to_thread(self._sights.look, [view for view, _ in expected.values()])
        self.seen = len(sights)
        after = self._subject.expected()
        same = {id: pair for id, pair in expected.items() if id in after and after[id][1] == pair[1]}
        return compare(same, sights), sights, same
