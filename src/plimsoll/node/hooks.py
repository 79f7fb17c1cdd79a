"""What may have a say in containers before and while they run: NRI plugins, or nobody.

Owns the protocol between a runtime and its hooks, and `NO_HOOKS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.node.containers import ContainerSpec, ContainerState, RuntimeFault, SandboxSpec
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class MountEdit:
    """A mount, as CDI and NRI ask for it."""

    source: str
    target: str
    type: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceEdit:
    """A device node, as CDI and NRI ask for it."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted:
    """A container as hooks want it; `others` are changes of containers that run already, by id."""

    resources: LinuxResources
    env: Mapping[str, str] = field(default_factory=dict)
    #: Variables that it must not have.
    unset: frozenset[str] = frozenset()
    command: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    mounts: tuple[MountEdit, ...] = ()
    devices: tuple[DeviceEdit, ...] = ()
    oom_score_adj: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, LinuxResources] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """A container that a runtime has: as it was asked for and adjusted, as it is, and what it may use."""

    spec: ContainerSpec
    state: ContainerState
    resources: LinuxResources


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that a runtime has, for hooks that come late."""

    pods: tuple[SandboxSpec, ...] = ()
    containers: tuple[Held, ...] = ()


class Hooks(Protocol):
    """Called by a runtime, in the order of a container's life. Only `create` can refuse."""

    async def sandbox_run(self, pod: SandboxSpec) -> RuntimeFault | None: ...

    async def sandbox_update(self, pod: SandboxSpec) -> RuntimeFault | None:
        """Before a pod's own resources are changed (a resize)."""
        ...

    async def sandbox_updated(self, pod: SandboxSpec) -> None: ...

    async def sandbox_stopped(self, pod: SandboxSpec) -> None: ...

    async def sandbox_removed(self, pod: SandboxSpec) -> None: ...

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> Adjusted | RuntimeFault:
        """Before a container is made: what is to be different about it, or that it must not be made."""
        ...

    async def created(self, pod: SandboxSpec, container: ContainerState) -> None: ...

    async def starting(self, pod: SandboxSpec, container: ContainerState) -> None: ...

    async def started(self, pod: SandboxSpec, container: ContainerState) -> None: ...

    async def update(
        self, pod: SandboxSpec, container: ContainerState, resources: LinuxResources
    ) -> Adjusted | RuntimeFault:
        """Before a container's resources are changed (a resize)."""
        ...

    async def updated(self, pod: SandboxSpec, container: ContainerState) -> None: ...

    async def stopped(self, pod: SandboxSpec, container: ContainerState) -> Mapping[str, LinuxResources]:
        """After a container has ended, by itself too: changes of other containers, by id."""
        ...

    async def removed(self, pod: SandboxSpec, container: ContainerState) -> None: ...


class _NoHooks:
    async def sandbox_run(self, pod: SandboxSpec) -> RuntimeFault | None:
        return None

    async def sandbox_update(self, pod: SandboxSpec) -> RuntimeFault | None:
        return None

    async def sandbox_updated(self, pod: SandboxSpec) -> None:
        return None

    async def sandbox_stopped(self, pod: SandboxSpec) -> None:
        return None

    async def sandbox_removed(self, pod: SandboxSpec) -> None:
        return None

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> Adjusted | RuntimeFault:
        return Adjusted(resources=resources)

    async def created(self, pod: SandboxSpec, container: ContainerState) -> None:
        return None

    async def starting(self, pod: SandboxSpec, container: ContainerState) -> None:
        return None

    async def started(self, pod: SandboxSpec, container: ContainerState) -> None:
        return None

    async def update(
        self, pod: SandboxSpec, container: ContainerState, resources: LinuxResources
    ) -> Adjusted | RuntimeFault:
        return Adjusted(resources=resources)

    async def updated(self, pod: SandboxSpec, container: ContainerState) -> None:
        return None

    async def stopped(self, pod: SandboxSpec, container: ContainerState) -> Mapping[str, LinuxResources]:
        return {}

    async def removed(self, pod: SandboxSpec, container: ContainerState) -> None:
        return None


#: A runtime without plugins.
NO_HOOKS: Hooks = _NoHooks()
