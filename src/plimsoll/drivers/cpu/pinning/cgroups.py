"""Pinning by writing cpusets, for runtimes without NRI.

`CgroupEnforcer` learns about containers from the pods of its node and their cgroups, sets the cpuset of every
container, and restores it if something else changes it. Guarantees: shared containers leave CPUs before a
container gets them exclusively; an empty cpuset is never written; failed writes are reported and retried. A
container runs briefly before it is pinned: only NRI is called before it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll.api.core import Pod
from plimsoll.common.cgroupfs import LinuxFiles
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.cpu.pinning.cgroup_finder import CgroupFinder
from plimsoll.drivers.cpu.pinning.container_table import matches_desired
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.cpusets import Cpusets, Files, find_hierarchy, read_online
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    CpuStateView,
    DesiredCpuset,
    PinDecision,
    PinFault,
    PinSnapshot,
    SnapshotCache,
    decide,
    make_drift_fault,
    make_refused_fault,
    read_cpus,
    read_env,
)
from plimsoll.drivers.cpu.pinning.pods import PodContainers, PodSource, read_pod_containers
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology.topology import Topology

_log = logging.getLogger("plimsoll.cpu.pinning")


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """Container with its cgroup."""

    view: ContainerView
    directory: Path
    pod: Path
    known: bool = True


class CgroupEnforcer:
    """Pins containers by writing cpusets below `mount`, checking all of them every `interval` seconds."""

    def __init__(
        self,
        state: CpuStateView,
        topology: Callable[[], Topology],
        settings: CpuSettings,
        pods: PodSource,
        mount: Path | None = None,
        *,
        files: Files | None = None,
        interval: float = 1.0,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.counters = Counters()
        #: Always empty: this enforcer has no other source than the state.
        self.findings: tuple[NodeFinding, ...] = ()
        self.link_error = "not started yet"
        self._state = state
        self._topology = topology
        self._settings = settings
        self._snapshots = SnapshotCache(state, settings.pin)
        self._pods = pods
        self._mount = mount or settings.host_root / "sys/fs/cgroup"
        self._proc = settings.host_root / "proc"
        self._files = files or LinuxFiles()
        self._interval = interval
        self._cpusets: Cpusets | None = None
        self._finder: CgroupFinder | None = None
        self._cgroups: dict[str, ContainerCgroup] = {}
        self._faults: dict[str, PinFault] = {}
        #: Cpusets written, to distinguish foreign changes from pending ones.
        self._set: dict[str, DesiredCpuset] = {}
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- lifecycle

    async def start(self) -> None:
        if self._tasks:
            return
        self._pods.on_change = self._wake.set
        await self._pods.start()
        self._tasks = [asyncio.create_task(self._follow(), name="cpusets")]

    async def stop(self) -> None:
        """Stop; containers keep their cpusets."""
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(tasks)
        await self._pods.stop()
        self.link_error = "stopped"

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            await self._reconcile()
            try:
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()
            except TimeoutError:
                pass

    # -- state

    @property
    def linked(self) -> bool:
        """True if cpusets can be written and the pods of this node are known."""
        return not self.link_error

    @property
    def runtime(self) -> str:
        """Description of the enforcement mechanism."""
        return f"cgroup v{self._cpusets.hierarchy.version} at {self._mount}" if self._cpusets else ""

    @property
    def shared_in_use(self) -> bool:
        """True if containers run on the shared pool, not counting pause containers."""
        return any(cgroup.known and cgroup.view.shared for cgroup in self._cgroups.values())

    def containers(self) -> tuple[ContainerView, ...]:
        return tuple(cgroup.view for cgroup in self._cgroups.values())

    def faults(self) -> tuple[PinFault, ...]:
        return tuple(self._faults.values())

    # -- updates

    async def apply(self) -> tuple[PinFault, ...]:
        """Update running containers after a change of allocations, shared pool or topology."""
        await self._reconcile()
        return self.faults()

    async def _reconcile(self) -> None:
        async with self._lock:
            before = (self.link_error, self._faults)
            if self._pods.error:
                self.link_error = self._pods.error
            else:
                snapshot = self._snapshot()
                pods = [
                    read_pod_containers(pod, snapshot.allocations)
                    for pod in self._pods.pods()
                    if _is_active(pod)
                ]
                self.link_error = await asyncio.to_thread(self._apply_cpusets, pods, snapshot)
            if (self.link_error, self._faults) != before:
                for fault in self.faults():
                    if fault not in before[1].values():
                        _log.warning("%s", fault)
                self.on_change()

    def _apply_cpusets(self, pods: Iterable[PodContainers], snapshot: PinSnapshot) -> str:
        """Read, decide and write the cpusets of all containers; return the reason if that is impossible."""
        if self._cpusets is None or self._finder is None:
            hierarchy = find_hierarchy(self._mount, self._files)
            if isinstance(hierarchy, str):
                return hierarchy
            self._cpusets = Cpusets(hierarchy, self._files)
            self._finder = CgroupFinder(hierarchy.root, self._files)
        cgroups = self._find_cgroups(pods, snapshot, self._cpusets, self._finder)
        owners: dict[str, str] = {}
        for cgroup in cgroups.values():
            for uid in cgroup.view.claims:
                owners.setdefault(uid, cgroup.view.pod_uid)
        snapshot = replace(snapshot, owners=owners)
        decisions = {id: decide(cgroup.view, snapshot) for id, cgroup in cgroups.items()}
        faults = {id: decision.fault for id, decision in decisions.items() if decision.fault is not None}
        faults |= self._find_drifts(cgroups, decisions)
        for id in sorted(cgroups, key=lambda id: _only_gains(cgroups[id].view, decisions[id])):
            cgroup, desired = cgroups[id], decisions[id].desired
            if desired is None or not desired.cpus:
                continue
            problem = self._write(cgroup, desired, self._cpusets)
            if problem:
                self.counters.failed += 1
                self._set.pop(id, None)
                faults[id] = make_refused_fault(cgroup.view, desired.cpus, problem)
            else:
                self._set[id] = desired
        self._lift_pods(cgroups, decisions, self._cpusets)
        self._set = {id: desired for id, desired in self._set.items() if id in cgroups}
        self._cgroups = {id: self._read_current(cgroup, self._cpusets) for id, cgroup in cgroups.items()}
        self._faults = faults
        return ""

    def _find_cgroups(
        self,
        pods: Iterable[PodContainers],
        snapshot: PinSnapshot,
        cpusets: Cpusets,
        finder: CgroupFinder,
    ) -> dict[str, ContainerCgroup]:
        """Return all containers of these pods that have a cgroup, with their current cpusets."""
        unnamed = frozenset(
            uid for uid, allocation in snapshot.allocations.items() if not allocation.ref.name
        )
        by_uid = {one.cgroup: one for one in pods}
        cgroups = {}
        for uid, pod in finder.pods(by_uid).items():
            one = by_uid[uid]
            for id, directory in finder.containers(pod, one.containers).items():
                view = one.containers.get(id)
                cgroup = ContainerCgroup(view or one.unknown_container(id), directory, pod, view is not None)
                if unnamed and one.claims and cgroup.known:
                    cgroup = replace(cgroup, view=self._read_process_env(cgroup, unnamed))
                cgroups[id] = self._read_current(cgroup, cpusets)
        return cgroups

    def _read_process_env(self, cgroup: ContainerCgroup, unnamed: frozenset[str]) -> ContainerView:
        """Read claims known by UID alone (adopted from CDI files) from the environment of a process."""
        pid = (self._files.read(cgroup.directory / "cgroup.procs") or "").partition("\n")[0]
        text = self._files.read(self._proc / pid / "environ") if pid.isdecimal() else None
        env_claims = read_env((text or "").split("\0"))
        if isinstance(env_claims, PinFault):
            return cgroup.view
        more = {uid: cpus for uid, cpus in env_claims.claims.items() if uid in unnamed}
        return replace(cgroup.view, claims={**cgroup.view.claims, **more})

    def _read_current(self, cgroup: ContainerCgroup, cpusets: Cpusets) -> ContainerCgroup:
        view = replace(
            cgroup.view,
            cpus=cpusets.cpus(cgroup.directory),
            mems=cpusets.mems(cgroup.directory),
            quota=cpusets.quota(cgroup.directory),
        )
        return replace(cgroup, view=view)

    def _find_drifts(
        self, cgroups: Mapping[str, ContainerCgroup], decisions: Mapping[str, PinDecision]
    ) -> dict[str, PinFault]:
        """Return faults for containers whose cpuset was changed by something else."""
        found = {}
        online = read_online(self._files, self._mount)
        for id, cgroup in cgroups.items():
            desired = self._set.get(id)
            if desired is None or decisions[id].desired != desired or matches_desired(cgroup.view, desired):
                continue
            if online is not None and matches_desired(
                cgroup.view, replace(desired, cpus=desired.cpus & online)
            ):
                continue  # CPUs have just gone offline; the topology follows
            self.counters.drifted += 1
            found[id] = make_drift_fault(
                cgroup.view, desired.cpus, read_cpus(cgroup.view.cpus) or desired.cpus
            )
        return found

    def _write(self, cgroup: ContainerCgroup, desired: DesiredCpuset, cpusets: Cpusets) -> str:
        if matches_desired(cgroup.view, desired):
            return ""
        problem = cpusets.set(cgroup.directory, desired.cpus, desired.mems)
        if not problem and desired.lift_quota:
            problem = cpusets.lift_quota(cgroup.directory)
        if problem and not self._files.read(cgroup.directory / "cgroup.procs"):
            return ""  # the container has just exited
        if not problem:
            self.counters.changed += 1
        return problem

    def _lift_pods(
        self, cgroups: Mapping[str, ContainerCgroup], decisions: Mapping[str, PinDecision], cpusets: Cpusets
    ) -> None:
        """Remove the CFS quota of pods if it is removed for all of their containers."""
        pods: dict[Path, bool] = {}
        for id, cgroup in cgroups.items():
            if cgroup.known:
                desired = decisions[id].desired
                pods[cgroup.pod] = pods.get(cgroup.pod, True) and desired is not None and desired.lift_quota
        for pod, lift in pods.items():
            if lift and (problem := cpusets.lift_quota(pod)):
                _log.warning("removing the quota of a pod failed: %s", problem)

    def _snapshot(self) -> PinSnapshot:
        return self._snapshots.take(self._topology())


def _is_active(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")


def _only_gains(view: ContainerView, decision: PinDecision) -> bool:
    """Report whether a container only gains CPUs; those are updated last."""
    has, desired = read_cpus(view.cpus), decision.desired
    return desired is None or (bool(has) and has is not None and has <= desired.cpus)
