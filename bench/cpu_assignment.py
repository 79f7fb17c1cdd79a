"""Choosing CPUs: time per assignment, beside the kubelet's own code.

    python -m bench.cpu_assignment

Prints microseconds for machines of 8 to 512 CPUs and up to 16 NUMA nodes, packed and distributed, a third of
the CPUs in use; then requests for which the kubelet tries thousands of sets of NUMA nodes. The figures for Go
are of the kubelet's functions (v1.36.4, Go 1.26) on the same inputs, on a virtual machine of two shared
cores; the answers are the same. The ratio is above 1 where Plimsoll is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.clock import best
from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions
from plimsoll.drivers.cpu.allocation.allocate import assign
from plimsoll.drivers.cpu.topology import Cpu, Topology


@dataclass(frozen=True, slots=True)
class Case:
    """Request; `go` are the microseconds of the kubelet's code."""

    name: str
    topology: Topology
    available: CpuSet
    count: int
    options: AssignOptions
    go: float


#: Sockets, NUMA nodes of each, cores of each of these; two threads for each core, four cores share a cache.
MACHINES = [(1, 1, 4), (2, 1, 8), (2, 1, 16), (2, 2, 16), (2, 4, 16), (2, 8, 16)]

#: Free CPUs of 16 NUMA nodes of 64, the number of CPUs wanted, and in groups of how many.
HARD = {
    "16 nodes, evenly used": ([32] * 16, 500, 1),
    "16 nodes, unevenly used": ([20 + at * 5 % 13 for at in range(16)], 170, 2),
    "half of 16 nodes": ([24, 25, 29, 31, 33, 35, 36, 38, 40, 41, 43, 45, 47, 50, 52, 55], 322, 1),
    "nearly all of 16 nodes": ([42, 40, 48, 46, 42, 43, 48, 48, 40, 43, 42, 43, 45, 41, 42, 41], 638, 1),
}

#: Microseconds, measured once: the best of three means, each over 0.3 seconds or one call.
GO = {
    "8 CPUs, 1 node, packed 1": 10,
    "8 CPUs, 1 node, packed 4": 33,
    "8 CPUs, 1 node, distributed 1": 25,
    "8 CPUs, 1 node, distributed 4": 30,
    "32 CPUs, 2 nodes, packed 4": 63,
    "32 CPUs, 2 nodes, packed 16": 242,
    "32 CPUs, 2 nodes, distributed 4": 94,
    "32 CPUs, 2 nodes, distributed 16": 186,
    "64 CPUs, 2 nodes, packed 8": 1_417,
    "64 CPUs, 2 nodes, packed 32": 2_045,
    "64 CPUs, 2 nodes, distributed 8": 341,
    "64 CPUs, 2 nodes, distributed 32": 621,
    "128 CPUs, 4 nodes, packed 16": 4_631,
    "128 CPUs, 4 nodes, packed 64": 4_968,
    "128 CPUs, 4 nodes, distributed 16": 681,
    "128 CPUs, 4 nodes, distributed 64": 1_916,
    "256 CPUs, 8 nodes, packed 32": 26_998,
    "256 CPUs, 8 nodes, packed 128": 34_997,
    "256 CPUs, 8 nodes, distributed 32": 3_422,
    "256 CPUs, 8 nodes, distributed 128": 7_844,
    "512 CPUs, 16 nodes, packed 64": 154_607,
    "512 CPUs, 16 nodes, packed 256": 164_212,
    "512 CPUs, 16 nodes, distributed 64": 82_112,
    "512 CPUs, 16 nodes, distributed 256": 3_815_889,
    "16 nodes, evenly used": 5_788_596,
    "16 nodes, unevenly used": 1_035_011,
    "half of 16 nodes": 4_768_248,
    "nearly all of 16 nodes": 2_855_831,
}


def cases() -> Iterator[Case]:
    for sockets, nodes, cores in MACHINES:
        topology = machine(sockets, nodes, cores)
        cpus = len(topology.cpus)
        # A fixed third of the CPUs is in use.
        free = CpuSet(cpu.id for cpu in topology.cpus if cpu.id * 7919 % 31 >= 10)
        for algorithm in Algorithm:
            for share in (8, 2):
                several = "s" if sockets * nodes > 1 else ""
                name = f"{cpus} CPUs, {sockets * nodes} node{several}, {algorithm} {cpus // share}"
                yield Case(name, topology, free, cpus // share, AssignOptions(algorithm), GO[name])
    topology = machine(2, 8, 32)
    for name, (counts, count, group) in HARD.items():
        free = CpuSet(
            cpu
            for numa, number in zip(topology.numa.values(), counts, strict=True)
            for cpu in numa.lowest(number)
        )
        options = AssignOptions(Algorithm.DISTRIBUTED, group_size=group)
        yield Case(name, topology, free, count, options, GO[name])


def machine(sockets: int, nodes: int, cores: int) -> Topology:
    """Return CPUs in the usual order of servers: first threads of all cores, then second ones."""
    every = sockets * nodes * cores
    return Topology(
        tuple(
            Cpu(
                id=cpu,
                core=cpu % every,
                socket=cpu % every // (nodes * cores),
                numa=cpu % every // cores,
                l3=cpu % every // 4,
            )
            for cpu in range(2 * every)
        ),
        smt=True,
    )


def main() -> None:
    print(f"{'':44} {'microseconds':>12} {'Go':>12} {'ratio':>8}")
    for case in cases():
        repeat = 20

        def work(case: Case = case, repeat: int = repeat) -> None:
            for _ in range(repeat):
                assign(case.topology, case.available, case.count, case.options)

        ours = best(work) / repeat * 1e6
        print(f"{case.name:44} {ours:12.0f} {case.go:12.0f} {case.go / ours:8.1f}")


if __name__ == "__main__":
    main()
