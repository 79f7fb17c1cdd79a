"""CPU selection compared with the naive version of the kubelet's, on random machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.allocate import (
    Assigned,
    InsufficientCpus,
    assign,
    assign_as_kubelet,
    explain,
)
from plimsoll.drivers.cpu.topology import Cpu, Topology
from tests.sizes import examples
from tests.unit.drivers.cpu.allocation import naive


@st.composite
def odd_machines(draw: st.DrawFn) -> Topology:
    """Generate machines of any shape: uneven nodes and cores, caches across nodes, repeated core IDs."""
    nodes = draw(st.integers(1, 6))
    per_socket = draw(st.sampled_from([1, 1, 2, nodes]))
    sockets_per_node = draw(st.sampled_from([1, 1, 1, 2])) if per_socket == 1 else 1
    repeat = draw(st.sampled_from([0, 0, 0, 3]))
    rows = []
    core = 0
    uneven = draw(st.booleans())
    cores, get_cpus_per_core = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    for node in range(nodes):
        for at in range(draw(st.integers(1, 4)) if uneven else cores):
            width = draw(st.sampled_from([1, get_cpus_per_core])) if uneven else get_cpus_per_core
            socket = node // per_socket * sockets_per_node + at % sockets_per_node
            cache = draw(st.integers(0, 3)) if uneven else socket
            rows += [(core % repeat if repeat else core, socket, node, cache)] * width
            core += 1
    if draw(st.booleans()):
        rows = draw(st.permutations(rows))
    no_cache = draw(st.booleans())
    cpus = (
        Cpu(at, core, socket, node, -1 if no_cache else cache)
        for at, (core, socket, node, cache) in enumerate(rows)
    )
    return Topology(tuple(cpus))


@st.composite
def requests(draw: st.DrawFn) -> tuple[Topology, set[int], int, AssignOptions]:
    topology = draw(odd_machines())
    cpus = [cpu.id for cpu in topology.cpus]
    taken = draw(st.sets(st.sampled_from(cpus)) | st.just(set()))
    available = set(cpus) - taken
    if draw(st.booleans()):
        available |= draw(st.sets(st.integers(0, 100), max_size=2))
    count = draw(st.integers(0, len(available) + 1))
    options = AssignOptions(
        algorithm=draw(st.sampled_from(Algorithm)),
        sorting=draw(st.sampled_from(Sorting)),
        group_size=draw(st.integers(1, 4)),
        align_l3=draw(st.booleans()),
    )
    if draw(st.booleans()):
        count -= count % options.group_size
    return topology, available, count, options


@given(requests())
@settings(max_examples=examples(150), deadline=None)
def test_the_optimized_and_the_naive_allocation_agree(
    request: tuple[Topology, set[int], int, AssignOptions],
) -> None:
    topology, available, count, options = request
    wanted = naive.choose(topology, available, count, options)
    event("endless" if wanted == naive.ENDLESS else "error" if isinstance(wanted, str) else "cpus")
    answer = assign_as_kubelet(topology, CpuSet(available), count, options)
    if wanted == naive.ENDLESS:
        return
    assert (answer.text if isinstance(answer, InsufficientCpus) else set(answer.cpus)) == wanted


@given(requests(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_assigned_cpus_were_available(
    request: tuple[Topology, set[int], int, AssignOptions], quirks: bool
) -> None:
    """Also where the kubelet's result is not valid or never returns; requests that can be met are not
    refused.
    """
    topology, available, count, options = request
    answer = assign(topology, CpuSet(available), count, replace(options, quirks=quirks))
    known = available & set(topology.all)
    if isinstance(answer, InsufficientCpus):
        assert count > len(known)
        return
    assert len(answer.cpus) == count
    assert set(answer.cpus) <= known
    lines = explain(answer)
    assert len(lines) == len(answer.steps)
    assert all(lines)
    logged = CpuSet()
    for step in answer.steps:
        logged |= step.cpus if step.what.value != "recounted" else CpuSet()
    assert logged == answer.cpus


@given(requests())
@settings(max_examples=examples(150), deadline=None)
def test_full_cores_are_full(request: tuple[Topology, set[int], int, AssignOptions]) -> None:
    topology, available, count, options = request
    answer = assign(topology, CpuSet(available), count, replace(options, full_cores=True))
    cores = [set(core) for core in topology.cores.values() if set(core) <= available]
    # Every amount that free cores can make up.
    amounts = {0}
    for core in cores:
        amounts |= {amount + len(core) for amount in amounts}
    if isinstance(answer, InsufficientCpus):
        assert count not in amounts
        assert answer.text.startswith("SMT Alignment Error: ")
        return
    assert len(answer.cpus) == count
    chosen = set(answer.cpus)
    assert chosen == {cpu for core in cores if core <= chosen for cpu in core}


# -- shared memory of the kubelet's sets


def even_machine(nodes: int, cores: int) -> Topology:
    """Return a machine with one socket per NUMA node and one thread per core."""
    cpus = (Cpu(at, at, at // cores, at // cores) for at in range(nodes * cores))
    return Topology(tuple(cpus))


def offer(free: list[int], cores: int) -> CpuSet:
    return CpuSet(node * cores + at for node, count in enumerate(free) for at in range(count))


def counts(answer: Assigned | InsufficientCpus, nodes: int, cores: int) -> list[int]:
    assert isinstance(answer, Assigned)
    return [sum(cpu // cores == node for cpu in answer.cpus) for node in range(nodes)]


DISTRIBUTED = AssignOptions(Algorithm.DISTRIBUTED)


def test_four_of_six_numa_nodes_are_ordered_as_in_the_kubelet() -> None:
    """Sets of four share memory with those that begin with the same three: the last one tried remains."""
    topology = even_machine(6, 8)
    free = offer([6, 6, 6, 6, 6, 6], 8)
    found = assign(topology, free, 24, replace(DISTRIBUTED, quirks=False))
    used = assign(topology, free, 24, DISTRIBUTED)
    assert counts(found, 6, 8) == [6, 6, 6, 6, 0, 0]
    assert counts(used, 6, 8) == [6, 6, 6, 0, 0, 6]


def test_allocations_that_the_kubelet_never_finishes_succeed() -> None:
    """5, 6, 7 and 7 free CPUs, 22 in pairs: the last node has one CPU left, but no pair."""
    topology = even_machine(4, 8)
    free = offer([5, 6, 7, 7], 8)
    options = replace(DISTRIBUTED, group_size=2)
    assert naive.choose(topology, set(free), 22, options) == naive.ENDLESS
    for choose in (assign, assign_as_kubelet):
        answer = choose(topology, free, 22, options)
        assert isinstance(answer, Assigned)
        assert len(answer.cpus) == 22
        assert answer.cpus <= free
        assert counts(answer, 4, 8) == [4, 6, 6, 6]


@pytest.mark.parametrize("count", [1, 2, 7, 12, 13, 31, 32])
def test_distribution_is_even(count: int) -> None:
    """The same number of CPUs, give or take one, from each of as few nodes as needed."""
    answer = assign(even_machine(4, 8), offer([8, 8, 8, 8], 8), count, DISTRIBUTED)
    taken = [number for number in counts(answer, 4, 8) if number]
    assert len(taken) == -(-count // 8)
    assert max(taken) - min(taken) <= 1
