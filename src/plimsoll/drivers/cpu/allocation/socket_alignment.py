"""Selection of NUMA nodes of one socket for the distributed algorithm (`align-by-socket` of 1.37). Pure.

As in the kubelet of 1.37: of the sets of as few NUMA nodes as possible, one within a socket is preferred to
any that spans sockets, then the one that leaves the machine most even. A node with too few free CPUs for an
even share lowers the share of all; the others give the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations

from plimsoll.drivers.cpu.allocation.balance import (
    Distribution,
    RestDistribution,
    SearchBudget,
    find_freest,
    make_score,
)

#: Number of sets to try before the best one so far is used.
SET_BUDGET = 20_000


def find_aligned(
    free: Sequence[int],
    sockets: Sequence[frozenset[int]],
    count: int,
    size: int,
    group: int,
    *,
    budget: int = SET_BUDGET,
) -> Distribution | None:
    """Find the best distribution of `count` CPUs over `size` nodes with these free counts and sockets.

    Returns None if no nodes have enough. Of equally good sets the first is chosen, in order of positions.
    """
    search = _AlignedSearch(free, count, size, group, SearchBudget(budget))
    every = range(len(free))
    single = sorted({next(iter(found)) for found in sockets if len(found) == 1})
    within = ([at for at in every if sockets[at] == {socket}] for socket in single)
    # If the nodes with most free CPUs do not suffice, no others do.
    if not search.try_sets(
        chain.from_iterable(combinations(members, size) for members in within)
    ) and search.try_sets([find_freest(free, size)]):
        search.try_sets(combinations(every, size))
    return search.best


class _AlignedSearch:
    """Best of the sets tried so far."""

    def __init__(self, free: Sequence[int], count: int, size: int, group: int, tries: SearchBudget) -> None:
        self.best: Distribution | None = None
        self._least: tuple[int, tuple[int, ...]] | None = None
        self._free, self._count, self._size, self._group = free, count, size, group
        self._score = make_score(free, count)
        self._squares = sum(number * number for number in free)
        self._tries = tries
        self._known: dict[tuple[int, ...], tuple[int, int, RestDistribution | None] | None] = {}

    def try_sets(self, sets: Iterable[tuple[int, ...]]) -> bool:
        """Try sets of nodes; return whether there is a distribution by now."""
        for nodes in sets:
            if self._tries.left <= 0:
                break
            self._tries.left -= 1
            counts = tuple(self._free[at] for at in nodes)
            if counts not in self._known:
                self._known[counts] = self._measure(counts)
            found = self._known[counts]
            if found is None or (self._least is not None and (found[0], nodes) >= self._least):
                continue
            score, each, rest = found
            self._least = score, nodes
            self.best = Distribution(nodes, each, self._choose_rest(nodes, each, rest))
        if self.best is not None and self._tries.left <= 0:
            self.best = replace(self.best, best=False)
        return self.best is not None

    def _measure(self, counts: tuple[int, ...]) -> tuple[int, int, RestDistribution | None] | None:
        """Return the score of nodes with these free counts, the even share, and how the rest is taken."""
        group = self._group
        if sum(number // group for number in counts) * group < self._count:
            return None
        each = min(self._count // self._size, *counts) // group * group
        groups = (self._count - each * self._size) // group
        squares = self._squares + each * (each * self._size - 2 * sum(counts))
        if not groups:
            return self._score(squares), each, None
        left = [number - each for number in counts if number - each >= group]
        rest = RestDistribution(left, groups, group, self._tries)
        return None if rest.best < 0 else (self._score(squares - rest.best), each, rest)

    def _choose_rest(
        self, nodes: tuple[int, ...], each: int, rest: RestDistribution | None
    ) -> tuple[int, ...]:
        if rest is None:
            return ()
        givers = [at for at in nodes if self._free[at] - each >= self._group]
        squares = self._squares + each * (each * self._size - 2 * sum(self._free[at] for at in nodes))
        best = self._score(squares - rest.best)
        return tuple(givers[at] for at in rest.find(lambda drop: self._score(squares - drop) <= best))
