"""Selection of the NUMA nodes for the distributed algorithm. Pure.

A `Distribution` takes the same number of CPUs from each of k nodes, and the remainder in groups in turn from
some of them. The kubelet tries every set of k nodes, and for each every subset for the remainder, and keeps
the first with the least standard deviation (in thousandths) of the free CPUs per node; with 16 nodes this
takes seconds. `find_distribution` finds the same result with branch and bound (see `SubsetSearch`).

As the total of free CPUs is the same for every distribution, the deviation grows with the sum of squares of
the free counts: squares are compared, as integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isqrt


@dataclass(frozen=True, slots=True)
class Distribution:
    """`each` CPUs from every node of `nodes`, then groups in turn from `rest`; both are positions.

    `best` is False if the search budget was exhausted.
    """

    nodes: tuple[int, ...]
    each: int
    rest: tuple[int, ...]
    best: bool = True


SEARCH_BUDGET = 300_000
"""Number of sets to try before the best one so far is used: seconds where the kubelet needs hours. Random
machines with up to 24 NUMA nodes never reach it, one in ten does with 32 to 64."""


def find_distribution(
    free: Sequence[int], count: int, size: int, group: int, *, budget: int = SEARCH_BUDGET
) -> tuple[Distribution, Distribution] | None:
    """Find the best distribution of `count` CPUs over `size` nodes with these free counts; None if
    impossible.

    Returns the distribution as found, and as the kubelet uses it: the kubelet keeps the best set in memory
    that later candidates overwrite, so that it often uses another set than it found.
    """
    tries = SearchBudget(budget)
    search = _Search(free, count, size, group, tries)
    nodes = search.find()
    if nodes is None:
        return None
    choices = [at for at, node in enumerate(nodes) if free[node] - search.each >= group]
    rest = search.find_rest(nodes) if search.groups else ()
    best = tries.left > 0
    found = Distribution(nodes, search.each, tuple(nodes[choices[at]] for at in rest), best)
    used_rest = emulate_overwritten(rest, len(choices))
    if search.best == 0:
        # At the first perfect set the kubelet stops, one set later.
        used = emulate_overwritten_by_next(nodes, len(free))
    else:
        used = emulate_overwritten(nodes, len(free))
    return found, Distribution(used, search.each, tuple(nodes[choices[at]] for at in used_rest), best)


# -- emulation of the kubelet's slice reuse


def count_unshared(length: int) -> int:
    """Return how many leading members of a set are not shared with later sets in the kubelet's memory.

    Sets grow by appending to slices of capacity 1, 2, 4, 8...; until a slice is full, sets with a common
    prefix share it.
    """
    capacity = 1
    while capacity < length:
        capacity *= 2
    return min(length, capacity // 2 + 1)


def emulate_overwritten(found: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a set of positions below `total` after all later sets of that size have overwritten it."""
    kept = count_unshared(len(found))
    return found[:kept] + tuple(range(total - len(found) + kept, total))


