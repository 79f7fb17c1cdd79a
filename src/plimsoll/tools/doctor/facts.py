"""Facts that the doctor checks, one type per area.

Every field has a default, so that a check can be tested with only the facts it needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plimsoll.api.core import Node
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.layout import Layout
from plimsoll.node.machine.machine import Machine
from plimsoll.protocols.cdi import CdiFault
from plimsoll.tools.doctor.files import FileEntry

_ABSENT = FileEntry(path=Path("/"))
Role = Literal["pod-resources", "nri", "registration", "driver"]


@dataclass(frozen=True, slots=True)
class LockState:
    """Lock file: held or not, and the PID in it."""

    entry: FileEntry = _ABSENT
    held: bool = False
    pid: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFacts:
    entry: FileEntry = _ABSENT
    space: os.statvfs_result | None = None
    lock: LockState = LockState()
    #: Subdirectories that are root directories of other agents.
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFact:
    """Socket, and in `answer` the result of connecting to it (see `files.probe_socket`)."""

    role: Role
    entry: FileEntry
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFact:
    """Registration data of a plugin; `problem` if it is unusable."""

    socket: Path
    name: str = ""
    endpoint: str = ""
    endpoint_answer: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFacts:
    registry: FileEntry = _ABSENT
    sockets: tuple[SocketFact, ...] = ()
    drivers: tuple[DriverFact, ...] = ()
    #: Number of pods PodResources lists; None if unknown.
    listed: int | None = None
    list_error: str = ""

    @property
    def served(self) -> frozenset[str]:
        """Drivers that can be reached."""
        return frozenset(each.name for each in self.drivers if not each.problem and not each.endpoint_answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivilegeFacts:
    """Privileges of the running agent, else of the doctor. None: unknown."""

    pid: int = 0
    uid: int = 0
    capabilities: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    real: Machine | None = None
    real_error: str = ""
    #: The machine of the machine file, if one is configured.
    declared: Machine | None = None
    declared_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRoot:
    """Cgroup root of an agent that is not running and whose directory `data` was deleted."""

    name: str
    directories: tuple[Path, ...]  #: in all hierarchies
    data: str
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    version: int = 0
    planned: bool = False  #: cgroups are disabled in the settings
    controllers: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    root: str = ""
    exists: bool = False
    owners: tuple[str, ...] = ()
    #: QoS cgroups that are missing below our root.
    missing_tiers: tuple[str, ...] = ()
    #: UID -> number of processes.
    pods: Mapping[str, int] = field(default_factory=dict)
    #: The owner that our root must be marked with.
    owner: str = ""
    orphans: tuple[OrphanRoot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFact:
    """Record file; `newer`: written by a newer version."""

    entry: FileEntry = _ABSENT
    problem: str = ""
    newer: bool = False
    version: int | None = None
    count: int = 0

    @property
    def usable(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """The three record files; claims are the agent's, else the kubelet's."""

    claims: RecordFact = RecordFact()
    admitted: RecordFact = RecordFact()
    kubelet: RecordFact = RecordFact()
    prepared: tuple[ClaimInfo, ...] = ()
    #: UID -> namespace/name of admitted pods; "" if the record has no names.
    pods: Mapping[str, str] = field(default_factory=dict)

    @property
    def claims_known(self) -> bool:
        return self.claims.usable and (self.claims.entry.exists or self.kubelet.usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDir:
    """Directory of a container attempt. `alive`: its shim or its first process runs."""

    path: Path
    name: str
    attempt: str
    problem: str = ""
    started: bool = False
    exited: bool = False
    alive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDir:
    entry: FileEntry
    uid: str
    name: str = ""  #: namespace/name
    problem: str = ""
    containers: tuple[ContainerDir, ...] = ()

    @property
    def running(self) -> int:
        """Number of running containers."""
        return sum(each.alive for each in self.containers)

    @property
    def title(self) -> str:
        return f"{self.name} ({self.uid})" if self.name else self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    pods: tuple[PodDir, ...] = ()
    error: str = ""
    more: bool = False
    strange: tuple[FileEntry, ...] = ()
    quarantine: tuple[FileEntry, ...] = ()
    #: Specs of containers that do not exist -> PIDs of the shim and its descendants.
    orphans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCdiFile:
    """CDI file whose name, or whose device names, contain UIDs. `only`: all of them do."""

    entry: FileEntry
    uids: frozenset[str]
    own: bool = False  #: below the agent's root
    only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFacts:
    directories: tuple[Path, ...] = ()
    devices: int = 0
    faults: tuple[CdiFault, ...] = ()
    files: tuple[ClaimCdiFile, ...] = ()
    #: Undefined CDI name of a prepared claim, its claim and driver, and why it is undefined.
    unresolved: tuple[tuple[str, str, str], ...] = ()
    #: Number of CDI names of the prepared claims.
    names: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    uid: str
    name: str
    ended: bool = False
    #: Creation time; 0 if unknown.
    created: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedClaim:
    """Claim reserved for a pod of this node."""

    name: str
    uid: str
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """API objects of the node; `error` if the API is unreachable, `refused` has failed reads and reasons."""

    server: str = ""
    error: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    node: Node | None = None
    node_missing: bool = False
    lease_age: float | None = None
    lease_seconds: int = 40
    lease_missing: bool = False
    skew: float | None = None
    pods: tuple[BoundPod, ...] | None = None
    claims: tuple[ReservedClaim, ...] = ()
    #: ResourceSlices of the node by driver.
    slices: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All gathered facts; `owner` of the root directory, `pid` of the agent or kubelet if known."""

    layout: Layout
    now: float
    node: str = ""
    owner: Literal["agent", "kubelet"] = "agent"
    running: bool = False
    pid: int | None = None
    runtime: str = "process"
    uid: int = 0  #: expected owner of files, besides root
    root: RootFacts = RootFacts()
    sockets: SocketFacts = SocketFacts()
    privileges: PrivilegeFacts = PrivilegeFacts()
    machine: MachineFacts = MachineFacts()
    cgroups: CgroupFacts = CgroupFacts()
    records: RecordFacts = RecordFacts()
    pods: PodFacts = PodFacts()
    cdi: CdiFacts = CdiFacts()
    cluster: ClusterFacts | None = None

    @property
    def is_kubelet(self) -> bool:
        return self.owner == "kubelet"

    @property
    def whose(self) -> str:
        return "the kubelet" if self.is_kubelet else "the agent"
