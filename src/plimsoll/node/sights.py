"""What PodResources is told about this node: the pods, their claims and their CPUs.

Owns `Sights`, which puts the agent's books together. Claims come from the claim book, so that nothing is
asked of drivers (document 004). A container's CPUs are its own if nobody else may run on them: drivers pin by
NRI, and what they set is what the runtime knows.

DIFF: the kubelet lists CPUs of its own CPU manager only; here CPUs that a driver gave to one container alone
are listed too (test_cpus_that_one_container_alone_has).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.node.claims.book import ClaimBook
from plimsoll.node.containers import Phase, Runtime
from plimsoll.node.machine import Machine, Reservations, parse_cpus
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, Source
from plimsoll.node.prepared import PreparedClaim


class Sights(Source):
    """A node's pods and what they hold, from the books of its agent."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        is_active: Callable[[Pod], bool],
        book: ClaimBook,
        runtime: Runtime,
        machine: Callable[[], Machine],
        reservations: Reservations,
    ) -> None:
        self._pods = pods
        self._is_active = is_active
        self._book = book
        self._runtime = runtime
        self._machine = machine
        self._reservations = reservations
        self._changes = 0
        self._sets: tuple[int, dict[tuple[str, str], frozenset[int] | None]] = (-1, {})

    def stir(self) -> None:
        """Something about pods or containers has changed."""
        self._changes += 1

    def revision(self) -> object:
        return self._changes, self._book.revision

    def pods(self) -> Sequence[Pod]:
        return self._pods()

    def is_active(self, pod: Pod) -> bool:
        return self._is_active(pod)

    def claims_of(self, pod: Pod, container: Container) -> tuple[PreparedClaim, ...] | None:
        return self._book.of_container(pod, container)

    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        key = (pod.metadata.uid, container.name)
        sets = self._cpu_sets()
        own = sets.get(key)
        if own is None:
            return ()  # it runs where everybody runs
        return (
            ()
            if any(own & self._cpus_used(cpus) for k, cpus in sets.items() if k != key)
            else tuple(sorted(own))
        )

    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        return ()  # nobody here gives memory of certain NUMA nodes to containers

    def allocatable(self) -> Allocatable:
        machine = self._machine()
        cpus = tuple(cpu for cpu in machine.cpus if cpu not in self._reservations.cpus)
        return Allocatable(cpus=cpus, memory=tuple(_memory_blocks(machine)))

    def _cpus_used(self, pinned: frozenset[int] | None) -> frozenset[int]:
        return frozenset(self._machine().cpus) if pinned is None else pinned

    def _cpu_sets(self) -> dict[tuple[str, str], frozenset[int] | None]:
        """The CPUs each container is pinned to; None: it may use all."""
        changes, sets = self._sets
        if changes != self._changes:
            sets = {
                (state.pod, state.name): frozenset(parse_cpus(state.cpus)) if state.cpus else None
                for state in self._runtime.containers()
                if state.phase is not Phase.EXITED
            }
            self._sets = (self._changes, sets)
        return sets


def _memory_blocks(machine: Machine) -> list[MemoryBlock]:
    """Memory and huge pages by NUMA node."""
    blocks = []
    for node in machine.numa:
        blocks.append(MemoryBlock("memory", node.memory, (node.id,)))
        blocks += [MemoryBlock(f"hugepages-{size}", n, (node.id,)) for size, n in node.huge_pages.items()]
    return blocks
