"""Audit of container cpusets: compares the kernel's state with the desired state and restores it.

`CpusetObserver` reads the kernel, `Audit` compares periodically. Other software may write cpusets (a kubelet
with an active CPU manager, an operator), and runtimes ignore failures. A difference counts if it is observed
twice without a change in between. A process that restricts itself to fewer CPUs than its container has is not
a difference.
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
from plimsoll.drivers.cpu.pinning.cgroup_finder import CgroupFinder
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.cpusets import Cpusets, Files, find_hierarchy, read_online
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    DesiredCpuset,
    PinFault,
    make_drift_fault,
    read_cpus,
)

_log = logging.getLogger("plimsoll.cpu.pinning")

Expected = Mapping[str, tuple[ContainerView, DesiredCpuset]]


class AuditSubject(Protocol):
    """Enforcer whose containers are audited."""

    counters: Counters

    @property
    def pushes(self) -> bool:
        """True if running containers can be updated at any time."""
        ...

    def expected(self) -> Expected: ...
    async def reassert(self, containers: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class ObservedCpuset:
    """Cpuset in effect. `is_container`: of the container's cgroup, not only of one of its processes."""

    cpus: CpuSet
    is_container: bool
    directory: Path | None = None

    def differs(self, desired: CpuSet, online: CpuSet | None = None) -> bool:
        """Report whether something has set other CPUs; `online` are the online CPUs, None if unknown.

        The kernel removes CPUs that go offline from cpusets; the driver follows a little later.
        """
        if not self.is_container:
            return not self.cpus <= desired
        return self.cpus != desired and (online is None or self.cpus != desired & online)


class CpusetObserver:
    """Reader of container cpusets, from cgroups below `mount` or from processes below `proc`."""

    def __init__(self, mount: Path, proc: Path, files: Files | None = None) -> None:
        self._files = files or LinuxFiles()
        self._mount = mount
        self._proc = proc
        self._cpusets: Cpusets | None = None
        self._finder: CgroupFinder | None = None

    def observe(self, views: Iterable[ContainerView]) -> dict[str, ObservedCpuset]:
        """Return the cpusets that could be read."""
        desired = {view.id: view for view in views}
        found = self._read_cgroups(desired)
        for id, view in desired.items():
            if id not in found and (cpus := self._read_process(view)) is not None:
                found[id] = ObservedCpuset(cpus, is_container=False)
        return found

    def read_online(self) -> CpuSet | None:
        """Return the CPUs that are online now, None if unknown."""
        return read_online(self._files, self._mount)

    def restore(self, observed: ObservedCpuset, desired: DesiredCpuset) -> str:
        """Write the desired cpuset; return the error or ""."""
        if observed.directory is None or self._cpusets is None:
            return "its cgroup is not known"
        return self._cpusets.set(observed.directory, desired.cpus, desired.mems)

    def _read_cgroups(self, views: Mapping[str, ContainerView]) -> dict[str, ObservedCpuset]:
        if self._cpusets is None or self._finder is None:
            hierarchy = find_hierarchy(self._mount, self._files)
            if isinstance(hierarchy, str):
                return {}
            self._cpusets = Cpusets(hierarchy, self._files)
            self._finder = CgroupFinder(hierarchy.root, self._files)
        found = {}
        pods = self._finder.pods({view.pod_uid for view in views.values() if view.pod_uid})
        for directory in pods.values():
            for id, inner in self._finder.containers(directory, views).items():
                cpus = read_cpus(self._cpusets.cpus(inner)) if id in views else None
                if cpus:
                    found[id] = ObservedCpuset(cpus, is_container=True, directory=inner)
        return found

    def _read_process(self, view: ContainerView) -> CpuSet | None:
        if view.pid <= 0:
            return None
        process = self._proc / str(view.pid)
        # The process ID may have been reused.
        if view.id not in (self._files.read(process / "cgroup") or ""):
            return None
        for line in (self._files.read(process / "status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                return read_cpus(value) or None
        return None


def compare(
    expected: Expected, observations: Mapping[str, ObservedCpuset], online: CpuSet | None = None
) -> dict[str, PinFault]:
    """Return the containers whose cpuset differs from the expected one. Pure."""
    found = {}
    for id, (view, desired) in expected.items():
        observed = observations.get(id)
        if observed is not None and desired.cpus and observed.differs(desired.cpus, online):
            found[id] = make_drift_fault(view, desired.cpus, observed.cpus)
    return found


class Audit:
    """Checks containers every `interval` seconds; differences are checked again after `recheck_delay`."""

    def __init__(
        self,
        subject: AuditSubject,
        observer: CpusetObserver,
        *,
        interval: float = 30.0,
        recheck_delay: float = 0.2,
    ) -> None:
        self._subject = subject
        self._observer = observer
        self._interval = interval
        self._recheck_delay = recheck_delay
        #: Faults of the last check.
        self.faults: dict[str, PinFault] = {}
        #: Number of containers observed in the last check.
        self.seen = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.check()

    async def check(self) -> tuple[PinFault, ...]:
        """Check once and restore differing cpusets."""
        first, _, _ = await self._compare()
        if first:
            await asyncio.sleep(self._recheck_delay)
        second, observed, expected = await self._compare() if first else ({}, {}, {})
        self.faults = {id: fault for id, fault in second.items() if first.get(id) == fault}
        self._subject.counters.audits += 1
        for id, fault in self.faults.items():
            self._subject.counters.drifted += 1
            _log.warning("%s", fault)
            if not self._subject.pushes:
                # The runtime would apply it only with the next event.
                problem = await asyncio.to_thread(self._observer.restore, observed[id], expected[id][1])
                if problem:
                    _log.warning("%s: %s", fault.where, problem)
        if self.faults:
            await self._subject.reassert(self.faults)
        return tuple(self.faults.values())

    async def _compare(self) -> tuple[dict[str, PinFault], dict[str, ObservedCpuset], Expected]:
        expected = self._subject.expected()
        observed = await asyncio.to_thread(self._observer.observe, [view for view, _ in expected.values()])
        self.seen = len(observed)
        after = self._subject.expected()
        same = {id: pair for id, pair in expected.items() if id in after and after[id][1] == pair[1]}
        online = await asyncio.to_thread(self._observer.read_online)
        return compare(same, observed, online), observed, same
