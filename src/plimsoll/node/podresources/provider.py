"""PodResources provider: the node's pods, their claims and their CPUs.

Combines the agent's state. Claims come from the claim info cache, so that no driver is called (KEP-3695).
CPUs are listed as a container's own if no other container may run on them: drivers pin through NRI, and the
runtime knows what they set.

DIFF: the kubelet lists only CPUs of its own CPU manager; here CPUs that a driver assigned to one container
alone are listed too (test_exclusive_cpus_of_a_container).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import Runtime
from plimsoll.node.exclusive_cpus import exclusive_cpus
from plimsoll.node.machine.machine import Machine, Reservations
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PodResourcesSource


class PodResourcesProvider(PodResourcesSource):
    """Pods of a node and their resources, from the state of its agent."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        is_active: Callable[[Pod], bool],
        claim_cache: ClaimInfoCache,
        runtime: Runtime,
        machine: Callable[[], Machine],
        reservations: Reservations,
    ) -> None:
        self._pods = pods
        self._is_active = is_active
        self._claim_cache = claim_cache
        self._runtime = runtime
        self._machine = machine
        self._reservations = reservations
        self._changes = 0
        self._own: tuple[int, dict[tuple[str, str], tuple[int, ...]]] = (-1, {})

    def invalidate(self) -> None:
        """Invalidate cached responses after a change of pods or containers."""
        self._changes += 1

    def revision(self) -> object:
        return self._changes, self._claim_cache.revision

    def pods(self) -> Sequence[Pod]:
        return self._pods()

    def is_active(self, pod: Pod) -> bool:
        return self._is_active(pod)

    def claims_of(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        return self._claim_cache.claims_of_container(pod, container)

    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        changes, own = self._own
        if changes != self._changes:
            own = exclusive_cpus(self._runtime.containers())
            self._own = (self._changes, own)
        return own.get((pod.metadata.uid, container.name), ())

    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        return ()  # no component assigns memory of specific NUMA nodes to containers

    def allocatable(self) -> Allocatable:
        machine = self._machine()
        cpus = tuple(cpu for cpu in machine.cpus if cpu not in self._reservations.cpus)
        return Allocatable(cpus=cpus, memory=tuple(_memory_blocks(machine)))


def _memory_blocks(machine: Machine) -> list[MemoryBlock]:
    """Return memory and huge pages by NUMA node."""
    blocks = []
    for node in machine.numa:
        blocks.append(MemoryBlock("memory", node.memory, (node.id,)))
        blocks += [
            MemoryBlock(f"hugepages-{size}", n, (node.id,)) for size, n in node.huge_pages.items() if n
        ]
    return blocks
