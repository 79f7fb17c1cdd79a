"""Topology of CPUs from their sysfs attributes. Pure (docs/spec/cpu-driver.md, "Topology discovery").

`place_cpus` turns every `CpuRow` into a `Cpu` or a `SkippedCpu`; core and L3 cache numbers are unique in the
machine whatever the rows contain.

Machines number cores and caches differently: `core_id` repeats in every socket, on some machines in every die
or cluster, and some virtual machines give all L3 caches the same ID. CPUs share a core or a cache if all
their IDs are equal and their sibling lists do not contradict it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, SkippedCpu

#: First generated number of L3 caches whose ID is taken or exceeds this value; they add their lowest CPU.
L3_OWN_IDS = 1 << 16


@dataclass(frozen=True, slots=True)
class CpuRow:
    """sysfs attributes of a CPU; -1 for missing numbers, None for missing lists.

    `cores` are the listed threads of its core, `sharers` the CPUs of its L3 cache. Without `l3_id` and
    `sharers` it has none.
    """

    cpu: int
    socket: int
    core_id: int
    node: int
    die: int = -1
    cluster: int = -1
    l3_id: int = -1
    cores: CpuSet | None = None
    sharers: CpuSet | None = None


@dataclass(frozen=True, slots=True)
class CpuPlacement:
    """Usable CPUs, skipped CPUs and remarks."""

    cpus: tuple[Cpu, ...]
    skipped: tuple[SkippedCpu, ...]
    remarks: tuple[str, ...]


def place_cpus(
    rows: Iterable[CpuRow], kinds: Callable[[int], CoreKind] = lambda cpu: CoreKind.STANDARD
) -> CpuPlacement:
    """Compute the topology of CPUs from their attributes."""
    ordered = sorted(rows, key=lambda row: row.cpu)
    ordered, remarks = _apply_defaults(ordered)
    skipped = tuple(
        SkippedCpu(
            row.cpu,
            f"could not determine NUMA node for CPU {row.cpu}"
            if row.node < 0
            else f"incomplete topology information for CPU {row.cpu} "
            f"(socket: {row.socket}, core: {row.core_id}, NUMA node: {row.node})",
        )
        for row in ordered
        if min(row.socket, row.core_id, row.node) < 0
    )
    usable = _name_caches([row for row in ordered if min(row.socket, row.core_id, row.node) >= 0])
    cores = _number_cores(usable)
    caches = _number_caches(usable)
    cpus = tuple(
        Cpu(
            id=row.cpu,
            core=cores[row.cpu],
            socket=row.socket,
            numa=row.node,
            l3=caches[row.cpu],
            cluster=row.cluster,
            kind=kinds(row.cpu),
            core_id=row.core_id,
            die=row.die,
            l3_id=row.l3_id,
        )
        for row in usable
    )
    return CpuPlacement(cpus, skipped, remarks)


def _apply_defaults(rows: Sequence[CpuRow]) -> tuple[list[CpuRow], tuple[str, ...]]:
    """Apply defaults for attributes missing on all CPUs: one socket, one node, one core per CPU.

    DIFF: the Go driver skips all CPUs of such a machine and publishes no device; kernels without NUMA and
    many virtual machines are like that (test_missing_topology_has_the_simplest_defaults).
    """
    changed = list(rows)
    remarks = []
    if rows and all(row.socket < 0 for row in rows):
        changed = [replace(row, socket=0) for row in changed]
        remarks.append("no CPU has a physical_package_id: assuming one socket")
    if rows and all(row.core_id < 0 for row in rows):
        changed = [replace(row, core_id=row.cpu) for row in changed]
        remarks.append("no CPU has a core_id: assuming one core per CPU")
    if rows and all(row.node < 0 for row in rows):
        changed = [replace(row, node=0) for row in changed]
        remarks.append("no CPU has a NUMA node: assuming node 0")
    return changed, tuple(remarks)


def _number_cores(rows: Sequence[CpuRow]) -> dict[int, int]:
    """Return the core of each CPU, numbered by its lowest CPU.

    DIFF: the Go driver uses `core_id`, which repeats in every socket, as core number
    (test_problem_1_core_ids_unique_only_inside_a_socket) and handles pairs of siblings only
    (test_problem_2_siblings_of_smt_4_and_wider).
    """
    groups: dict[tuple[int, ...], list[CpuRow]] = {}
    for row in rows:
        groups.setdefault((row.socket, row.die, row.cluster, row.core_id), []).append(row)
    return {
        cpu: part[0]
        for group in groups.values()
        for part in split_by_peers({row.cpu: row.cores for row in group})
        for cpu in part
    }


def _name_caches(rows: Sequence[CpuRow]) -> list[CpuRow]:
    """Set missing cache IDs: ARM kernels may give caches none, so they are named after their lowest CPU.

    If another CPU of the same cache has the ID, that one is used.
    """
    ids = {row.cpu: row.l3_id for row in rows if row.l3_id >= 0}
    return [
        row
        if row.l3_id >= 0 or not row.sharers
        else replace(row, l3_id=next((ids[cpu] for cpu in row.sharers if cpu in ids), min(row.sharers)))
        for row in rows
    ]


def _number_caches(rows: Sequence[CpuRow]) -> dict[int, int]:
    """Return the L3 cache of each CPU, -1 for none: its ID, or a generated number if the ID is taken.

    DIFF: the Go driver merges caches with the same ID (test_caches_with_the_same_id_are_several).
    """
    groups: dict[int, list[CpuRow]] = {}
    for row in rows:
        groups.setdefault(row.l3_id, []).append(row)
    numbers = dict.fromkeys((row.cpu for row in groups.pop(-1, [])), -1)
    for l3_id, group in groups.items():
        for index, part in enumerate(split_by_peers({row.cpu: row.sharers for row in group})):
            number = l3_id if index == 0 and l3_id < L3_OWN_IDS else L3_OWN_IDS + part[0]
            numbers.update(dict.fromkeys(part, number))
    return numbers


def split_by_peers(peers: Mapping[int, CpuSet | None]) -> list[list[int]]:
    """Split CPUs into groups that do not list each other, sorted by lowest CPU.

    A CPU without a list, or missing from its own, contradicts nothing: then all are one group.
    """
    members = CpuSet(peers)
    lists: dict[int, CpuSet] = {}
    for cpu, named in peers.items():
        if named is None or cpu not in named:
            return [list(members)]
        lists[cpu] = named & members
    parts: list[CpuSet] = []
    for cpu in members:
        joined = lists[cpu]
        apart = []
        for part in parts:
            if part & joined:
                joined = joined | part
            else:
                apart.append(part)
        parts = [*apart, joined]
    return sorted((list(part) for part in parts), key=lambda part: part[0])


def find_offline_cpus(present: CpuSet | None, possible: CpuSet | None, online: CpuSet) -> CpuSet:
    """Return present CPUs that are offline; empty slots for CPUs do not count."""
    there = present if present is not None else possible
    return there - online if there is not None else EMPTY
