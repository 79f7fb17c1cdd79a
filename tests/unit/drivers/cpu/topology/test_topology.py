"""Topology values."""

from __future__ import annotations

from hypothesis import given, settings

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.topology import Topology
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import machines, make_machine, switch_off


def test_topology_rows() -> None:
    rows = [
        {"cpu": 3, "core": 1, "socket": 0, "numa": 1, "uncore": 5},
        {"cpu": 1, "core": 1, "socket": 0, "numa": 1, "uncore": 5},
        {"cpu": 0, "core": 0, "socket": 0, "numa": 0},
    ]
    topology = Topology.of_rows(rows)
    assert [cpu.id for cpu in topology.cpus] == [0, 1, 3]
    assert topology.smt
    assert topology.cores == {0: CpuSet([0]), 1: CpuSet([1, 3])}
    assert topology.l3 == {5: CpuSet([1, 3])}
    assert topology.numa == {0: CpuSet([0]), 1: CpuSet([1, 3])}
    assert topology.numa_of([3, 0, 77]) == (0, 1)
    assert not Topology.of_rows(rows, smt=False).smt
    assert not Topology.of_rows(rows[1:]).smt


@given(machines())
@settings(max_examples=examples(30), deadline=None)
def test_groups_partition_the_cpus(topology: Topology) -> None:
    for groups in (topology.cores, topology.sockets, topology.numa):
        assert sum(len(cpus) for cpus in groups.values()) == len(topology.all)
        assert list(groups) == sorted(groups)
    for core, cpus in topology.cores.items():
        assert core == min(cpus)
        for larger in (topology.sockets, topology.numa, topology.l3):
            assert sum(bool(group & cpus) for group in larger.values()) == 1 or larger == {}
    assert not topology.all & topology.offline


def test_cores_are_named_after_their_lowest_online_cpu() -> None:
    whole = make_machine(cores=2, threads=2)
    assert switch_off(whole, CpuSet([0])) == make_machine(cores=2, threads=2, offline=[0])
