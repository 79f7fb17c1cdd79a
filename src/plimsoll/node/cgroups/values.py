"""What the cgroups of a node are to others: faults, usage, and the protocol `Cgroups`.

Owns the types. Names and values are those of the kernel; a cgroup is known by the pod's UID and, below it, by
the id of a container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plimsoll.ledger.cgroups.pods import PodPlan
from plimsoll.ledger.cgroups.qos_cgroups import QosCgroupPlan
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class CgroupFault:
    """A value that was not set, and why.

    `absent`: this machine has no such controller (or not for us), so that it can never be set here; anything
    else is worth trying again.
    """

    file: str
    value: str
    error: str
    absent: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.value!r} cannot be set: {self.error}"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod or container uses; None where it cannot be measured here."""

    memory: int | None = None  #: bytes of the working set: what is in use less what can be dropped at once
    cpu: int | None = None  #: nanoseconds since it was made
    pids: int | None = None
    memory_in_use: int | None = None  #: bytes, with what can be dropped


class Cgroups(Protocol):
    """The cgroups of one agent: a root of its own, QoS tiers, pods, containers.

    Calls can be repeated. Those that remove wait (a second or two) for processes to go: call them from a
    thread. UIDs and ids that cannot be names of folders raise InputError before anything is touched.
    """

    #: 1 or 2; 0: nothing is applied, only recorded.
    version: int
    #: Why it is this version and no other, for showing.
    note: str

    def set_up(self, limits: LinuxResources | None = None) -> tuple[CgroupFault, ...]:
        """Make the root, with these limits for all pods together, and the tiers."""
        ...

    def root_folders(self) -> tuple[Path, ...]:
        """The folder of the root in every hierarchy; nothing for a plan."""
        ...

    def lost(self) -> tuple[str, ...]:
        """Return the parts of the root that are gone or not this agent's any more; empty if all is there."""
        ...

    def is_lost(self, pod: str, id: str = "") -> bool:
        """Return whether the cgroup of a pod or container is missing in one of the hierarchies."""
        ...

    def apply_tiers(self, plan: QosCgroupPlan) -> tuple[CgroupFault, ...]: ...

    def make_pod(self, uid: str, qos: str, plan: PodPlan) -> tuple[CgroupFault, ...]:
        """Make the cgroup of a pod, or change its values."""
        ...

    def remove_pod(self, uid: str) -> bool:
        """Kill what is left inside and remove it; False if something stayed."""
        ...

    def make_container(self, pod: str, id: str, resources: LinuxResources) -> tuple[CgroupFault, ...]:
        """Make the cgroup of a container, or change its values."""
        ...

    def remove_container(self, pod: str, id: str) -> bool:
        """Kill what is left inside and remove it; False if something stayed."""
        ...

    def tear_down(self) -> bool:
        """Remove the whole root with all pods that are left; False if something stayed."""
        ...

    def join_files(self, pod: str, id: str) -> tuple[Path, ...]:
        """A process whose pid is written to each of these has joined the container."""
        ...

    def pids(self, pod: str, id: str = "") -> tuple[int, ...]:
        """The processes of a container, or of a whole pod."""
        ...

    def kill(self, pod: str, id: str = "") -> None:
        """Send SIGKILL to everything inside."""
        ...

    def usage(self, pod: str, id: str = "") -> PodUsage | None:
        """What a pod (or one container) uses; None if there is no such cgroup."""
        ...

    def cpus(self, pod: str, id: str = "") -> str:
        """The CPUs its processes may run on, as a list of ranges; empty if that is not known."""
        ...

    def pods(self) -> tuple[str, ...]:
        """The UIDs of the pods that have a cgroup, leftovers included."""
        ...

    def containers(self, pod: str) -> tuple[str, ...]:
        """The ids of the containers of a pod that have a cgroup, leftovers included."""
        ...

    def plan(self) -> Mapping[str, str]:
        """File -> value: everything that was set, or would have been."""
        ...

    def unapplied(self) -> Mapping[str, CgroupFault]:
        """File -> fault: what stands in the plan but not in the kernel."""
        ...
