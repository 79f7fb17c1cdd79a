"""PodResources provider of a node agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from plimsoll.api.core import Container, Pod, ResourceList
from plimsoll.api.quantity import Quantity
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.machine.machine import Machine, NumaNode, Reservations
from plimsoll.node.podresources.provider import PodResourcesProvider
from plimsoll.node.podresources.source import MemoryBlock
from plimsoll.node.runtime.simulated import SimulatedRuntime
from tests.build import container, pod


class Pinned(SimulatedRuntime):
    """Runtime with given containers."""

    states: Sequence[ContainerInfo] = ()

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        return [state for state in self.states if pod in ("", state.pod)]


def state(pod: str, name: str, cpus: str, phase: ContainerPhase = ContainerPhase.RUNNING) -> ContainerInfo:
    return ContainerInfo(id=f"{pod}-{name}", pod=pod, name=name, attempt=0, phase=phase, cpus=cpus)


def pod_of(uid: str, *containers: str) -> Pod:
    return pod(uid, *map(container, containers), uid=uid)


def claiming(uid: str, cpu: str) -> Pod:
    """Return a pod whose container `c` has a claim for CPUs."""
    entry = {"resourceClaimName": "x", "containers": ["c"], "resources": {"cpu": cpu}}
    return pod(uid, container("c"), uid=uid, status={"nodeAllocatableResourceClaimStatuses": [entry]})


CAPACITY: ResourceList = {"cpu": Quantity.of(8), "memory": Quantity.of(1 << 30)}


@dataclass
class FakeNode:
    runtime: Pinned = field(default_factory=Pinned)
    machine: Machine = field(default_factory=lambda: Machine(capacity=CAPACITY, cpus=tuple(range(8))))
    reservations: Reservations = field(default_factory=Reservations)

    def pod_resources_provider(self) -> PodResourcesProvider:
        claims = ClaimInfoCache(None)  # type: ignore[arg-type]  # no driver is asked
        return PodResourcesProvider(
            lambda: (), lambda _: True, claims, self.runtime, lambda: self.machine, self.reservations
        )


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), (2, 3)),
        ((state("q", "c", "0-1,4-7"),), (2, 3)),
        ((state("q", "c", "3-4"),), ()),  # another process runs there too
        ((state("q", "c", ""),), ()),  # another process runs everywhere
        ((state("q", "c", "", ContainerPhase.EXITED),), (2, 3)),
    ],
)
def test_exclusive_cpus_of_a_container(others: tuple[ContainerInfo, ...], expected: tuple[int, ...]) -> None:
    node = FakeNode()
    node.runtime.states = (state("p", "c", "2-3"), *others)
    assert node.pod_resources_provider().cpus_of(claiming("p", "2"), Container(name="c")) == expected


@pytest.mark.parametrize("plain", [pod_of("p", "c"), claiming("p", "1")])
def test_a_container_alone_on_the_shared_pool_has_no_exclusive_cpus(plain: Pod) -> None:
    node = FakeNode()
    node.runtime.states = (state("p", "c", "0-7"), state("q", "c", "", ContainerPhase.EXITED))
    assert node.pod_resources_provider().cpus_of(plain, Container(name="c")) == ()


def blocks(*nodes: int) -> tuple[MemoryBlock, ...]:
    return MemoryBlock("hugepages-2Mi", 4 << 20, nodes), MemoryBlock("memory", 1 << 30, nodes)


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        ({("p", "c"): "1"}, blocks(1)),
        ({("p", "c"): "0-1"}, blocks(0, 1)),
        ({("p", "other"): "1"}, ()),
        ({}, ()),  # where its memory comes from is not known
    ],
)
def test_memory_of_claims_on_pinned_numa_nodes(
    pinned: dict[tuple[str, str], str], expected: tuple[MemoryBlock, ...]
) -> None:
    amounts = {"memory": "1Gi", "hugepages-2Mi": "4Mi", "cpu": "2"}
    entry = {"resourceClaimName": "x", "containers": ["c"], "resources": amounts}
    charged = pod("p", container("c"), uid="p", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    claims = ClaimInfoCache(None)  # type: ignore[arg-type]  # no driver is asked
    node = FakeNode()
    provider = PodResourcesProvider(
        lambda: (),
        lambda _: True,
        claims,
        node.runtime,
        lambda: node.machine,
        node.reservations,
        memory_nodes=lambda: pinned,
    )
    assert provider.memory_of(charged, Container(name="c")) == expected
    assert provider.memory_of(pod_of("p", "c"), Container(name="c")) == ()


def test_an_unpinned_container_has_no_exclusive_cpus() -> None:
    node = FakeNode()
    node.runtime.states = (state("p", "c", ""),)
    assert node.pod_resources_provider().cpus_of(claiming("p", "2"), Container(name="c")) == ()


def test_pins_are_read_again_after_a_change() -> None:
    node = FakeNode()
    node.runtime.states = (state("p", "c", "2-3"),)
    pod_resources_provider = node.pod_resources_provider()
    before = pod_resources_provider.revision()
    assert pod_resources_provider.cpus_of(claiming("p", "2"), Container(name="c")) == (2, 3)
    node.runtime.states = (state("p", "c", "4"),)
    pod_resources_provider.invalidate()
    assert pod_resources_provider.revision() != before
    assert pod_resources_provider.cpus_of(claiming("p", "2"), Container(name="c")) == (4,)


def test_allocatable_excludes_reserved_cpus_and_lists_memory_by_numa_node() -> None:
    node = FakeNode(reservations=Reservations(cpus=(0, 1)))
    node.machine = Machine(
        capacity=CAPACITY,
        cpus=tuple(range(4)),
        numa=(NumaNode(id=0, memory=100, huge_pages={"2Mi": 4}), NumaNode(id=1, memory=50)),
    )
    found = node.pod_resources_provider().allocatable()
    assert found.cpus == (2, 3)
    assert found.memory == (
        MemoryBlock("memory", 100, (0,)),
        MemoryBlock("hugepages-2Mi", 4, (0,)),
        MemoryBlock("memory", 50, (1,)),
    )
