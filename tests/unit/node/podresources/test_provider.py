"""What PodResources is told about a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod, ResourceList
from plimsoll.api.quantity import Quantity
from plimsoll.node.claims.claim_info_cache import ClaimBook
from plimsoll.node.containers import ContainerState, Phase
from plimsoll.node.machine.machine import Machine, NumaNode, Reservations
from plimsoll.node.podresources.provider import Sights
from plimsoll.node.podresources.source import MemoryBlock
from plimsoll.node.runtime.simulated import NoneRuntime


class Pinned(NoneRuntime):
    """A runtime whose containers are these."""

    states: Sequence[ContainerState] = ()

    def containers(self, pod: str = "") -> Sequence[ContainerState]:
        return [state for state in self.states if pod in ("", state.pod)]


def state(pod: str, name: str, cpus: str, phase: Phase = Phase.RUNNING) -> ContainerState:
    return ContainerState(id=f"{pod}-{name}", pod=pod, name=name, attempt=0, phase=phase, cpus=cpus)


def pod(uid: str, *containers: str) -> Pod:
    tree = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": name} for name in containers]},
    }
    return codec.convert(tree, Pod)


CAPACITY: ResourceList = {"cpu": Quantity.of(8), "memory": Quantity.of(1 << 30)}


@dataclass
class Node:
    runtime: Pinned = field(default_factory=Pinned)
    machine: Machine = field(default_factory=lambda: Machine(capacity=CAPACITY, cpus=tuple(range(8))))
    reservations: Reservations = field(default_factory=Reservations)

    def sights(self) -> Sights:
        book = ClaimBook(None)  # type: ignore[arg-type]  # no driver is asked
        return Sights(lambda: (), lambda _: True, book, self.runtime, lambda: self.machine, self.reservations)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), (2, 3)),
        ((state("q", "c", "0-1,4-7"),), (2, 3)),
        ((state("q", "c", "3-4"),), ()),  # somebody else runs there too
        ((state("q", "c", ""),), ()),  # somebody else runs everywhere
        ((state("q", "c", "", Phase.EXITED),), (2, 3)),
    ],
)
def test_cpus_that_one_container_alone_has(
    others: tuple[ContainerState, ...], expected: tuple[int, ...]
) -> None:
    node = Node()
    node.runtime.states = (state("p", "c", "2-3"), *others)
    assert node.sights().cpus_of(pod("p", "c"), Container(name="c")) == expected


def test_a_container_that_is_not_pinned_has_no_cpus_of_its_own() -> None:
    node = Node()
    node.runtime.states = (state("p", "c", ""),)
    assert node.sights().cpus_of(pod("p", "c"), Container(name="c")) == ()


def test_pins_are_looked_up_again_when_something_has_changed() -> None:
    node = Node()
    node.runtime.states = (state("p", "c", "2-3"),)
    sights = node.sights()
    before = sights.revision()
    assert sights.cpus_of(pod("p", "c"), Container(name="c")) == (2, 3)
    node.runtime.states = (state("p", "c", "4"),)
    sights.stir()
    assert sights.revision() != before
    assert sights.cpus_of(pod("p", "c"), Container(name="c")) == (4,)


def test_allocatable_leaves_out_reserved_cpus_and_tells_memory_by_node() -> None:
    node = Node(reservations=Reservations(cpus=(0, 1)))
    node.machine = Machine(
        capacity=CAPACITY,
        cpus=tuple(range(4)),
        numa=(NumaNode(id=0, memory=100, huge_pages={"2Mi": 4}), NumaNode(id=1, memory=50)),
    )
    found = node.sights().allocatable()
    assert found.cpus == (2, 3)
    assert found.memory == (
        MemoryBlock("memory", 100, (0,)),
        MemoryBlock("hugepages-2Mi", 4, (0,)),
        MemoryBlock("memory", 50, (1,)),
    )
