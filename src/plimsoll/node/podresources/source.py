"""What PodResources needs to know of a node.

Owns `Source` and the values it answers with. Nothing here says how a node knows; a test's source is a few
lists.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plimsoll.api.core import Container, Pod
from plimsoll.node.claim_info import ClaimInfo


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory set aside: its type (memory, hugepages-2Mi), bytes, and the NUMA nodes it is on."""

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
    """What pods can have of this node; claims have no part in it."""

    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[PluginDevices, ...] = ()


class Source(Protocol):
    """A node's pods and what they hold. Derive from it to have the answers that few nodes need to give."""

    @abstractmethod
    def revision(self) -> object:
        """Equal for as long as nothing has changed; asked at every call, so it must be cheap."""
        ...

    @abstractmethod
    def pods(self) -> Sequence[Pod]:
        """The pods the node knows, terminated ones included, in the order in which they are to be listed."""
        ...

    @abstractmethod
    def is_active(self, pod: Pod) -> bool:
        """False for a pod that has ended (or was never let in), and has no container running any more."""
        ...

    @abstractmethod
    def claims_of(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        """The claims a container names, whole; None if one of them is not known here."""
        ...

    @abstractmethod
    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        """The CPUs that are a container's alone."""
        ...

    @abstractmethod
    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        """The memory that is a container's alone."""
        ...

    @abstractmethod
    def allocatable(self) -> Allocatable: ...

    def devices_of(self, pod: Pod, container: Container) -> tuple[PluginDevices, ...]:
        """What a container has from device plugins."""
        return ()

    def pod_cpus_of(self, pod: Pod) -> tuple[int, ...]:
        """The CPUs that the containers of a pod share among themselves (1.37)."""
        return ()

    def pod_memory_of(self, pod: Pod) -> tuple[MemoryBlock, ...]:
        """The memory that the containers of a pod share among themselves (1.37)."""
        return ()
