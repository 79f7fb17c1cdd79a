"""Interface of a node's cgroups: faults, usage, and the protocol `Cgroups`.

Names and values are the kernel's; a cgroup is identified by the pod's UID and the ID of a container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plimsoll.node.cgroup_plans.pods import PodPlan
from plimsoll.node.cgroup_plans.qos_cgroups import QosCgroupPlan
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class CgroupFault:
    """Value that could not be set, and the error.

    `absent`: the controller is not available on this machine, so that the value can never be set; other
    faults are worth a retry.
    """

    file: str
    value: str
    error: str
    absent: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.value!r} cannot be set: {self.error}"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Resource usage of a pod or container; None where it cannot be measured."""

    memory: int | None = None  #: bytes of the working set: usage less what can be reclaimed at once
    cpu: int | None = None  #: nanoseconds since creation
    pids: int | None = None
    memory_in_use: int | None = None  #: bytes, including what can be reclaimed


class Cgroups(Protocol):
    """Cgroups of one agent: its own root, QoS cgroups, pods, containers.

    Calls are idempotent. Those that remove wait (a second or two) for processes to exit: call them from a
    thread. UIDs and IDs that cannot be directory names raise InputError before anything is changed.
    """

    #: 1 or 2; 0: nothing is applied, only recorded.
    version: int
    #: Reason for this version, for display.
    note: str

    def set_up(self, limits: LinuxResources | None = None) -> tuple[CgroupFault, ...]:
        """Create the root, with these limits for all pods together, and the QoS cgroups."""
        ...

    def root_directories(self) -> tuple[Path, ...]:
        """Return the directory of the root in every hierarchy; nothing for a plan."""
        ...

    def lost(self) -> tuple[str, ...]:
        """Return the parts of the root that are missing or belong to another owner; empty if it is
        complete.
        """
        ...

    def is_lost(self, pod: str, id: str = "") -> bool:
        """Return whether the cgroup of a pod or container is missing in one of the hierarchies."""
        ...

    def apply_tiers(self, plan: QosCgroupPlan) -> tuple[CgroupFault, ...]: ...

    def make_pod(self, uid: str, qos: str, plan: PodPlan) -> tuple[CgroupFault, ...]:
        """Create the cgroup of a pod, or change its values."""
        ...

    def remove_pod(self, uid: str) -> bool:
        """Kill remaining processes and remove the cgroup; return False if something is left."""
        ...

    def make_container(self, pod: str, id: str, resources: LinuxResources) -> tuple[CgroupFault, ...]:
        """Create the cgroup of a container, or change its values."""
        ...

    def remove_container(self, pod: str, id: str) -> bool:
        """Kill remaining processes and remove the cgroup; return False if something is left."""
        ...

    def tear_down(self) -> bool:
        """Remove the root with all remaining pods; return False if something is left."""
        ...

    def join_files(self, pod: str, id: str) -> tuple[Path, ...]:
        """Return the files to which a process ID is written to join the container."""
        ...

    def pids(self, pod: str, id: str = "") -> tuple[int, ...]:
        """Return the processes of a container, or of a pod."""
        ...

    def kill(self, pod: str, id: str = "") -> None:
        """Send SIGKILL to all processes."""
        ...

    def usage(self, pod: str, id: str = "") -> PodUsage | None:
        """Return the usage of a pod or container; None if it has no cgroup."""
        ...

    def cpus(self, pod: str, id: str = "") -> str:
        """Return the CPUs its processes may run on, as a list of ranges; empty if unknown."""
        ...

    def pods(self) -> tuple[str, ...]:
        """Return the UIDs of the pods that have a cgroup, leftovers included."""
        ...

    def containers(self, pod: str) -> tuple[str, ...]:
        """Return the IDs of a pod's containers that have a cgroup, leftovers included."""
        ...

    def plan(self) -> Mapping[str, str]:
        """Return all values that were set, or would have been, by file."""
        ...

    def unapplied(self) -> Mapping[str, CgroupFault]:
        """Return the faults of planned values that are not applied, by file."""
        ...
