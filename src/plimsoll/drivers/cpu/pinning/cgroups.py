"""Pinning by writing cpusets, where there is no NRI.

Owns `CgroupEnforcer`: it learns of containers from the pods of its node and from their cgroups, sets the CPUs
of every container, and does so again when something else has set others. Promises: shared containers leave
CPUs before a container gets them for itself; no empty set is ever written; what cannot be set is a fault and
tried again. A container runs for a moment before it is pinned: only NRI knows of it before it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll.api.core import Pod
from plimsoll.common.cgroupfs import LinuxFiles
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.cpu.pinning.container_table import agrees
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.cpusets import Cpusets, Files, find_hierarchy
from plimsoll.drivers.cpu.pinning.folders import Folders
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    Holdings,
    PinFault,
    Scene,
    Verdict,
    Wanted,
    drift,
    judge,
    read_cpus,
    read_env,
    refuse,
    take_scene,
)
from plimsoll.drivers.cpu.pinning.pods import PodSource, Seat, seat
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.protocols.ttrpc import end_tasks

_log = logging.getLogger("plimsoll.cpu.pinning")


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """A container and its cgroup."""

    view: ContainerView
    folder: Path
    pod: Path
    known: bool = True


class CgroupEnforcer:
    """Gives containers their CPUs by writing cpusets below `mount`; looks at all of them `every` second."""

    def __init__(
        self,
        book: Holdings,
        topology: Callable[[], Topology],
        settings: CpuSettings,
        pods: PodSource,
        mount: Path | None = None,
        *,
        files: Files | None = None,
        every: float = 1.0,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.counters = Counters()
        #: Nothing is found out here that the book does not know itself.
        self.findings: tuple[Finding, ...] = ()
        self.link_error = "not started yet"
        self._book = book
        self._topology = topology
        self._settings = settings
        self._pods = pods
        self._mount = mount or settings.host_root / "sys/fs/cgroup"
        self._proc = settings.host_root / "proc"
        self._files = files or LinuxFiles()
        self._every = every
        self._cpusets: Cpusets | None = None
        self._folders: Folders | None = None
        self._cgroups: dict[str, ContainerCgroup] = {}
        self._faults: dict[str, PinFault] = {}
        #: What was set, to tell a change by others from one that is due.
        self._set: dict[str, Wanted] = {}
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- coming and going

    async def start(self) -> None:
        if self._tasks:
            return
        self._pods.on_change = self._wake.set
        await self._pods.start()
        self._tasks = [asyncio.create_task(self._follow(), name="cpusets")]

    async def stop(self) -> None:
        """Leave; containers stay as they are."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks)
        await self._pods.stop()
        self.link_error = "stopped"

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            await self._sweep()
            try:
                async with asyncio.timeout(self._every):
                    await self._wake.wait()
            except TimeoutError:
                pass

    # -- state

    @property
    def linked(self) -> bool:
        """Whether cpusets can be written and the pods of this node are known."""
        return not self.link_error

    @property
    def runtime(self) -> str:
        """Through what containers are reached, for people."""
        return f"cgroup v{self._cpusets.hierarchy.version} at {self._mount}" if self._cpusets else ""

    @property
    def shared_in_use(self) -> bool:
        """Whether containers run on the shared pool; pause containers do not count."""
        return any(cgroup.known and cgroup.view.shared for cgroup in self._cgroups.values())

    def containers(self) -> tuple[ContainerView, ...]:
        return tuple(cgroup.view for cgroup in self._cgroups.values())

    def faults(self) -> tuple[PinFault, ...]:
        return tuple(self._faults.values())

    # -- changing

    async def apply(self) -> tuple[PinFault, ...]:
        """Holdings, pool or topology changed: bring running containers in line now."""
        await self._sweep()
        return self.faults()

    async def _sweep(self) -> None:
        async with self._turn:
            before = (self.link_error, self._faults)
            if self._pods.error:
                self.link_error = self._pods.error
            else:
                scene = self._scene()
                seats = [seat(pod, scene.holdings) for pod in self._pods.pods() if _alive(pod)]
                self.link_error = await asyncio.to_thread(self._bring_in_line, seats, scene)
            if (self.link_error, self._faults) != before:
                for fault in self.faults():
                    if fault not in before[1].values():
                        _log.warning("%s", fault)
                self.on_change()

    def _bring_in_line(self, seats: Iterable[Seat], scene: Scene) -> str:
        """Look, decide and write; why that is not possible at all."""
        if self._cpusets is None or self._folders is None:
            hierarchy = find_hierarchy(self._mount, self._files)
            if isinstance(hierarchy, str):
                return hierarchy
            self._cpusets = Cpusets(hierarchy, self._files)
            self._folders = Folders(hierarchy.root, self._files)
        cgroups = self._look(seats, scene, self._cpusets, self._folders)
        owners: dict[str, str] = {}
        for cgroup in cgroups.values():
            for uid in cgroup.view.claims:
                owners.setdefault(uid, cgroup.view.pod_uid)
        scene = replace(scene, owners=owners)
        verdicts = {id: judge(cgroup.view, scene) for id, cgroup in cgroups.items()}
        faults = {id: verdict.fault for id, verdict in verdicts.items() if verdict.fault is not None}
        faults |= self._drifts(cgroups, verdicts)
        for id in sorted(cgroups, key=lambda id: _gains(cgroups[id].view, verdicts[id])):
            cgroup, wish = cgroups[id], verdicts[id].wanted
            if wish is None or not wish.cpus:
                continue
            problem = self._write(cgroup, wish, self._cpusets)
            if problem:
                self.counters.failed += 1
                self._set.pop(id, None)
                faults[id] = refuse(cgroup.view, wish.cpus, problem)
            else:
                self._set[id] = wish
        self._lift_pods(cgroups, verdicts, self._cpusets)
        self._set = {id: wish for id, wish in self._set.items() if id in cgroups}
        self._cgroups = {id: self._again(cgroup, self._cpusets) for id, cgroup in cgroups.items()}
        self._faults = faults
        return ""

    def _look(
        self, seats: Iterable[Seat], scene: Scene, cpusets: Cpusets, folders: Folders
    ) -> dict[str, ContainerCgroup]:
        """All containers of these pods that have a cgroup, with what they have now."""
        nameless = frozenset(uid for uid, holding in scene.holdings.items() if not holding.ref.name)
        by_uid = {one.cgroup: one for one in seats}
        cgroups = {}
        for uid, pod in folders.pods(by_uid).items():
            one = by_uid[uid]
            for id, folder in folders.containers(pod, one.containers).items():
                view = one.containers.get(id)
                cgroup = ContainerCgroup(view or one.stranger(id), folder, pod, view is not None)
                if nameless and one.claims and cgroup.known:
                    cgroup = replace(cgroup, view=self._ask_process(cgroup, nameless))
                cgroups[id] = self._again(cgroup, cpusets)
        return cgroups

    def _ask_process(self, cgroup: ContainerCgroup, nameless: frozenset[str]) -> ContainerView:
        """Claims that are known by their UID alone (adopted from CDI files): whether a process was told."""
        pid = (self._files.read(cgroup.folder / "cgroup.procs") or "").partition("\n")[0]
        text = self._files.read(self._proc / pid / "environ") if pid.isdecimal() else None
        told = read_env((text or "").split("\0"))
        if isinstance(told, PinFault):
            return cgroup.view
        more = {uid: cpus for uid, cpus in told.claims.items() if uid in nameless}
        return replace(cgroup.view, claims={**cgroup.view.claims, **more})

    def _again(self, cgroup: ContainerCgroup, cpusets: Cpusets) -> ContainerCgroup:
        view = replace(
            cgroup.view,
            cpus=cpusets.cpus(cgroup.folder),
            mems=cpusets.mems(cgroup.folder),
            quota=cpusets.quota(cgroup.folder),
        )
        return replace(cgroup, view=view)

    def _drifts(
        self, cgroups: Mapping[str, ContainerCgroup], verdicts: Mapping[str, Verdict]
    ) -> dict[str, PinFault]:
        """Containers that had what they should, and have something else now."""
        found = {}
        for id, cgroup in cgroups.items():
            wish = self._set.get(id)
            if wish is None or verdicts[id].wanted != wish or agrees(cgroup.view, wish):
                continue
            self.counters.drifted += 1
            found[id] = drift(cgroup.view, wish.cpus, read_cpus(cgroup.view.cpus) or wish.cpus)
        return found

    def _write(self, cgroup: ContainerCgroup, wish: Wanted, cpusets: Cpusets) -> str:
        if agrees(cgroup.view, wish):
            return ""
        problem = cpusets.set(cgroup.folder, wish.cpus, wish.mems)
        if not problem and wish.lift_quota:
            problem = cpusets.lift_quota(cgroup.folder)
        if problem and not self._files.read(cgroup.folder / "cgroup.procs"):
            return ""  # it has just ended, and there is nothing left to pin
        if not problem:
            self.counters.changed += 1
        return problem

    def _lift_pods(
        self, cgroups: Mapping[str, ContainerCgroup], verdicts: Mapping[str, Verdict], cpusets: Cpusets
    ) -> None:
        """The quota of a pod holds its containers back too: lifted where all of them have it lifted."""
        pods: dict[Path, bool] = {}
        for id, cgroup in cgroups.items():
            if cgroup.known:
                wish = verdicts[id].wanted
                pods[cgroup.pod] = pods.get(cgroup.pod, True) and wish is not None and wish.lift_quota
        for pod, lift in pods.items():
            if lift and (problem := cpusets.lift_quota(pod)):
                _log.warning("the quota of a pod is not lifted: %s", problem)

    def _scene(self) -> Scene:
        return take_scene(self._book, self._topology(), self._settings.pin)


def _alive(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")


def _gains(view: ContainerView, verdict: Verdict) -> bool:
    """Whether a container is only given more; those go last."""
    has, wish = read_cpus(view.cpus), verdict.wanted
    return wish is None or (bool(has) and has is not None and has <= wish.cpus)
