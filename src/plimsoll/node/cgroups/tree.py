"""The tree of an agent's cgroups: root, QoS tiers, pods, containers.

Owns the names, which are the kubelet's cgroupfs names below a root of our own:

    ROOT/podUID/CONTAINER              Guaranteed
    ROOT/burstable/podUID/CONTAINER
    ROOT/besteffort/podUID/CONTAINER
    ROOT/owner.NAME                    whose root this is; always empty

Promises: nothing outside ROOT is made, written, killed or removed (on v2 the cgroups above it are told to
hand controllers down, and nothing else); a ROOT that somebody else has made is left alone; a value that was
not set is a CgroupFault, and stands in the plan all the same. Calls may come from several threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from plimsoll.errors import InputError
from plimsoll.ledger.cgroups.pods import PodPlan
from plimsoll.ledger.cgroups.qos_cgroups import QosCgroupPlan
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from plimsoll.node.cgroups.kernel import Kernel
from plimsoll.node.cgroups.values import CgroupFault, PodUsage
from plimsoll.node.cgroups.writes import Write, resources_of_pod
from plimsoll.node.layout import path_component
from plimsoll.node.resources import LinuxResources

_TIERS = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
_POD = "pod"
_OWNER = "owner."
_TRY_EVERY = 0.02
_PROCS = "cgroup.procs"


class Hierarchies(Protocol):
    """A version of cgroups: `V1` or `V2`. Faults are (file, value, errno)."""

    version: int
    mounts: tuple[Path, ...]

    def writes(self, resources: LinuxResources) -> tuple[Write, ...]: ...
    def folder(self, cgroup: str, controller: str) -> Path | None: ...
    def shown(self, cgroup: str, write: Write) -> str: ...
    def above(self, cgroup: str) -> Iterator[tuple[str, str, int]]: ...
    def made(self, cgroup: str) -> Iterator[tuple[str, str, int]]: ...
    def write(self, folder: Path, write: Write) -> int: ...
    def kill(self, cgroup: str, pids: Callable[[], tuple[int, ...]]) -> None: ...
    def wake(self, cgroup: str) -> None: ...
    def usage(self, cgroup: str) -> PodUsage: ...
    def cpus(self, cgroup: str) -> str: ...


def root_parts(name: str) -> tuple[str, ...]:
    """The parts of a root's name (`plimsoll`, `/plimsoll/node-a`); InputError if it is none."""
    parts = tuple(path_component(name) for name in name.strip("/").split("/"))
    for name in parts:
        if name in _TIERS.values() or name.startswith((_POD, _OWNER)):
            raise InputError(f"{name!r} cannot be part of the root of cgroups: pods and tiers are called so")
    return parts


def _is_name(text: str) -> bool:
    """Whether this can be a UID or an id; others may have made folders that are neither."""
    try:
        return bool(path_component(text))
    except InputError:
        return False


