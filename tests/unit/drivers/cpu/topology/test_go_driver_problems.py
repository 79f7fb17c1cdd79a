"""Open problems of the Go driver that reading the topology correctly solves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign
from plimsoll.drivers.cpu.topology import MachineReader, TopologyWatch, read_topology
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs
from tests.waiting import DEADLINE


def test_problem_1_core_ids_unique_only_inside_a_socket(tmp_path: Path) -> None:
    """2 sockets x 4 cores x 2 threads, NUMA 0 with 1-3,8-11 free, 4 CPUs requested: none of the other
    socket.
    """
    write_sysfs(make_machine(sockets=2, cores=4, threads=2, core_ids="repeat"), tmp_path)
    topology = read_topology(tmp_path)
    assert {cpu.core_id for cpu in topology.cpus} == {0, 1, 2, 3}  # what the machine says, and is published
    assert topology.cores == {core: CpuSet([core, core + 8]) for core in range(8)}
    assert topology.numa[0] == CpuSet([0, 1, 2, 3, 8, 9, 10, 11])
    answer = assign(topology, CpuSet([1, 2, 3, 8, 9, 10, 11]), 4)
    assert isinstance(answer, Assigned)
    assert answer.cpus == CpuSet([1, 2, 9, 10])


def test_problem_1_core_ids_unique_only_inside_a_die_or_a_cluster(tmp_path: Path) -> None:
    dies = make_machine(numa=2, cores=4, threads=2, dies=True, core_ids="die")
    assert read_topology(write_sysfs(dies, tmp_path)).cores == {
        core: CpuSet([core, core + 8]) for core in range(8)
    }
    clusters = make_machine(cores=8, clusters=4, core_ids="cluster")
    read = read_topology(write_sysfs(clusters, tmp_path))
    assert len(read.cores) == 8
    assert not read.smt


def test_problem_2_siblings_of_smt_4_and_wider(tmp_path: Path) -> None:
    for threads in (4, 8):
        packed = make_machine(cores=4, threads=threads, numbering="packed")
        cores = read_topology(write_sysfs(packed, tmp_path)).cores
        assert cores == {
            threads * core: CpuSet(range(threads * core, threads * core + threads)) for core in range(4)
        }
        spread = read_topology(write_sysfs(make_machine(cores=4, threads=threads), tmp_path))
        assert spread.cores[1] == CpuSet(range(1, 4 * threads, 4))
        assert spread.smt


def test_problem_2_siblings_when_some_threads_are_off(tmp_path: Path) -> None:
    topology = read_topology(
        write_sysfs(make_machine(cores=2, threads=4, numbering="packed", offline=[0, 2, 5, 6, 7]), tmp_path)
    )
    assert topology.cores == {1: CpuSet([1, 3]), 4: CpuSet([4])}


def test_problem_12_cpus_that_were_skipped_count_nowhere(tmp_path: Path) -> None:
    write_sysfs(make_machine(numa=2, cores=4), tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpu5/topology/core_id").unlink()
    topology = read_topology(tmp_path)
    assert [entry.cpu for entry in topology.skipped] == [5]
    assert len(topology.all) == 7
    for groups in (topology.cores, topology.sockets, topology.numa, topology.l3):
        assert all(5 not in cpus for cpus in groups.values())
    assert 5 not in topology.offline
    answer = assign(topology, topology.all, 7)
    assert isinstance(answer, Assigned)
    assert answer.cpus == topology.all


async def test_problem_hotplug_is_followed_while_the_driver_runs(tmp_path: Path) -> None:
    whole = make_machine(sockets=2, cores=4, threads=2)
    less = switch_off(whole, CpuSet([3, 11]))
    write_sysfs(whole, tmp_path)
    watch = TopologyWatch.of_machine(MachineReader(tmp_path), interval=0.005, known=whole)
    changes = watch.changes()
    for step in (less, whole):
        write_sysfs(step, tmp_path)
        while await asyncio.wait_for(anext(changes), DEADLINE) != step:
            pass
    await changes.aclose()  # type: ignore[attr-defined]
