"""NUMA nodes of one socket for distributed CPUs, compared with exhaustive search."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign
from plimsoll.drivers.cpu.allocation.socket_alignment import find_aligned
from tests.sizes import examples
from tests.unit.drivers.cpu.allocation import naive
from tests.unit.drivers.cpu.machines import make_machine

DISTRIBUTED = AssignOptions(Algorithm.DISTRIBUTED)
ALIGNED = AssignOptions(Algorithm.DISTRIBUTED, align_by_socket=True)


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[int], list[set[int]], int, int, int]:
    free = draw(st.lists(st.integers(1, draw(st.sampled_from([3, 8, 40]))), min_size=1, max_size=6))
    # A node may span sockets.
    of_node = st.sets(st.integers(0, 2), min_size=1, max_size=draw(st.sampled_from([1, 1, 2])))
    sockets = draw(st.lists(of_node, min_size=len(free), max_size=len(free)))
    group = draw(st.sampled_from([1, 1, 2, 3]))
    groups = draw(st.integers(1, max(1, sum(free) // group)))
    return free, sockets, groups * group, draw(st.integers(1, min(groups, len(free)))), group


@given(machines())
@settings(max_examples=examples(400), deadline=None)
def test_the_choice_equals_that_of_an_exhaustive_search(
    machine: tuple[list[int], list[set[int]], int, int, int],
) -> None:
    free, sockets, count, size, group = machine
    found = find_aligned(free, [frozenset(each) for each in sockets], count, size, group)
    assert (found and (found.nodes, found.each, found.rest)) == naive.find_aligned(*machine)
    assert found is None or found.best


def test_cpus_stay_in_one_socket_where_an_even_share_would_not() -> None:
    """One node of each socket is busy: the most even pair of nodes spans the sockets."""
    topology = make_machine(sockets=2, numa=2, cores=4)
    busy = [next(cpu.id for cpu in topology.cpus if cpu.numa == numa) for numa in (1, 3)]
    free = topology.all - CpuSet.of_mask(sum(1 << cpu for cpu in busy))
    split, whole = (assign(topology, free, 6, options) for options in (DISTRIBUTED, ALIGNED))
    assert isinstance(split, Assigned)
    assert isinstance(whole, Assigned)

    def sockets(cpus: CpuSet) -> set[int]:
        return {cpu.socket for cpu in topology.cpus if cpu.id in cpus}

    assert len(sockets(split.cpus)) == 2
    assert len(sockets(whole.cpus)) == 1
    assert len(whole.cpus) == 6


def test_more_cpus_than_a_socket_has_are_taken_from_several() -> None:
    topology = make_machine(sockets=2, numa=2, cores=4)
    found = assign(topology, topology.all, 12, ALIGNED)
    assert isinstance(found, Assigned)
    assert len(found.cpus) == 12


def test_many_numa_nodes_end_in_time_with_a_choice() -> None:
    free = [(at * 7) % 13 + 4 for at in range(64)]
    found = find_aligned(free, [frozenset({at // 32}) for at in range(64)], 150, 30, 1)
    assert found is not None
    assert not found.best
    assert len({at // 32 for at in found.nodes}) == 1
