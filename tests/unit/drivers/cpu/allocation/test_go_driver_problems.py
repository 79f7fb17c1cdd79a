"""Open problems of the Go driver that CPU selection solves, named after their numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.allocate import (
    Assigned,
    InsufficientCpus,
    assign,
    assign_as_kubelet,
    explain,
)
from plimsoll.drivers.cpu.topology import Topology
from tests.unit.drivers.cpu.machines import make_machine


def cpus(answer: Assigned | InsufficientCpus) -> str:
    assert isinstance(answer, Assigned)
    return str(answer.cpus)


def test_problem_1_core_ids_unique_only_inside_a_socket() -> None:
    """2 sockets x 4 cores x 2 threads, 1-3,8-11 free, 4 CPUs: not 5 and 13, which are in the other socket."""
    machine = make_machine(sockets=2, cores=4, threads=2, core_ids="repeat")
    assert [str(core) for core in machine.cores.values()][:5] == ["0,8", "1,9", "2,10", "3,11", "4,12"]
    assert {cpu.core_id for cpu in machine.cpus} == {0, 1, 2, 3}
    free = CpuSet.parse("1-3,8-11")
    assert cpus(assign(machine, free, 4, AssignOptions(align_l3=False))) == "1-2,9-10"
    assert cpus(assign(machine, free, 4)) == "1-2,9-10"


def test_problem_1_even_with_core_ids_that_repeat_nothing_else_is_taken() -> None:
    """Whatever the core IDs of a machine are, allocated CPUs were free."""
    rows = [
        {"cpu": cpu, "core": cpu % 4, "socket": cpu // 4 % 2, "numa": cpu // 4 % 2, "uncore": cpu // 4 % 2}
        for cpu in range(16)
    ]
    machine = Topology.of_rows(rows)
    free = CpuSet.parse("1-3,8-11")
    for count in range(len(free) + 1):
        for options in (AssignOptions(), AssignOptions(align_l3=False), AssignOptions(quirks=False)):
            answer = assign(machine, free, count, options)
            assert isinstance(answer, Assigned)
            assert len(answer.cpus) == count
            assert answer.cpus <= free


def test_problem_2_siblings_of_four_threads() -> None:
    """A core of four threads is taken as a unit, and single threads from a core that is already in use."""
    machine = make_machine(cores=4, threads=4)
    assert cpus(assign(machine, machine.all, 4)) == "0,4,8,12"
    plain = AssignOptions(align_l3=False)
    assert cpus(assign(machine, machine.all - CpuSet([1]), 3, plain)) == "5,9,13"
    whole = AssignOptions(full_cores=True)
    assert cpus(assign(machine, machine.all - CpuSet([1]), 8, whole)) == "0,2,4,6,8,10,12,14"


HYBRID = make_machine(cores=4, threads=2, efficient=4, numbering="packed")


def test_problem_3_uneven_cores_never_give_what_is_not_free() -> None:
    """12 CPUs on 8 cores: the kubelet divides, so that cores count as free with one thread in use."""
    assert [len(core) for core in HYBRID.cores.values()] == [2, 2, 2, 2, 1, 1, 1, 1]
    free = HYBRID.all - CpuSet.parse("0,2,8")
    wrong = assign_as_kubelet(HYBRID, free, 4, AssignOptions(align_l3=False))
    assert isinstance(wrong, Assigned)
    assert not wrong.cpus <= free
    fixed = assign(HYBRID, free, 4, AssignOptions(align_l3=False))
    assert isinstance(fixed, Assigned)
    assert explain(fixed)[0] == (
        f"the kubelet's rule would have taken CPUs {wrong.cpus}, not all of which were free: "
        "recounted with the real size of each core, cache and socket"
    )
    for count in range(len(free) + 1):
        for algorithm in Algorithm:
            for sorting in Sorting:
                answer = assign(HYBRID, free, count, AssignOptions(algorithm, sorting))
                assert isinstance(answer, Assigned)
                assert len(answer.cpus) == count
                assert answer.cpus <= free


def test_problem_3_cores_are_counted_as_they_are() -> None:
    """Without the kubelet's quirks, cores of two threads are full with two."""
    real = AssignOptions(align_l3=False, quirks=False)
    free = HYBRID.all - CpuSet.parse("0,8-11")
    assert cpus(assign(HYBRID, free, 4, real)) == "2-5"
    assert cpus(assign(HYBRID, free, 1, real)) == "1"
    assert cpus(assign(HYBRID, HYBRID.all, 3, real)) == "8-10"


def test_problem_3_sockets_of_different_sizes() -> None:
    rows = [
        {"cpu": cpu, "core": cpu, "socket": int(cpu >= 2), "numa": int(cpu >= 2), "uncore": int(cpu >= 2)}
        for cpu in range(8)
    ]
    machine = Topology.of_rows(rows)
    for quirks in (True, False):
        answer = assign(machine, machine.all, 6, AssignOptions(quirks=quirks))
        assert isinstance(answer, Assigned)
        assert len(answer.cpus) == 6


@pytest.mark.parametrize("count", [2, 6, 8])
def test_problem_4_distributed_spread_and_full_cores_can_be_asked_for(count: int) -> None:
    machine = make_machine(sockets=2, cores=4, threads=2)
    even = assign(machine, machine.all, count + 8, AssignOptions(Algorithm.DISTRIBUTED))
    assert isinstance(even, Assigned)
    assert len(even.cpus & machine.numa[0]) == len(even.cpus & machine.numa[1]) == (count + 8) // 2
    per_request = AssignOptions(sorting=Sorting.SPREAD, align_l3=False)
    spread = assign(machine, machine.all, min(count, 4), per_request)
    assert isinstance(spread, Assigned)
    assert {machine.by_id[cpu].core for cpu in spread.cpus} == set(range(min(count, 4)))
    whole = assign(machine, machine.all - CpuSet([0]), count, replace(per_request, full_cores=True))
    assert isinstance(whole, Assigned)
    assert 8 not in whole.cpus
    assert all(core <= whole.cpus or not core & whole.cpus for core in machine.cores.values())
