"""CPU selection for requests, on small machines."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.allocate import (
    Assigned,
    InsufficientCpus,
    ShortageReason,
    assign,
    explain,
    reserve,
)
from plimsoll.drivers.cpu.allocation.explanation import StepKind
from plimsoll.drivers.cpu.allocation.topology_tables import TABLES_BY_TOPOLOGY, get_tables
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.errors import InputError
from tests.unit.drivers.cpu.machines import make_machine

#: 2 sockets of one NUMA node each, 2 L3 caches each of 2 cores, 2 threads: core n has CPUs n and n + 8.
MACHINE = make_machine(sockets=2, l3=2, cores=2, threads=2)
PLAIN = AssignOptions(align_l3=False)
SPREAD = AssignOptions(sorting=Sorting.SPREAD, align_l3=False)
EVEN = AssignOptions(Algorithm.DISTRIBUTED)


def take(
    count: int, available: str = "0-15", options: AssignOptions = PLAIN, machine: Topology = MACHINE
) -> str:
    answer = assign(machine, CpuSet.parse(available), count, options)
    return answer.text if isinstance(answer, InsufficientCpus) else str(answer.cpus)


@pytest.mark.parametrize(
    ("count", "available", "options", "cpus"),
    [
        (0, "0-15", PLAIN, ""),
        (-1, "0-15", PLAIN, ""),
        (1, "0-15", PLAIN, "0"),
        (2, "0-15", PLAIN, "0,8"),
        (3, "0-15", PLAIN, "0-1,8"),
        (8, "0-15", PLAIN, "0-3,8-11"),
        (10, "0-15", PLAIN, "0-4,8-12"),
        (2, "1-15", PLAIN, "1,9"),  # a whole core of the fuller socket
        (1, "1-15", PLAIN, "8"),  # a thread of the core that is in use already
        (2, "0-3,8-9,4-7,12-15", PLAIN, "0,8"),
        (4, "0-2,8-10,4-7,12-15", PLAIN, "0-1,8-9"),
        (4, "1-15", AssignOptions(), "2-3,10-11"),  # inside one cache
        (5, "0-15", AssignOptions(), "0-2,8-9"),
        (2, "0-15", SPREAD, "0-1"),
        (5, "0-15", SPREAD, "0-3,8"),
        (4, "0-15", EVEN, "0-1,8-9"),
        (10, "0-15", EVEN, "0-2,4-6,8-9,12-13"),
        (12, "0-15", replace(EVEN, group_size=2), "0-2,4-6,8-10,12-14"),
        (9, "0-15", replace(EVEN, group_size=2), "0-4,8-11"),  # no groups of two: packed
    ],
)
def test_allocation_choices(count: int, available: str, options: AssignOptions, cpus: str) -> None:
    assert take(count, available, options) == cpus


def test_refusals_have_numbers_and_the_kubelets_message() -> None:
    answer = assign(MACHINE, CpuSet.parse("0-2,99"), 4)
    assert answer == InsufficientCpus(requested=4, available=4)
    assert take(4, "0-2,99") == "not enough cpus available to satisfy request: requested=4, available=4"
    whole = AssignOptions(full_cores=True)
    assert take(3, options=whole) == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert take(4, "0-3,8", whole) == (
        "SMT Alignment Error: not enough free physical CPUs: "
        "available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"
    )
    assert InsufficientCpus(4, 8, ShortageReason.ACCOUNTING, missing=2).text == (
        "accounting error, not enough CPUs allocated, remaining: 2"
    )
    assert InsufficientCpus(4, 8, ShortageReason.ACCOUNTING, missing=-2).text == (
        "accounting error, too many CPUs allocated, remaining: -2"
    )
    with pytest.raises(InputError, match="a group of 0 CPUs"):
        take(4, options=replace(EVEN, group_size=0))


@pytest.mark.parametrize("options", [AssignOptions(), SPREAD, EVEN])
def test_full_cores_only(options: AssignOptions) -> None:
    assert take(2, "1-9,12", replace(options, full_cores=True)) in {"1,9", "4,12"}
    assert take(4, "1-9,12", replace(options, full_cores=True)) == "1,4,9,12"


def test_full_cores_of_several_sizes() -> None:
    """Two cores of two threads, three of one."""
    machine = make_machine(cores=2, threads=2, efficient=3, numbering="packed")
    whole = AssignOptions(full_cores=True)
    assert [len(core) for core in machine.cores.values()] == [2, 2, 1, 1, 1]
    for count in range(8):
        answer = assign(machine, machine.all, count, whole)
        assert isinstance(answer, Assigned)
        assert len(answer.cpus) == count
        assert all(core <= answer.cpus or not core & answer.cpus for core in machine.cores.values())
    without = machine.all - CpuSet([4, 5])
    refused = assign(machine, without - CpuSet([6]), 3, whole)
    assert refused == InsufficientCpus(3, 4, ShortageReason.CORES, 1)


def test_explanations_name_the_allocated_cpus() -> None:
    def lines(count: int, available: str, options: AssignOptions) -> list[str]:
        answer = assign(MACHINE, CpuSet.parse(available), count, options)
        assert isinstance(answer, Assigned)
        return explain(answer)

    assert lines(11, "0-15", PLAIN) == [
        "whole NUMA node 0: CPUs 0-3,8-11",
        "1 whole core of NUMA node 1: CPUs 4,12",
        "1 single thread of NUMA node 1: CPU 5",
    ]
    assert lines(6, "0-15", AssignOptions()) == [
        "whole L3 cache 0 of NUMA node 0: CPUs 0-1,8-9",
        "2 CPUs inside L3 cache 1 of NUMA node 0: CPUs 2,10",
    ]
    assert lines(9, "0-15", EVEN) == [
        "distributed evenly, 4 from each of NUMA nodes 0, 1: CPUs 0-1,4-5,8-9,12-13",
        "the rest from NUMA node 0: CPU 2",
    ]
    assert lines(0, "0-15", PLAIN) == []


def test_explanations_name_no_cache_where_there_is_none() -> None:
    machine = make_machine(sockets=1, numa=2, l3=0, cores=4)
    for count, line in ((2, "2 CPUs inside socket 0 of NUMA node 0"), (3, "3 CPUs inside socket 0")):
        answer = assign(machine, machine.all, count, AssignOptions())
        assert isinstance(answer, Assigned)
        assert explain(answer)[0].startswith(line)


def test_reserved_cpus_by_number() -> None:
    assert str(reserve(MACHINE, 2)) == "0,8"
    assert reserve(MACHINE, 0) == EMPTY
    with pytest.raises(InputError, match="17 CPUs cannot be reserved: there are 16"):
        reserve(MACHINE, 17)


def test_tables_are_cached_per_topology() -> None:
    machine = make_machine(cores=2)
    assert get_tables(machine) is get_tables(machine)
    assert get_tables(machine) is not get_tables(machine, quirks=False)
    key = id(machine)
    assert key in TABLES_BY_TOPOLOGY
    del machine
    gc.collect()
    assert key not in TABLES_BY_TOPOLOGY


def test_allocation_without_cpus() -> None:
    nothing = Topology(())
    assert assign(nothing, EMPTY, 0) == Assigned(EMPTY)
    assert assign(nothing, CpuSet([1]), 1) == InsufficientCpus(1, 1)
    assert assign(nothing, EMPTY, 2, AssignOptions(full_cores=True)) == InsufficientCpus(
        2, 0, ShortageReason.CORES, 1
    )


def test_steps_are_values() -> None:
    answer = assign(MACHINE, MACHINE.all, 9, PLAIN)
    assert isinstance(answer, Assigned)
    assert [(step.what, step.ids, str(step.cpus), step.numa) for step in answer.steps] == [
        (StepKind.NUMA_NODES, (0,), "0-3,8-11", (0,)),
        (StepKind.THREADS, (4,), "4", (1,)),
    ]
