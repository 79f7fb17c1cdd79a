"""Differences between two readings of a machine."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Format, Quantity
from plimsoll.node.machine.changes import describe_changes, without_noise
from plimsoll.node.machine.machine import Machine, NumaNode

GI = 2**30


def a_machine(memory: int = 8 * GI, *nodes: int, cpu: int = 4) -> Machine:
    return Machine(
        capacity={"cpu": Quantity.of(cpu), "memory": Quantity.of(memory, Format.BINARY_SI)},
        cpus=tuple(range(cpu)),
        numa=tuple(NumaNode(id=id, cpus=(id,), memory=amount) for id, amount in enumerate(nodes)),
    )


def test_a_balloon_is_not_a_change() -> None:
    before = a_machine(8 * GI, 4 * GI, 4 * GI)
    for step in (1 << 20, 20 << 20, -(1 << 20), -(20 << 20)):
        now = a_machine(8 * GI + max(step, 0), 4 * GI + step, 4 * GI - step)
        assert without_noise(before, now) == before


def test_memory_that_shrinks_counts_at_once() -> None:
    before, now = a_machine(8 * GI), a_machine(8 * GI - 4096)
    assert without_noise(before, now) == now
    assert describe_changes(before, now) == "memory 8Gi -> 8388604Ki"


def test_more_than_noise_counts() -> None:
    before, now = a_machine(8 * GI, 4 * GI, 4 * GI), a_machine(9 * GI, 5 * GI, 4 * GI)
    assert without_noise(before, now) == now
    assert describe_changes(before, now) == "memory 8Gi -> 9Gi"


def test_added_and_removed_numa_nodes_are_reported() -> None:
    before, now = a_machine(8 * GI, 8 * GI), a_machine(8 * GI, 4 * GI, 4 * GI)
    assert without_noise(before, now) == now
    assert describe_changes(before, now) == "NUMA nodes"
    assert describe_changes(a_machine(8 * GI, 8 * GI), a_machine(8 * GI, 7 * GI)) == ""


def test_all_other_differences_are_named() -> None:
    before, now = a_machine(cpu=4), a_machine(cpu=8)
    assert describe_changes(before, now) == "cpu 4 -> 8, CPUs 0-3 -> 0-7"
    assert describe_changes(before, replace(before, kernel="6.1", labels={"a": "b"})) == (
        "kernel  -> 6.1, labels"
    )
    assert describe_changes(before, before) == ""


@given(st.lists(st.integers(-300, 300), max_size=30))
def test_reported_memory_never_exceeds_the_total(steps: list[int]) -> None:
    real = known = 100 * 4096
    machine = a_machine(known)
    for step in steps:
        real = max(4096, real + step * 4096 // 10)
        machine = without_noise(machine, a_machine(real))
        known = machine.memory
        assert known <= real
        assert (real - known) * 100 < max(known, 1), "and hardly ever less"
