"""Containers as the parts of an agent speak of them, whatever runs them.

Owns the values that go to a runtime and come back from it, and `Runtime`, what an agent needs of one. Times
are seconds since the epoch, as floats of the machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from plimsoll.common.checkpoint import Finding
from plimsoll.ledger.cgroups.containers import ContainerPlan
from plimsoll.ledger.cgroups.pods import PodPlan, SandboxPlan
from plimsoll.node.security.credentials import Credentials


class Phase(StrEnum):
    """The life of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A pod as a runtime sees it."""

    uid: str
    name: str
    namespace: str
    qos: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    plan: PodPlan
    sandbox: SandboxPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container to be created. `id` is new for every attempt."""

    id: str
    pod: str
    name: str
    attempt: int = 0
    image: str = ""
    command: tuple[str, ...] = ()
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()
    #: The signal that asks it to end, where that is not SIGTERM.
    stop_signal: str = ""
    #: As whom its processes run; a runtime that starts processes starts none without.
    credentials: Credentials | None = None
    plan: ContainerPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """What a runtime knows of a container."""

    id: str
    pod: str
    name: str
    attempt: int
    phase: Phase
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxState:
    """What a runtime knows of a pod; `running` is False once it was stopped."""

    uid: str
    name: str
    namespace: str
    running: bool
    created_at: float = 0.0
    ip: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeFault:
    """Why a runtime did not do as asked: a reason as container statuses show it, and the text.

    `waits_for` are the UIDs of claims that have to be unprepared first; the step is retried once one is.
    """

    reason: str
    message: str
    waits_for: frozenset[str] = frozenset()


class Runtime(Protocol):
    """What runs containers. Calls that change something can be repeated; what is gone already is no fault."""

    #: As in container ids: `process://ID`.
    name: str
    version: str
    #: Types of volumes that it can provide; None: all, as nothing reads them.
    volume_types: frozenset[str] | None

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with what an earlier agent left, and what went wrong since, the newest of it."""
        ...

    async def start(self, changed: Callable[[str], None]) -> None:
        """Take over what runs from before; from then on `changed` is called with the UID of a pod one of
        whose containers has ended, or was changed by hooks."""
        ...

    async def stop(self) -> None:
        """Let go of everything; containers go on running."""
        ...

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None: ...

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        """Apply a pod's changed plan (a resize)."""
        ...

    async def stop_sandbox(self, uid: str) -> None:
        """Kill what is left of a pod at once."""
        ...

    async def remove_sandbox(self, uid: str) -> None:
        """Take away all that is left of a pod, its containers included."""
        ...

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None: ...

    async def start_container(self, id: str) -> RuntimeFault | None: ...

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        """Apply a container's changed plan (a resize)."""
        ...

    async def stop_container(self, id: str, grace: float) -> None:
        """Ask a container to end, and kill it after `grace` seconds; returns when it has ended."""
        ...

    async def remove_container(self, id: str) -> None: ...

    def sandboxes(self) -> Sequence[SandboxState]: ...

    def containers(self, pod: str = "") -> Sequence[ContainerState]:
        """The containers of a pod, or all, oldest first; exited ones until they are removed."""
        ...
