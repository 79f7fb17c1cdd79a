"""Interface of the PodResources server to a node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plimsoll.api.core import Container, Pod
from plimsoll.node.claim_info import ClaimInfo


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory assigned: its type (memory, hugepages-2Mi), bytes, and NUMA nodes."""

    type: str
    size: int
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginDevices:
    """Devices of a device plugin, under the name of their extended resource."""

    resource: str
    ids: tuple[str, ...]
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocatable:
    """Allocatable resources of this node; claims are not part of it."""

    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[PluginDevices, ...] = ()


class PodResourcesSource(Protocol):
    """Pods of a node and their resources. Derive from it to inherit the defaults that suit most nodes."""

    @abstractmethod
    def revision(self) -> object:
        """Return a value that stays equal while nothing changes; must be cheap."""
        ...

    @abstractmethod
    def pods(self) -> Sequence[Pod]:
        """Return the pods the node knows, terminated ones included, in list order."""
        ...

    @abstractmethod
    def is_active(self, pod: Pod) -> bool:
        """Return False for a pod that has terminated (or was never admitted) and has no running container."""
        ...

    @abstractmethod
    def claims_of(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        """Return the claims a container references; None if one of them is not known."""
        ...

    @abstractmethod
    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        """Return the exclusive CPUs of a container."""
        ...

    @abstractmethod
    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        """Return the exclusive memory of a container."""
        ...

    @abstractmethod
    def allocatable(self) -> Allocatable: ...

    def devices_of(self, pod: Pod, container: Container) -> tuple[PluginDevices, ...]:
        """Return a container's devices of device plugins."""
        return ()

    def pod_cpus_of(self, pod: Pod) -> tuple[int, ...]:
        """Return the CPUs that the containers of a pod share among themselves (1.37)."""
        return ()

    def pod_memory_of(self, pod: Pod) -> tuple[MemoryBlock, ...]:
        """Return the memory that the containers of a pod share among themselves (1.37)."""
        return ()
