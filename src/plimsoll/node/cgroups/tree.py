"""Tree of an agent's cgroups: root, QoS cgroups, pods, containers.

The names are the kubelet's below the root of the agent, with the cgroupfs driver:

   ROOT/podUID/CONTAINER              Guaranteed
   ROOT/burstable/podUID/CONTAINER
   ROOT/besteffort/podUID/CONTAINER
   ROOT/owner.NAME                    owner of the root; always empty

With the systemd driver each of them is a slice (`drivers.py`).

Guarantees that nothing outside ROOT is created, written, killed or removed (on v2 controllers are enabled in
the cgroups above it, and nothing else); that a ROOT of another owner is left alone; and that a value that
could not be set is a CgroupFault, and still part of the plan. Calls may come from several threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from plimsoll.errors import InputError
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from plimsoll.node.cgroup_plans.pods import PodPlan
from plimsoll.node.cgroup_plans.qos_cgroups import QosCgroupPlan
from plimsoll.node.cgroups.drivers import CgroupDriver, CgroupfsDriver
from plimsoll.node.cgroups.kernel import CgroupKernel
from plimsoll.node.cgroups.values import CgroupFault, PodUsage
from plimsoll.node.cgroups.writes import CgroupWrite, resources_of_pod
from plimsoll.node.layout import is_path_component, path_component
from plimsoll.node.resources import LinuxResources

_TIERS = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
_POD = "pod"
_OWNER = "owner."
_RETRY_SECONDS = 0.02
#: Time for systemd to create a cgroup after it has accepted to.
_MANAGER_SECONDS = 10.0
_PROCS = "cgroup.procs"


class Hierarchies(Protocol):
    """Cgroup version: `V1` or `V2`. Faults are (file, value, errno)."""

    version: int
    mounts: tuple[Path, ...]

    def writes(self, resources: LinuxResources) -> tuple[CgroupWrite, ...]: ...
    def directory(self, cgroup: str, controller: str) -> Path | None: ...
    def display_name(self, cgroup: str, write: CgroupWrite) -> str: ...
    def prepare_parent(self, cgroup: str, skip: Collection[str] = ()) -> Iterator[tuple[str, str, int]]: ...
    def initialize(self, cgroup: str) -> Iterator[tuple[str, str, int]]: ...
    def write(self, directory: Path, write: CgroupWrite) -> int: ...
    def kill(self, cgroup: str, pids: Callable[[], tuple[int, ...]]) -> None: ...
    def thaw(self, cgroup: str) -> None: ...
    def usage(self, cgroup: str) -> PodUsage: ...
    def cpus(self, cgroup: str) -> str: ...


def root_parts(name: str) -> tuple[str, ...]:
    """Split a root's name (`plimsoll`, `/plimsoll/node-a`); raise InputError if it is invalid."""
    parts = tuple(path_component(name) for name in name.strip("/").split("/"))
    for name in parts:
        if name in _TIERS.values() or name.startswith((_POD, _OWNER)):
            raise InputError(
                f"{name!r} cannot be part of a root cgroup: the name is reserved for pods and QoS classes"
            )
    return parts


