"""Topology position of CPUs, for any input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.topology.placement import CpuRow, place_cpus, split_by_peers

SETS = st.builds(CpuSet, st.sets(st.integers(0, 7), max_size=8))
ROWS = st.builds(
    CpuRow,
    cpu=st.integers(0, 7),
    socket=st.integers(-1, 2),
    core_id=st.integers(-1, 2),
    node=st.integers(-1, 2),
    die=st.integers(-1, 1),
    cluster=st.integers(-1, 1),
    l3_id=st.sampled_from([-1, 0, 1, 1 << 50]),
    cores=st.none() | SETS,
    sharers=st.none() | SETS,
)


def part_naively(peers: dict[int, CpuSet | None]) -> list[list[int]]:
    """Join two CPUs that are connected by any chain of CPUs of which one names the next."""
    if any(named is None or cpu not in named for cpu, named in peers.items()):
        return [sorted(peers)]
    reach = {(a, b) for a in peers for b in peers if b in (peers[a] or ()) or a in (peers[b] or ())}
    for middle in peers:
        reach |= {(a, b) for a in peers for b in peers if (a, middle) in reach and (middle, b) in reach}
    parts = {tuple(sorted(b for b in peers if (a, b) in reach)) for a in peers}
    return [list(part) for part in sorted(parts)]


@given(st.dictionaries(st.integers(0, 7), st.none() | SETS, min_size=1))
def test_placement_equals_the_naive_placement(peers: dict[int, CpuSet | None]) -> None:
    assert split_by_peers(peers) == part_naively(peers)


@given(st.dictionaries(st.integers(0, 7), SETS, min_size=1))
def test_placement_without_siblings_equals_the_naive_placement(peers: dict[int, CpuSet]) -> None:
    named: dict[int, CpuSet | None] = {cpu: peers[cpu] | CpuSet([cpu]) for cpu in peers}
    assert split_by_peers(named) == part_naively(named)


@given(st.lists(ROWS, unique_by=lambda row: row.cpu))
def test_every_row_is_placed_or_skipped_and_numbers_are_unique(rows: list[CpuRow]) -> None:
    placed = place_cpus(rows)
    assert sorted([cpu.id for cpu in placed.cpus] + [entry.cpu for entry in placed.skipped]) == sorted(
        row.cpu for row in rows
    )
    tree = {row.cpu: row for row in rows}
    by_id = {cpu.id: cpu for cpu in placed.cpus}
    cores: dict[int, list[int]] = {}
    caches: dict[int, list[int]] = {}
    for cpu in placed.cpus:
        cores.setdefault(cpu.core, []).append(cpu.id)
        caches.setdefault(cpu.l3, []).append(cpu.id)
        assert min(cpu.socket, cpu.numa, cpu.core_id) >= 0
        assert (cpu.l3 < 0) == (cpu.l3_id < 0)
    for core, mates in cores.items():
        assert core == min(mates)
        rows_of_core = [tree[cpu] for cpu in mates]
        assert len({(row.socket, row.die, row.cluster, row.core_id) for row in rows_of_core}) == 1
    for sharers in caches.values():
        assert len({by_id[cpu].l3_id for cpu in sharers}) == 1


def test_contradictory_cores_are_two_cores() -> None:
    """ARM machines with old kernels: no clusters, and core_id restarts in each."""
    rows = [CpuRow(cpu, 0, cpu % 2, 0, cores=CpuSet([cpu])) for cpu in range(4)]
    assert [cpu.core for cpu in place_cpus(rows).cpus] == [0, 1, 2, 3]
    unsaid = [CpuRow(cpu, 0, cpu % 2, 0) for cpu in range(4)]
    assert [cpu.core for cpu in place_cpus(unsaid).cpus] == [0, 1, 0, 1]


def test_a_cache_has_the_id_that_one_of_its_cpus_knows() -> None:
    both = CpuSet([0, 1])
    rows = [CpuRow(0, 0, 0, 0, sharers=both), CpuRow(1, 0, 1, 0, l3_id=7, sharers=both)]
    assert [(cpu.l3, cpu.l3_id) for cpu in place_cpus(rows).cpus] == [(7, 7), (7, 7)]
    empty = [CpuRow(4, 0, 0, 0, sharers=CpuSet([4, 5])), CpuRow(5, 0, 1, 0, sharers=CpuSet([4, 5]))]
    assert [(cpu.l3, cpu.l3_id) for cpu in place_cpus(empty).cpus] == [(4, 4), (4, 4)]
    assert [cpu.l3 for cpu in place_cpus([CpuRow(0, 0, 0, 0)]).cpus] == [-1]


def test_caches_with_the_same_id_are_several() -> None:
    """Some virtual machines give the caches of every socket the same IDs."""
    rows = [CpuRow(cpu, cpu // 2, cpu, 0, l3_id=3, sharers=CpuSet([cpu & 2, cpu | 1])) for cpu in range(4)]
    assert [cpu.l3 for cpu in place_cpus(rows).cpus] == [3, 3, 65538, 65538]
    assert [cpu.l3_id for cpu in place_cpus(rows).cpus] == [3, 3, 3, 3]
    unsaid = [CpuRow(cpu, cpu // 2, cpu, 0, l3_id=3) for cpu in range(4)]
    assert [cpu.l3 for cpu in place_cpus(unsaid).cpus] == [3, 3, 3, 3]
