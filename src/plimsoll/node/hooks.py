"""Runtime hooks: the interface through which NRI plugins adjust containers before and while they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.node.containers import ContainerInfo, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class MountEdit:
    """Mount requested by CDI or NRI."""

    source: str
    target: str
    type: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceEdit:
    """Device node requested by CDI or NRI."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustedContainer:
    """Container as adjusted by hooks."""

    resources: LinuxResources
    env: Mapping[str, str] = field(default_factory=dict)
    #: Environment variables to remove.
    unset: frozenset[str] = frozenset()
    command: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    mounts: tuple[MountEdit, ...] = ()
    devices: tuple[DeviceEdit, ...] = ()
    oom_score_adj: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """Container of a runtime: its adjusted specification, its state and its resources."""

    spec: ContainerSpec
    state: ContainerInfo
    resources: LinuxResources


@dataclass(frozen=True, slots=True)
class RuntimeState:
    """Sandboxes and containers of a runtime, for hooks that connect late."""

    pods: tuple[SandboxSpec, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()


class RuntimeHooks:
    """Hooks that a runtime calls in lifecycle order; the base class does nothing. Only `create` rejects."""

    async def sandbox_run(self, pod: SandboxSpec) -> RuntimeFault | None:
        return None

    async def sandbox_update(self, pod: SandboxSpec) -> RuntimeFault | None:
        """Run before a pod's own resources are changed (a resize)."""
        return None

    async def sandbox_updated(self, pod: SandboxSpec) -> None: ...

    async def sandbox_stopped(self, pod: SandboxSpec) -> None: ...

    async def sandbox_removed(self, pod: SandboxSpec) -> None: ...

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        """Run before a container is created; return its adjustments, or why it must not be created."""
        return AdjustedContainer(resources=resources)

    async def created(self, pod: SandboxSpec, container: ContainerInfo) -> None: ...

    async def starting(self, pod: SandboxSpec, container: ContainerInfo) -> None: ...

    async def started(self, pod: SandboxSpec, container: ContainerInfo) -> None: ...

    async def update(
        self, pod: SandboxSpec, container: ContainerInfo, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        """Run before a container's resources are changed (a resize)."""
        return AdjustedContainer(resources=resources)

    async def updated(self, pod: SandboxSpec, container: ContainerInfo) -> None: ...

    async def stopped(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        """Run after a container has exited, even on its own."""

    async def removed(self, pod: SandboxSpec, container: ContainerInfo) -> None: ...


#: Hooks of a runtime without NRI plugins.
NO_HOOKS = RuntimeHooks()