class Cgroups:
    """Cgroups of one agent, of either version or only planned: its own root, QoS cgroups, pods, containers.

    A cgroup is identified by the UID of a pod and the ID of a container. Calls are idempotent. Those that
    remove wait (a second or two) for processes to exit: call them from a thread. UIDs and IDs that cannot be
    directory names raise InputError before anything is changed.
    """

    def __init__(
        self,
        root: str,
        hierarchies: Hierarchies,
        kernel: CgroupKernel,
        *,
        owner: str = "plimsoll",
        note: str = "",
        plan_only: bool = False,
        timeout: float = 2.0,
        driver: CgroupDriver | None = None,
    ) -> None:
        self._driver = driver or CgroupfsDriver()
        self._parts = root_parts(root)
        self._root = self._driver.path(self._parts)
        self._hierarchies = hierarchies
        self._kernel = kernel
        self._owner = _OWNER + path_component(owner)
        self._timeout = timeout
        self._tiers: dict[str, str] = {}
        #: This agent has created the root: it remains the owner if the mark is removed.
        self._made_root = False
        # Calls come from several threads; the recorded state is guarded, the kernel guards itself.
        self._lock = threading.Lock()
        self._plan: dict[str, str] = {}
        self._unapplied: dict[str, CgroupFault] = {}
        #: 1 or 2; 0: nothing is applied, only recorded.
        self.version = 0 if plan_only else hierarchies.version
        #: Reason for this version, for display.
        self.note = note

    @property
    def driver_name(self) -> str:
        """Name of the cgroup driver: cgroupfs or systemd."""
        return self._driver.name

    # -- creation

    def set_up(self, limits: LinuxResources | None = None) -> tuple[CgroupFault, ...]:
        """Create the root, with these limits for all pods together, and the QoS cgroups."""
        if (fault := self._ownership_fault()) is not None:
            return (fault,)
        faults: list[CgroupFault] = []
        for depth in range(1, len(self._parts) + 1):
            faults += self._make(self._driver.path(self._parts[:depth]))
        marked = list(self._make(self._below_root(self._owner)))
        self._made_root = self._made_root or not marked
        faults += marked
        for tier in ("burstable", "besteffort"):
            faults += self._make(self._below_root(tier))
        for cgroup in self._leaves():
            self._hierarchies.thaw(cgroup)
        faults += self._apply(self._root, limits or LinuxResources())
        return tuple(faults)

    def root_directories(self) -> tuple[Path, ...]:
        """Return the directory of the root in every hierarchy; nothing for a plan."""
        return () if self.version == 0 else tuple(self._directories(self._root))

    def lost(self) -> tuple[str, ...]:
        """Return the parts of the root that are missing or belong to another owner."""
        if (fault := self._ownership_fault()) is not None:
            return (f"{fault.file}: {fault.error}",)
        names = ("", self._owner, "burstable", "besteffort")
        directories = (directory for name in names for directory in self._directories(self._below_root(name)))
        return tuple(str(directory) for directory in directories if not self._kernel.exists(directory))

    def is_lost(self, pod: str, id: str = "") -> bool:
        return not all(map(self._kernel.exists, self._directories(self._cgroup(pod, id))))

    def apply_tiers(self, plan: QosCgroupPlan) -> tuple[CgroupFault, ...]:
        """Set the values of the QoS cgroups."""
        if (fault := self._ownership_fault()) is not None:
            return (fault,)
        burstable = LinuxResources(cpu_shares=plan.burstable_shares, unified=plan.burstable_unified)
        best_effort = LinuxResources(cpu_shares=plan.best_effort_shares)
        return (
            *self._apply(self._root, LinuxResources(unified=plan.root_unified)),
            *self._apply(self._below_root("burstable"), burstable),
            *self._apply(self._below_root("besteffort"), best_effort),
        )

    def make_pod(self, uid: str, qos: str, plan: PodPlan) -> tuple[CgroupFault, ...]:
        if qos not in _TIERS:
            raise InputError(f"{qos!r} is not a QoS class")
        pod = _POD + path_component(uid)
        if (fault := self._ownership_fault()) is not None:
            return (fault,)
        self._tiers[uid] = _TIERS[qos]
        cgroup = self._below_root(_TIERS[qos], pod)
        return (*self._make(cgroup), *self._apply(cgroup, resources_of_pod(plan)))

    def make_container(self, pod: str, id: str, resources: LinuxResources) -> tuple[CgroupFault, ...]:
        """Create the cgroup of a container, or change its values."""
        cgroup = self._cgroup(pod, id)
        if (fault := self._ownership_fault()) is not None:
            return (fault,)
        return (*self._make(cgroup), *self._apply(cgroup, resources))

    def path(self, pod: str, id: str = "") -> str:
        """Return the path of a cgroup below the mount points of the hierarchies; "" for a plan."""
        return f"/{self._cgroup(pod, id)}" if self.version else ""

    def join_files(self, pod: str, id: str) -> tuple[Path, ...]:
        """Return the files to which a process ID is written to join the container."""
        if self.version == 0:
            return ()
        return tuple(directory / _PROCS for directory in self._directories(self._cgroup(pod, id)))

    # -- removal

    def kill(self, pod: str, id: str = "") -> None:
        cgroup = self._cgroup(pod, id)
        if self._ownership_fault() is None:
            self._hierarchies.kill(cgroup, lambda: self._pids(cgroup))

    def remove_container(self, pod: str, id: str) -> bool:
        """Kill remaining processes and remove the cgroup; return False if something is left."""
        return self._remove(self._cgroup(pod, id))

    def remove_pod(self, uid: str) -> bool:
        """Kill remaining processes and remove the cgroup; return False if something is left."""
        name = _POD + path_component(uid)
        # In all QoS cgroups: a pod may have been left behind in another one.
        places = [self._below_root(tier, name) for tier in _TIERS.values()]
        gone = [self._remove(place) for place in places]
        if all(gone):
            self._tiers.pop(uid, None)
        return all(gone)

    def tear_down(self) -> bool:
        """Remove the root with all remaining pods; return False if something is left."""
        pods = [self.remove_pod(uid) for uid in self.pods()]
        if not all(pods):
            return False
        gone = self._remove(self._root)
        self._tiers.clear()
        return gone

    def _remove(self, cgroup: str) -> bool:
        if self._ownership_fault() is not None:
            return False
        waited = 0.0
        while not self._remove_empty(cgroup):
            if waited >= self._timeout:
                return False
            self._hierarchies.kill(cgroup, lambda: self._pids(cgroup))
            self._kernel.wait(_RETRY_SECONDS)
            waited += _RETRY_SECONDS
        self._forget(cgroup)
        return True

    def _remove_empty(self, cgroup: str) -> bool:
        """Remove a cgroup and its descendants, if they have no processes."""
        directories = [directory for directory in self._directories(cgroup) if self._kernel.exists(directory)]
        if any(
            self._kernel.read(inner / _PROCS)
            for directory in directories
            for inner in self._inside(directory)
        ):
            return False
        if directories and self._driver.stop(cgroup):
            return False
        faults = [
            self._kernel.remove(inner) for directory in directories for inner in self._inside(directory)
        ]
        return not any(faults)

    def _forget(self, cgroup: str) -> None:
        inside = f"{cgroup}/"
        # On v1 names in plans begin with the controller.
        with self._lock:
            for names in (self._plan, self._unapplied):
                for name in [name for name in names if name.startswith(inside) or f"/{inside}" in name]:
                    del names[name]

    # -- queries

    def pids(self, pod: str, id: str = "") -> tuple[int, ...]:
        return self._pids(self._cgroup(pod, id))

    def usage(self, pod: str, id: str = "") -> PodUsage | None:
        cgroup = self._cgroup(pod, id)
        if self.version == 0 or not any(map(self._kernel.exists, self._directories(cgroup))):
            return None
        return self._hierarchies.usage(cgroup)

    def cpus(self, pod: str, id: str = "") -> str:
        cgroup = self._cgroup(pod, id)
        while cgroup:
            found = self._hierarchies.cpus(cgroup)
            if found:
                return found
            cgroup = cgroup.rpartition("/")[0]
        return ""

    def pods(self) -> tuple[str, ...]:
        """Return the UIDs of the pods that have a cgroup, leftovers included."""
        return tuple(dict.fromkeys(uid for uid, _ in self._pods()))

    def containers(self, pod: str) -> tuple[str, ...]:
        """Return the IDs of a pod's containers that have a cgroup, leftovers included."""
        directories = self._directories(self._cgroup(pod))
        names = {name for directory in directories for name in self._kernel.subdirectories(directory)}
        # Other programs may have created directories.
        return tuple(sorted(filter(is_path_component, map(self._driver.container_id, names))))

    def plan(self) -> Mapping[str, str]:
        """Return all values that were set, or would have been, by file."""
        with self._lock:
            return dict(sorted(self._plan.items()))

    def unapplied(self) -> Mapping[str, CgroupFault]:
        """Return the faults of planned values that are not applied, by file."""
        with self._lock:
            return dict(sorted(self._unapplied.items()))

    # -- internals

    def _cgroup(self, pod: str, id: str = "") -> str:
        """Return the cgroup of a pod or container, in the QoS cgroup that has the pod."""
        name = _POD + path_component(pod)
        tier = self._tiers.get(pod)
        if tier is None:
            tier = next((tier for uid, tier in self._pods() if uid == pod), "")
        cgroup = self._below_root(tier, name)
        return self._container(cgroup, path_component(id)) if id else cgroup

    def _container(self, pod: str, id: str) -> str:
        """Return the cgroup of a container in that of its pod."""

        def list_names() -> set[str]:
            return {name for each in self._directories(pod) for name in self._kernel.subdirectories(each)}

        return f"{pod}/{self._driver.container(id, list_names)}"

    def _below_root(self, *parts: str) -> str:
        """Return the cgroup with these names below the root; empty names are skipped."""
        return self._driver.path((*self._parts, *filter(None, parts)))

    def _pods(self) -> Iterator[tuple[str, str]]:
        """Yield every pod that has a cgroup in any hierarchy, with its QoS cgroup."""
        if self._ownership_fault() is not None:
            return
        for tier in _TIERS.values():
            names = {
                self._driver.part(name)
                for directory in self._directories(self._below_root(tier))
                for name in self._kernel.subdirectories(directory)
            }
            for name in sorted(names):
                uid = name.removeprefix(_POD)
                if uid != name and is_path_component(uid):
                    yield uid, tier

    def _leaves(self) -> Iterator[str]:
        for uid, _ in self._pods():
            yield self._cgroup(uid)
            for id in self.containers(uid):
                yield self._cgroup(uid, id)

    def _directories(self, cgroup: str) -> list[Path]:
        return [mount / cgroup for mount in self._hierarchies.mounts]

    def _inside(self, directory: Path) -> Iterator[Path]:
        """Yield a directory and its descendants, the deepest first."""
        for name in self._kernel.subdirectories(directory):
            yield from self._inside(directory / name)
        yield directory

    def _pids(self, cgroup: str) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for directory in self._directories(cgroup):
            for inner in self._inside(directory):
                for text in (self._kernel.read(inner / _PROCS) or "").split():
                    # 0 is a process that is not visible to this agent; and the agent must never kill itself.
                    if text.isdigit() and int(text) not in (0, os.getpid()):
                        found[int(text)] = None
        return tuple(found)

    def _ownership_fault(self) -> CgroupFault | None:
        """Return a fault if the root belongs to another owner, or was not created by an agent."""
        own = self._driver.part(self._below_root(self._owner).rpartition("/")[2])
        for directory in self._directories(self._root):
            below = self._kernel.subdirectories(directory)
            owners = [name for name in map(self._driver.part, below) if name.startswith(_OWNER)]
            unmarked = below and not owners and not self._made_root
            if (owners and own not in owners) or unmarked:
                owner_name = owners[0].removeprefix(_OWNER) if owners else "another owner"
                return CgroupFault(str(directory), self._owner, f"this root belongs to {owner_name}")
        return None

    def _make(self, cgroup: str) -> Iterator[CgroupFault]:
        """Create a cgroup in every hierarchy; its parent exists."""
        for file, value, number in self._hierarchies.prepare_parent(cgroup, self._driver.controllers):
            yield CgroupFault(file, value, os.strerror(number))
        if problem := self._driver.make(cgroup):
            yield CgroupFault(cgroup, "", problem)
        else:
            self._wait_for_files(cgroup)
        for directory in self._directories(cgroup):
            number = self._kernel.make(directory)
            if number:
                yield CgroupFault(str(directory), "", os.strerror(number))
        for file, value, number in self._hierarchies.initialize(cgroup):
            yield CgroupFault(file, value, os.strerror(number))

    def _wait_for_files(self, cgroup: str) -> None:
        """Wait until a cgroup has the files of the controllers that the driver enables."""
        waited = 0.0
        for controller, file in self._driver.controllers.items():
            directory = self._hierarchies.directory(cgroup, controller)
            while directory is not None and file and not self._kernel.exists(directory / file):
                if waited >= _MANAGER_SECONDS:
                    return
                self._kernel.wait(_RETRY_SECONDS)
                waited += _RETRY_SECONDS

    def _apply(self, cgroup: str, resources: LinuxResources) -> Sequence[CgroupFault]:
        writes = self._hierarchies.writes(resources)
        problem = self._driver.set_values(cgroup, writes)
        faults = [CgroupFault(cgroup, "", problem)] if problem else []
        return [*faults, *self._write_all(cgroup, writes)]

    def _write_all(self, cgroup: str, writes: Iterable[CgroupWrite]) -> Iterator[CgroupFault]:
        for write in writes:
            name = self._hierarchies.display_name(cgroup, write)
            fault = self._write(cgroup, name, write)
            with self._lock:
                self._unapplied.pop(name, None)
                if fault is not None and write.optional:
                    self._plan.pop(name, None)
                    continue
                self._plan[name] = write.value
                if fault is not None:
                    self._unapplied[name] = fault
            if fault is not None:
                yield fault

    def _write(self, cgroup: str, name: str, write: CgroupWrite) -> CgroupFault | None:
        if write.error:
            return CgroupFault(name, write.value, write.error, absent=True)
        directory = self._hierarchies.directory(cgroup, write.controller)
        if directory is None:
            error = f"the {write.controller} controller is not available"
            return CgroupFault(name, write.value, error, absent=True)
        number = self._hierarchies.write(directory, write)
        return CgroupFault(name, write.value, os.strerror(number)) if number else None
