"""Container runtime interface: specifications passed to a runtime, states it reports, and `Runtime` itself.

Times are seconds since the epoch, as floats of the machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from plimsoll.common.checkpoint import NodeFinding
from plimsoll.node.cgroup_plans.containers import ContainerPlan
from plimsoll.node.cgroup_plans.pods import PodPlan, SandboxPlan
from plimsoll.node.security.credentials import ProcessCredentials
from plimsoll.protocols.cdi import Edits


class ContainerPhase(StrEnum):
    """Phase in the lifecycle of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Specification of a pod sandbox."""

    uid: str
    name: str
    namespace: str
    qos: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    plan: PodPlan
    sandbox: SandboxPlan


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """Mount of a volume, a file or directory of the machine, in a container."""

    source: str
    target: str
    read_only: bool = False
    propagation: str = ""  #: as in the API; "" and None: private


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """Specification of a container to create; `id` is new for every attempt."""

    id: str
    pod: str
    name: str
    attempt: int = 0
    image: str = ""
    command: tuple[str, ...] = ()
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()
    #: Mounts and device nodes of device plugins.
    edits: Edits = field(default_factory=Edits)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[VolumeMount, ...] = ()
    #: File inside the container whose content is the message of its exit; "": none. And the end of the log
    #: in its place, if the container fails and there is no such file, or it is empty.
    message_path: str = ""
    message_from_log: bool = False
    #: Signal that asks the container to terminate, if it is not SIGTERM.
    stop_signal: str = ""
    #: Input that clients can attach to, only once or again and again, and a terminal.
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    #: Identity of its processes; a runtime that starts processes requires it.
    credentials: ProcessCredentials | None = None
    plan: ContainerPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInfo:
    """State of a container as the runtime reports it."""

    id: str
    pod: str
    name: str
    attempt: int
    phase: ContainerPhase
    pid: int = 0
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    cpus: str = ""
    log: str = ""
    #: Reference of the image with its digest, where the runtime has images.
    image_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStorage:
    """Bytes on disk of a container: files that it wrote outside of volumes, and its logs."""

    files: int = 0
    logs: int = 0
    on_image_disk: bool = False  #: its files are on another disk than the node's directory


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """State of a pod sandbox as the runtime reports it; `running` is False once it was stopped."""

    uid: str
    name: str
    namespace: str
    running: bool
    created_at: float = 0.0
    ip: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeFault:
    """Failure of a runtime call: the reason shown in container statuses, and the message.

    `waits_for` holds the UIDs of claims that have to be unprepared first; the step is retried once one of
    them is.
    """

    reason: str
    message: str
    waits_for: frozenset[str] = frozenset()


class Runtime(Protocol):
    """Container runtime. Calls that change state are idempotent: a missing object is not a failure."""

    #: Scheme of container IDs: `process://ID`.
    name: str
    version: str
    #: Volume types the runtime can provide; None for all, because nothing reads them.
    volume_types: frozenset[str] | None
    #: Containers have processes, rather than a state only.
    runs_processes: bool

    @property
    def findings(self) -> Sequence[NodeFinding]:
        """Problems with the state an earlier agent left, and later ones, newest first."""
        ...

    async def start(self, changed: Callable[[str], None]) -> None:
        """Adopt running containers. `changed` is called with the UID of a pod whose containers have
        changed.
        """
        ...

    async def stop(self) -> None:
        """Release all resources of the runtime client; containers keep running."""
        ...

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None: ...

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        """Apply the changed plan of a pod (a resize)."""
        ...

    async def stop_sandbox(self, uid: str) -> None:
        """Kill all remaining containers of a pod at once."""
        ...

    async def remove_sandbox(self, uid: str) -> None:
        """Remove a pod sandbox with its containers."""
        ...

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None: ...

    async def start_container(self, id: str) -> RuntimeFault | None: ...

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        """Apply the changed plan of a container (a resize)."""
        ...

    async def stop_container(self, id: str, grace: float) -> None:
        """Ask a container to terminate and kill it after `grace` seconds; return once it has exited."""
        ...

    async def remove_container(self, id: str) -> None: ...

    def sandboxes(self) -> Sequence[SandboxInfo]: ...

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        """Return the containers of a pod, or all, oldest first; exited ones until they are removed."""
        ...

    async def container_storage(self, pod: str) -> Mapping[str, ContainerStorage]:
        """Measure the disk usage of a pod's containers, by name."""
        ...