class Tree:
    """`Cgroups`, for either version and for plans."""

    def __init__(
        self,
        root: str,
        hierarchies: Hierarchies,
        kernel: Kernel,
        *,
        owner: str = "plimsoll",
        note: str = "",
        plan_only: bool = False,
        patience: float = 2.0,
    ) -> None:
        self._parts = root_parts(root)
        self._root = "/".join(self._parts)
        self._hierarchies = hierarchies
        self._kernel = kernel
        self._owner = _OWNER + path_component(owner)
        self._patience = patience
        self._tiers: dict[str, str] = {}
        #: This agent has made the root: it stays ours if somebody removes the mark.
        self._made_root = False
        # Calls come from threads, several at a time; what is remembered is guarded, the kernel guards itself.
        self._lock = threading.Lock()
        self._plan: dict[str, str] = {}
        self._unapplied: dict[str, CgroupFault] = {}
        self.version = 0 if plan_only else hierarchies.version
        self.note = note

    # -- making

    def set_up(self, limits: LinuxResources | None = None) -> tuple[CgroupFault, ...]:
        foreign = self._foreign()
        if foreign is not None:
            return (foreign,)
        faults: list[CgroupFault] = []
        for depth in range(1, len(self._parts) + 1):
            faults += self._make("/".join(self._parts[:depth]))
        marked = list(self._make(f"{self._root}/{self._owner}"))
        self._made_root = self._made_root or not marked
        faults += marked
        for tier in ("burstable", "besteffort"):
            faults += self._make(f"{self._root}/{tier}")
        for cgroup in self._leaves():
            self._hierarchies.wake(cgroup)
        faults += self._apply(self._root, limits or LinuxResources())
        return tuple(faults)

    def root_folders(self) -> tuple[Path, ...]:
        return () if self.version == 0 else tuple(self._folders(self._root))

    def lost(self) -> tuple[str, ...]:
        foreign = self._foreign()
        if foreign is not None:
            return (f"{foreign.file}: {foreign.error}",)
        names = ("", f"/{self._owner}", "/burstable", "/besteffort")
        folders = (folder for name in names for folder in self._folders(self._root + name))
        return tuple(str(folder) for folder in folders if not self._kernel.exists(folder))

    def is_lost(self, pod: str, id: str = "") -> bool:
        return not all(map(self._kernel.exists, self._folders(self._cgroup(pod, id))))

    def apply_tiers(self, plan: QosCgroupPlan) -> tuple[CgroupFault, ...]:
        foreign = self._foreign()
        if foreign is not None:
            return (foreign,)
        burstable = LinuxResources(cpu_shares=plan.burstable_shares, unified=plan.burstable_unified)
        best_effort = LinuxResources(cpu_shares=plan.best_effort_shares)
        return (
            *self._apply(self._root, LinuxResources(unified=plan.root_unified)),
            *self._apply(f"{self._root}/burstable", burstable),
            *self._apply(f"{self._root}/besteffort", best_effort),
        )

    def make_pod(self, uid: str, qos: str, plan: PodPlan) -> tuple[CgroupFault, ...]:
        if qos not in _TIERS:
            raise InputError(f"{qos!r} is no QoS class")
        pod = _POD + path_component(uid)
        foreign = self._foreign()
        if foreign is not None:
            return (foreign,)
        self._tiers[uid] = _TIERS[qos]
        cgroup = "/".join(filter(None, (self._root, _TIERS[qos], pod)))
        return (*self._make(cgroup), *self._apply(cgroup, resources_of_pod(plan)))

    def make_container(self, pod: str, id: str, resources: LinuxResources) -> tuple[CgroupFault, ...]:
        cgroup = self._cgroup(pod, id)
        foreign = self._foreign()
        if foreign is not None:
            return (foreign,)
        return (*self._make(cgroup), *self._apply(cgroup, resources))

    def join_files(self, pod: str, id: str) -> tuple[Path, ...]:
        if self.version == 0:
            return ()
        return tuple(folder / _PROCS for folder in self._folders(self._cgroup(pod, id)))

    # -- removing

    def kill(self, pod: str, id: str = "") -> None:
        cgroup = self._cgroup(pod, id)
        if self._foreign() is None:
            self._hierarchies.kill(cgroup, lambda: self._pids(cgroup))

    def remove_container(self, pod: str, id: str) -> bool:
        return self._remove(self._cgroup(pod, id))

    def remove_pod(self, uid: str) -> bool:
        name = _POD + path_component(uid)
        # Everywhere: a pod may have been left behind in another tier.
        places = ["/".join(filter(None, (self._root, tier, name))) for tier in _TIERS.values()]
        gone = [self._remove(place) for place in places]
        if all(gone):
            self._tiers.pop(uid, None)
        return all(gone)

    def tear_down(self) -> bool:
        """Remove everything; a root that is not this agent's is left alone."""
        pods = [self.remove_pod(uid) for uid in self.pods()]
        if not all(pods):
            return False
        gone = self._remove(self._root)
        self._tiers.clear()
        return gone

    def _remove(self, cgroup: str) -> bool:
        if self._foreign() is not None:
            return False
        waited = 0.0
        while not self._take_away(cgroup):
            if waited >= self._patience:
                return False
            self._hierarchies.kill(cgroup, lambda: self._pids(cgroup))
            self._kernel.wait(_TRY_EVERY)
            waited += _TRY_EVERY
        self._forget(cgroup)
        return True

    def _take_away(self, cgroup: str) -> bool:
        """Remove a cgroup and what is below it, where nothing lives any more."""
        folders = [folder for folder in self._folders(cgroup) if self._kernel.exists(folder)]
        if any(self._kernel.read(inner / _PROCS) for folder in folders for inner in self._inside(folder)):
            return False
        faults = [self._kernel.remove(inner) for folder in folders for inner in self._inside(folder)]
        return not any(faults)

    def _forget(self, cgroup: str) -> None:
        inside = f"{cgroup}/"
        # On v1 names in plans begin with the controller.
        with self._lock:
            for names in (self._plan, self._unapplied):
                for name in [name for name in names if name.startswith(inside) or f"/{inside}" in name]:
                    del names[name]

    # -- looking

    def pids(self, pod: str, id: str = "") -> tuple[int, ...]:
        return self._pids(self._cgroup(pod, id))

    def usage(self, pod: str, id: str = "") -> PodUsage | None:
        cgroup = self._cgroup(pod, id)
        if self.version == 0 or not any(map(self._kernel.exists, self._folders(cgroup))):
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
        return tuple(dict.fromkeys(uid for uid, _ in self._pods()))

    def containers(self, pod: str) -> tuple[str, ...]:
        folders = self._folders(self._cgroup(pod))
        names = {name for folder in folders for name in self._kernel.folders(folder)}
        return tuple(sorted(filter(_is_name, names)))

    def plan(self) -> Mapping[str, str]:
        with self._lock:
            return dict(sorted(self._plan.items()))

    def unapplied(self) -> Mapping[str, CgroupFault]:
        with self._lock:
            return dict(sorted(self._unapplied.items()))

    # -- inside

    def _cgroup(self, pod: str, id: str = "") -> str:
        """The cgroup of a pod or container, in the tier where the pod was made or else is found."""
        name = _POD + path_component(pod)
        tier = self._tiers.get(pod)
        if tier is None:
            tier = next((tier for uid, tier in self._pods() if uid == pod), "")
        return "/".join(filter(None, (self._root, tier, name, path_component(id) if id else "")))

    def _pods(self) -> Iterator[tuple[str, str]]:
        """Every pod that has a cgroup in any hierarchy, with its tier."""
        if self._foreign() is not None:
            return
        for tier in _TIERS.values():
            cgroup = "/".join(filter(None, (self._root, tier)))
            names = {name for folder in self._folders(cgroup) for name in self._kernel.folders(folder)}
            for name in sorted(names):
                uid = name.removeprefix(_POD)
                if uid != name and _is_name(uid):
                    yield uid, tier

    def _leaves(self) -> Iterator[str]:
        for uid, _ in self._pods():
            yield self._cgroup(uid)
            for id in self.containers(uid):
                yield f"{self._cgroup(uid)}/{id}"

    def _folders(self, cgroup: str) -> list[Path]:
        return [mount / cgroup for mount in self._hierarchies.mounts]

    def _inside(self, folder: Path) -> Iterator[Path]:
        """A folder and all below it, the deepest first."""
        for name in self._kernel.folders(folder):
            yield from self._inside(folder / name)
        yield folder

    def _pids(self, cgroup: str) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for folder in self._folders(cgroup):
            for inner in self._inside(folder):
                for text in (self._kernel.read(inner / _PROCS) or "").split():
                    # 0 is a process that this agent cannot see; neither is it ever to end itself.
                    if text.isdigit() and int(text) not in (0, os.getpid()):
                        found[int(text)] = None
        return tuple(found)

    def _foreign(self) -> CgroupFault | None:
        """Whether the root is somebody else's: made by another, or not by an agent at all."""
        for folder in self._folders(self._root):
            below = self._kernel.folders(folder)
            owners = [name for name in below if name.startswith(_OWNER)]
            unmarked = below and not owners and not self._made_root
            if (owners and self._owner not in owners) or unmarked:
                whose = owners[0].removeprefix(_OWNER) if owners else "somebody else"
                return CgroupFault(str(folder), self._owner, f"this root belongs to {whose}")
        return None

    def _make(self, cgroup: str) -> Iterator[CgroupFault]:
        """Make a cgroup in every hierarchy; the one above it is there."""
        for file, value, number in self._hierarchies.above(cgroup):
            yield CgroupFault(file, value, os.strerror(number))
        for folder in self._folders(cgroup):
            number = self._kernel.make(folder)
            if number:
                yield CgroupFault(str(folder), "", os.strerror(number))
        for file, value, number in self._hierarchies.made(cgroup):
            yield CgroupFault(file, value, os.strerror(number))

    def _apply(self, cgroup: str, resources: LinuxResources) -> Sequence[CgroupFault]:
        return list(self._write_all(cgroup, self._hierarchies.writes(resources)))

    def _write_all(self, cgroup: str, writes: Iterable[Write]) -> Iterator[CgroupFault]:
        for write in writes:
            name = self._hierarchies.shown(cgroup, write)
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

    def _write(self, cgroup: str, name: str, write: Write) -> CgroupFault | None:
        if write.error:
            return CgroupFault(name, write.value, write.error, absent=True)
        folder = self._hierarchies.folder(cgroup, write.controller)
        if folder is None:
            error = f"this machine has no {write.controller} controller for us"
            return CgroupFault(name, write.value, error, absent=True)
        number = self._hierarchies.write(folder, write)
        return CgroupFault(name, write.value, os.strerror(number)) if number else None
