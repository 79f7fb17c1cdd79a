"""Where CPUs lie, by what a machine says about each. Pure. Section 3 of the CPU driver's description.

Owns `Row` (the words of sysfs about a CPU) and `place`. Promises: every row becomes a `Cpu` or a `Skipped`;
numbers of cores and of L3 caches are unique in the machine whatever the rows say.

Machines number cores and caches in their own ways: `core_id` repeats in every socket, on some machines in
every die or cluster, and some virtual machines give all their L3 caches the same id. CPUs share a core or a
cache if they have the same numbers all the way up and do not deny each other in their lists of siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, Skipped

#: L3 caches whose id another cache has, or whose id is past this, are numbered from here by their lowest CPU.
L3_OWN_IDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Row:
    """A CPU in the words of sysfs; -1 is what the machine does not tell, None a list that it does not give.

    `cores` are the CPUs that it calls threads of the same core, `sharers` those of the same L3 cache. Without
    both `l3_id` and `sharers` there is no such cache.
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
class Placed:
    """The CPUs of a machine, those that have no place, and what was odd."""

    cpus: tuple[Cpu, ...]
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...]


def place(rows: Iterable[Row], kinds: Callable[[int], CoreKind] = lambda cpu: CoreKind.STANDARD) -> Placed:
    """Where CPUs lie, by what the machine says about each of them."""
    ordered = sorted(rows, key=lambda row: row.cpu)
    ordered, remarks = _assume(ordered)
    skipped = tuple(
        Skipped(
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
    return Placed(cpus, skipped, remarks)


def _assume(rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """What no CPU of a machine tells is the simplest that can be: one socket, one node, a core for each CPU.

    DIFF: the Go driver skips all CPUs of such a machine and publishes no device; kernels without NUMA and
    many virtual machines are like that (test_what_no_cpu_tells_is_the_simplest_that_can_be).
    """
    changed = list(rows)
    remarks = []
    if rows and all(row.socket < 0 for row in rows):
        changed = [replace(row, socket=0) for row in changed]
        remarks.append("no CPU has a physical_package_id: all are taken as one socket")
    if rows and all(row.core_id < 0 for row in rows):
        changed = [replace(row, core_id=row.cpu) for row in changed]
        remarks.append("no CPU has a core_id: each is taken as a core of its own")
    if rows and all(row.node < 0 for row in rows):
        changed = [replace(row, node=0) for row in changed]
        remarks.append("no CPU has a NUMA node: all are taken as of node 0")
    return changed, tuple(remarks)


def _number_cores(rows: Sequence[Row]) -> dict[int, int]:
    """The core of each CPU: its lowest CPU.

    DIFF: the Go driver takes `core_id`, which repeats in every socket, for the number of a core
    (test_problem_1_core_ids_unique_only_inside_a_socket) and knows pairs of siblings only
    (test_problem_2_siblings_of_smt_4_and_wider).
    """
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.socket, row.die, row.cluster, row.core_id), []).append(row)
    return {
        cpu: part[0]
        for group in groups.values()
        for part in part_by_peers({row.cpu: row.cores for row in group})
        for cpu in part
    }


def _name_caches(rows: Sequence[Row]) -> list[Row]:
    """Kernels for ARM may give caches no id: such a cache is named after its lowest CPU.

    Where another CPU of the same cache knows the id, it is that.
    """
    ids = {row.cpu: row.l3_id for row in rows if row.l3_id >= 0}
    return [
        row
        if row.l3_id >= 0 or not row.sharers
        else replace(row, l3_id=next((ids[cpu] for cpu in row.sharers if cpu in ids), min(row.sharers)))
        for row in rows
    ]


def _number_caches(rows: Sequence[Row]) -> dict[int, int]:
    """The L3 cache of each CPU, -1 for none: its id, or a number of ours if one with a lower CPU has that.

    DIFF: to the Go driver, caches with the same id are one (test_caches_with_the_same_id_are_several).
    """
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.l3_id, []).append(row)
    numbers = dict.fromkeys((row.cpu for row in groups.pop(-1, [])), -1)
    for l3_id, group in groups.items():
        for index, part in enumerate(part_by_peers({row.cpu: row.sharers for row in group})):
            number = l3_id if index == 0 and l3_id < L3_OWN_IDS else L3_OWN_IDS + part[0]
            numbers.update(dict.fromkeys(part, number))
    return numbers


def part_by_peers(peers: Mapping[int, CpuSet | None]) -> list[list[int]]:
    """CPUs that seem to belong together, in parts that do not name each other; by their lowest CPU.

    A CPU that gives no list, or one without itself, denies nothing: then all are one part.
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


def offline_of(present: CpuSet | None, possible: CpuSet | None, online: CpuSet) -> CpuSet:
    """CPUs that are there and switched off; slots for CPUs that might be plugged in one day are none."""
    there = present if present is not None else possible
    return there - online if there is not None else EMPTY
