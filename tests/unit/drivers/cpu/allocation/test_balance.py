"""Bounded search for sets of NUMA nodes, compared with exhaustive search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.drivers.cpu.allocation.balance import (
    count_unshared,
    emulate_overwritten,
    emulate_overwritten_by_next,
    find_distribution,
)
from tests.sizes import examples
from tests.unit.drivers.cpu.allocation import naive


@st.composite
def found_distributions(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    """Generate free CPUs per node, the requested number, the number of nodes, and group sizes."""
    most = draw(st.sampled_from([3, 6, 20, 64]))
    free = draw(st.lists(st.integers(1, most), min_size=1, max_size=7))
    if draw(st.booleans()):
        free.sort()
    group = draw(st.sampled_from([1, 1, 2, 3]))
    groups = draw(st.integers(1, max(1, sum(free) // group)))
    return free, groups * group, draw(st.integers(1, min(groups, len(free)))), group


def check_deal(free: list[int], count: int, size: int, group: int) -> None:
    try:
        nodes = list(range(len(free)))
        wanted = naive.find_distribution(nodes, dict(enumerate(free)), count, size, group)
    except naive.NoProgress:
        return
    found = find_distribution(free, count, size, group)
    assert (found and (list(found[1].nodes), list(found[1].rest))) == wanted


@given(found_distributions())
@settings(max_examples=examples(200), deadline=None)
def test_bounded_search_equals_exhaustive_search(distribution: tuple[list[int], int, int, int]) -> None:
    check_deal(*distribution)


@pytest.mark.slow
@given(found_distributions())
@settings(max_examples=5000, deadline=None)
def test_bounded_search_equals_exhaustive_search_at_length(
    distribution: tuple[list[int], int, int, int],
) -> None:
    check_deal(*distribution)


@pytest.mark.parametrize(
    ("length", "kept"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (8, 5), (9, 9), (16, 9), (17, 17)]
)
def test_number_of_unshared_elements_of_a_go_slice(length: int, kept: int) -> None:
    assert count_unshared(length) == kept


def test_overwritten_sets_are_emulated() -> None:
    assert emulate_overwritten((0, 1, 2, 4), 7) == (0, 1, 2, 6)
    assert emulate_overwritten((0, 1, 2), 7) == (0, 1, 2)
    assert emulate_overwritten((0, 1, 2, 3, 4, 5), 8) == (0, 1, 2, 3, 4, 7)
    assert emulate_overwritten((), 3) == ()
    assert emulate_overwritten_by_next((0, 1, 2, 4), 7) == (0, 1, 2, 5)
    assert emulate_overwritten_by_next((0, 1, 2, 6), 7) == (0, 1, 2, 6)  # the next begins otherwise
    assert emulate_overwritten_by_next((3, 4, 5, 6), 7) == (3, 4, 5, 6)  # there is no next


#: Free CPUs of 16 nodes, CPUs wanted, in groups of: where trying all takes seconds.
HARD = [
    ([42, 40, 48, 46, 42, 43, 48, 48, 40, 43, 42, 43, 45, 41, 42, 41], 638, 16, 1),
    ([19, 16, 22, 29, 20, 27, 21, 19, 26, 19, 24, 25, 21, 20, 31, 22], 312, 16, 4),
    ([46, 42, 42, 46, 44, 42, 45, 48, 41, 45, 44, 43, 45, 48, 45, 42], 502, 12, 1),
    ([1, 2, 2, 4, 7, 7, 7, 9, 9, 10, 10, 12, 12, 20, 27, 32], 26, 15, 1),
]


@pytest.mark.parametrize(("free", "count", "size", "group"), HARD)
def test_sixteen_numa_nodes_are_searched_quickly(free: list[int], count: int, size: int, group: int) -> None:
    """The number of tries is far below the limit."""
    assert find_distribution(free, count, size, group, budget=20_000) == find_distribution(
        free, count, size, group
    )


@given(found_distributions(), st.integers(0, 5))
@settings(max_examples=examples(100), deadline=None)
def test_an_aborted_search_still_allocates(
    distribution: tuple[list[int], int, int, int], budget: int
) -> None:
    free, count, size, group = distribution
    found = find_distribution(free, count, size, group, budget=budget)
    assert (found is None) == (find_distribution(free, count, size, group) is None)
    if found is None:
        return
    nodes, each, rest = found[0].nodes, found[0].each, found[0].rest
    assert len(set(nodes)) == size
    left = {node: free[node] - each for node in nodes}
    assert min(left.values()) >= 0
    missing = (count - each * size) // group
    assert set(rest) <= set(nodes)
    assert sum(left[node] // group for node in rest) >= missing


def test_the_search_over_many_numa_nodes_ends() -> None:
    """32 nodes with one, two or three CPUs to spare each: the largest number of different sets."""
    free = [62 + int(spare) for spare in "11002111020110201010101201120210"]
    found = find_distribution(free, 1670, 27, 1, budget=2_000)
    assert found is not None
    assert not found[0].best


@pytest.mark.parametrize("nodes", [32, 64, 128])
def test_a_search_that_is_cut_short_is_a_distribution(nodes: int) -> None:
    """Machines with many NUMA nodes: the best set so far is used, and it is valid."""
    free = [(at * 11) % 13 + 4 for at in range(nodes)]
    size, count = nodes // 2, 3 * nodes + 1
    found = find_distribution(free, count, size, 1, budget=500)
    assert found is not None
    used = found[0]
    assert len(set(used.nodes)) == size
    assert set(used.rest) <= set(used.nodes)
    assert all(free[at] >= used.each for at in used.nodes)
    assert sum(free[at] - used.each for at in used.rest) >= count - used.each * size