def emulate_overwritten_by_next(found: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a set of positions below `total` after its direct successor has overwritten it."""
    length = len(found)
    for at in range(length - 1, -1, -1):
        if found[at] < total - length + at:
            if at < count_unshared(length):
                return found
            return found[:at] + tuple(range(found[at] + 1, found[at] + 1 + length - at))
    return found


# -- the search


class SearchBudget:
    """Remaining number of sets to try."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class SubsetSearch:
    """Branch-and-bound search for the first subset of numbers with the least cost."""

    def __init__(self, numbers: Sequence[int], tries: SearchBudget) -> None:
        self.numbers = numbers
        self.tries = tries
        # A try takes longer with more numbers; up to 39 of them every one counts the same.
        self.weight = max(1, (len(numbers) // 20) ** 2)
        # Of the numbers from a position on, the largest first.
        self.largest = [sorted(numbers[at:], reverse=True) for at in range(len(numbers) + 1)]

    def find(
        self,
        size: int,
        bound: Callable[[Sequence[int]], int | None],
        cost: Callable[[Sequence[int]], int | None],
        limit: int,
    ) -> tuple[int, tuple[int, ...]] | None:
        """Return the least cost below `limit` of subsets of this size, and the first such subset (positions).

        `bound` is never greater than `cost` (None: impossible) and does not grow when a number is replaced by
        a larger one: a subset of which only the first members are known costs at least the bound of these and
        the largest others. Of subsets with equal numbers only the first is tried.
        """
        numbers, largest, tries = self.numbers, self.largest, self.tries
        found: tuple[int, ...] | None = None

        def descend(chosen: tuple[int, ...], known: list[int], start: int) -> None:
            nonlocal limit, found
            missing = size - len(chosen)
            if missing == 0:
                exact = cost(known)
                if exact is not None and exact < limit:
                    limit = exact
                    found = chosen
                return
            pruned = -1
            tried = set()
            for at in range(start, len(numbers) - missing + 1):
                number = numbers[at]
                if number <= pruned or number in tried:
                    continue
                if tries.left <= 0:
                    return
                tries.left -= self.weight
                tried.add(number)
                least = bound([*known, number, *largest[at + 1][: missing - 1]])
                if least is None or least >= limit:
                    pruned = number
                    continue
                descend((*chosen, at), [*known, number], at + 1)

        descend((), [], 0)
        return None if found is None else (limit, found)


class _Search:
    """Search for the first set of nodes, in order of positions, with the least deviation.

    Bounds: replacing a node by one with more free CPUs never makes the machine less even, and no way of
    taking the remainder is better than taking every group from the node with most CPUs left.
    """

    def __init__(self, free: Sequence[int], count: int, size: int, group: int, tries: SearchBudget) -> None:
        self.tries = tries
        self.size = size
        self.group = group
        self.each = count // size // group * group
        self.groups = (count - self.each * size) // group
        self.score = make_score(free, count)
        self.squares = sum(number * number for number in free)
        self.free = free
        self.nodes = [at for at, number in enumerate(free) if number >= self.each]
        self.best = 0
        self.known: dict[tuple[int, ...], int | None] = {}
        self.last: tuple[Sequence[int], RestDistribution] | None = None

    def find(self) -> tuple[int, ...] | None:
        if len(self.nodes) < self.size:
            return None
        numbers = [self.free[at] for at in self.nodes]
        freest = find_freest(numbers, self.size)
        seed = self._score_of([numbers[at] for at in freest])
        if seed is None:
            # The nodes with most free CPUs do not suffice, so no others do.
            return None
        self.best, chosen = seed, freest
        if len(numbers) > self.size:
            sets = SubsetSearch(numbers, self.tries)
            found = sets.find(self.size, self._bound, self._score_of, seed + 1)
            self.best, chosen = found or (seed, freest)
        return tuple(self.nodes[at] for at in chosen)

    def _bound(self, counts: Sequence[int]) -> int | None:
        """Return a lower bound of the score for these free counts; None if they do not suffice."""
        squares = self._squares_after_each(counts)
        if not self.groups:
            return self.score(squares)
        left = [count - self.each for count in counts]
        if sum(number // self.group for number in left) < self.groups:
            return None
        return self.score(squares - _max_drop(left, self.groups, self.group))

    def _squares_after_each(self, counts: Sequence[int]) -> int:
        return self.squares + self.each * (self.each * len(counts) - 2 * sum(counts))

    def _score_of(self, counts: Sequence[int]) -> int | None:
        """Return the least score for nodes with these free counts; None if they do not suffice."""
        key = tuple(counts)
        if key not in self.known:
            squares = self._squares_after_each(counts)
            drop = self._rest(counts).best if self.groups else 0
            self.known[key] = None if drop < 0 else self.score(squares - drop)
        return self.known[key]

    def _rest(self, counts: Sequence[int]) -> RestDistribution:
        if self.last is not None and self.last[0] == counts:
            return self.last[1]
        left = [count - self.each for count in counts if count - self.each >= self.group]
        rest = RestDistribution(left, self.groups, self.group, self.tries)
        self.last = (counts, rest)
        return rest

    def find_rest(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the positions of the nodes that provide the remainder."""
        counts = [self.free[node] for node in nodes]
        squares = self._squares_after_each(counts)
        return self._rest(counts).find(lambda drop: self.score(squares - drop) <= self.best)


class RestDistribution:
    """Distribution of the remainder: `groups` groups, in turn from a subset of nodes.

    `best` is the largest possible decrease of the sum of squares, negative if the nodes have too few groups.
    A subset that has too few is skipped; the kubelet would loop forever on it. Of a subset with at least as
    many nodes as groups, only the first nodes provide one group each.
    """

    def __init__(self, left: Sequence[int], groups: int, group: int, tries: SearchBudget) -> None:
        self.left = left
        self.groups = groups
        self.group = group
        self.sets = SubsetSearch(left, tries)
        self.single = self._single(self.sets.largest[0]) if len(left) >= groups else -1
        self.fewer = range(min(groups - 1, len(left)), 0, -1)
        # The largest numbers usually give the best result, which prunes the other candidates.
        seeds = ([left[at] for at in find_freest(left, size)] for size in self.fewer)
        self.best = max(self.single, *(self.drop(seed) for seed in seeds), -1)
        for size in reversed(self.fewer):
            if self._most_of(self.sets.largest[0][:size]) > self.best:
                self.best = max(self.best, self._drop_of(size))

    def _single(self, givers: Sequence[int]) -> int:
        return self.group * (2 * sum(givers[: self.groups]) - self.groups * self.group)

    def _most_of(self, subset: Sequence[int]) -> int:
        """Return an upper bound of the decrease if each node of a subset provides at least one group."""
        group = self.group
        drop = group * (2 * sum(subset) - group * len(subset))
        return drop + _max_drop([number - group for number in subset], self.groups - len(subset), group)

    def _drop_of(self, size: int) -> int:
        """Return the largest decrease for subsets of this size, if it exceeds the best known."""
        rounds, extra = divmod(self.groups, size)
        if min(self.left) // self.group >= rounds + (extra > 0):
            return self._drop_without_shortage(size, rounds, extra)
        found = self.sets.find(size, lambda subset: -self._most_of(subset), self._cost, -self.best)
        return self.best if found is None else -found[0]

    def _drop_without_shortage(self, size: int, rounds: int, extra: int) -> int:
        """Return the decrease if no node runs out: the first `extra` nodes provide one group more."""
        sums = [0] + [-1] * size
        for number in self.left:
            for at in range(size - 1, -1, -1):
                if sums[at] >= 0:
                    gives = rounds + 1 if at < extra else rounds
                    sums[at + 1] = max(sums[at + 1], sums[at] + gives * number)
        squares = extra * (rounds + 1) ** 2 + (size - extra) * rounds**2
        return self.group * (2 * sums[size] - self.group * squares)

    def _cost(self, subset: Sequence[int]) -> int | None:
        drop = self.drop(subset)
        return None if drop < 0 else -drop

    def drop(self, subset: Sequence[int]) -> int:
        """Return the decrease of the sum of squares for a subset; -1 if it has too few groups."""
        group = self.group
        room = [number // group for number in subset]
        missing = self.groups
        if sum(room) < missing:
            return -1
        given = [0] * len(room)
        active = list(range(len(room)))
        while missing:
            rounds = min(room[at] - given[at] for at in active)
            if rounds * len(active) > missing:
                rounds, missing = divmod(missing, len(active))
                for place, at in enumerate(active):
                    given[at] += rounds + (place < missing)
                break
            for at in active:
                given[at] += rounds
            missing -= rounds * len(active)
            active = [at for at in active if given[at] < room[at]]
        return group * sum(
            gave * (2 * number - gave * group) for gave, number in zip(given, subset, strict=True)
        )

    def find(self, good: Callable[[int], bool]) -> tuple[int, ...]:
        """Return the first good subset, larger ones first, then in order of positions."""
        if self.single >= 0 and good(self.single):
            return self._find_single(good)

        def possible(subset: Sequence[int]) -> int | None:
            return 0 if good(self._most_of(subset)) else None

        def right(subset: Sequence[int]) -> int | None:
            drop = self.drop(subset)
            return 0 if drop >= 0 and good(drop) else None

        for size in self.fewer:
            found = self.sets.find(size, possible, right, 1)
            if found is not None:
                return found[1]
        # The search budget is exhausted: use all nodes with a group left.
        return tuple(range(len(self.left)))

    def _find_single(self, good: Callable[[int], bool]) -> tuple[int, ...]:
        """Find the first good subset whose nodes provide one group each, as large as possible."""
        left, groups = self.left, self.groups

        def enough(chosen: list[int], start: int, end: int) -> bool:
            missing = groups - len(chosen)
            if end - start < missing:
                return False
            others = sorted(left[start:end], reverse=True)[:missing]
            return good(self._single([left[at] for at in chosen] + others))

        end = next(end for end in range(groups, len(left) + 1) if enough([], 0, end))
        chosen: list[int] = []
        for at in range(end):
            if len(chosen) < groups and enough([*chosen, at], at + 1, end):
                chosen.append(at)
        return (*chosen, *range(end, len(left)))


def find_freest(numbers: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the positions of the largest numbers, in order."""
    return tuple(sorted(sorted(range(len(numbers)), key=lambda at: -numbers[at])[:size]))


def _max_drop(left: Sequence[int], groups: int, group: int) -> int:
    """Return the decrease of the sum of squares if each group is taken from the node with most CPUs left."""
    heap = [-number for number in left]
    heapq.heapify(heap)
    drop = 0
    for _ in range(groups):
        number = -heap[0]
        drop += group * (2 * number - group)
        heapq.heapreplace(heap, group - number)
    return drop


def make_score(free: Sequence[int], count: int) -> Callable[[int], int]:
    """Return a function from the sum of squares to the kubelet's standard deviation, in thousandths."""
    nodes = len(free)
    left = sum(free) - count
    mean = left / nodes * 1000
    thousandths = floor(mean) + (mean - floor(mean) >= 0.5)
    constant = nodes * thousandths * thousandths - 2000 * thousandths * left
    known: dict[int, int] = {}

    def score(squares: int) -> int:
        found = known.get(squares)
        if found is None:
            found = known[squares] = (isqrt(4 * (1_000_000 * squares + constant) // nodes) + 1) // 2
        return found

    return score
