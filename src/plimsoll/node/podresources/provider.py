"""What PodResources is told about this node: the pods, their claims and their CPUs.

Owns `PodResourcesProvider`, which puts the agent's books together. Claims come from the claim book, so that
nothing is asked of drivers (document 004). A container's CPUs are its own if nobody else may run on them:
drivers pin by NRI, and what they set is what the runtime knows.

DIFF: the kubelet lists CPUs of its own CPU manager only; here CPUs that a driver gave to one container alone
are listed too (test_cpus_that_one_container_alone_has).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import ContainerInfo, ContainerPhase, Runtime
from plimsoll.node.machine.machine import Machine, Reservations, parse_cpus
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, Source


class PodResourcesProvider(Source):
    """A node's pods and what they hold, from the books of its agent."""

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
        """Something about pods or containers has changed."""
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
            own = own_cpus(self._runtime.containers())
            self._own = (self._changes, own)
        return own.get((pod.metadata.uid, container.name), ())

    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        return ()  # nobody here gives memory of certain NUMA nodes to containers

    def allocatable(self) -> Allocatable:
        machine = self._machine()
        cpus = tuple(cpu for cpu in machine.cpus if cpu not in self._reservations.cpus)
        return Allocatable(cpus=cpus, memory=tuple(_memory_blocks(machine)))


def own_cpus(states: Iterable[ContainerInfo]) -> dict[tuple[str, str], tuple[int, ...]]:
    """The CPUs of containers, by pod and name, that are pinned to CPUs on which nobody else may run."""
    pinned: dict[tuple[str, str], tuple[int, ...]] = {}
    users: Counter[int] = Counter()
    for state in states:
        if state.phase is ContainerPhase.EXITED:
            continue
        if not state.cpus:
            return {}  # somebody may run everywhere
        cpus = pinned[state.pod, state.name] = parse_cpus(state.cpus)
        users.update(cpus)
    return {key: cpus for key, cpus in pinned.items() if all(users[cpu] == 1 for cpu in cpus)}


def _memory_blocks(machine: Machine) -> list[MemoryBlock]:
    """Memory and huge pages by NUMA node."""
    blocks = []
    for node in machine.numa:
        blocks.append(MemoryBlock("memory", node.memory, (node.id,)))
        blocks += [
            MemoryBlock(f"hugepages-{size}", n, (node.id,)) for size, n in node.huge_pages.items() if n
        ]
    return blocks
