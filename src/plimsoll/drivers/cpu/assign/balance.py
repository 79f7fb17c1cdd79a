"""Which NUMA nodes CPUs are dealt out from: those that leave the machine most even.

Owns `Deal` and `find_deal`. A deal takes the same number of CPUs from each of k nodes, and the rest in groups
in turn from some of them. The kubelet tries every set of k nodes, and for each every subset for the rest, and
keeps the first with the least standard deviation (in thousandths) of what is left free on each node. With 16
nodes that takes it seconds. Here the same deal is found by bounds that sets of nodes cannot pass: see
`_Search`. Pure.

Since what is left in all is the same for every deal, the deviation only rises with the sum of squares of what
is left: squares are compared, in whole numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, isqrt


@dataclass(frozen=True, slots=True)
class Deal:
    """`each` CPUs from every one of `nodes`, then groups in turn from `rest`; both are positions."""

    nodes: tuple[int, ...]
    each: int
    rest: tuple[int, ...]


def find_deal(free: Sequence[int], count: int, size: int, group: int) -> tuple[Deal, Deal] | None:
    """The best deal of `count` CPUs from `size` nodes, of nodes with so many free; None if there is none.

    Twice: as it was found, and as the kubelet then uses it. It keeps the best set of nodes in memory that the
    sets it tries next are written to, so that what it uses is often not what it found.
    """
    search = _Search(free, count, size, group)
    nodes = search.find()
    if nodes is None:
        return None
    choices = [at for at, node in enumerate(nodes) if free[node] - search.each >= group]
    rest = search.find_rest(nodes) if search.groups else ()
    found = Deal(nodes, search.each, tuple(nodes[choices[at]] for at in rest))
    used_rest = overwritten(rest, len(choices))
    if search.best == 0:
        # At the first perfect set the kubelet stops, one set later.
        used = overwritten_by_next(nodes, len(free))
    else:
        used = overwritten(nodes, len(free))
    return found, Deal(used, search.each, tuple(nodes[choices[at]] for at in used_rest))


# -- what the kubelet's memory holds in the end


def own(length: int) -> int:
    """How many of its first members a set of nodes has to itself.

    Sets grow one by one in memory of 1, 2, 4, 8... places; until it is full, sets that begin alike share it.
    """
    capacity = 1
    while capacity < length:
        capacity *= 2
    return min(length, capacity // 2 + 1)


def overwritten(found: tuple[int, ...], total: int) -> tuple[int, ...]:
    """A set of positions below `total`, after all later sets of as many were tried."""
    kept = own(len(found))
    return found[:kept] + tuple(range(total - len(found) + kept, total))


def overwritten_by_next(found: tuple[int, ...], total: int) -> tuple[int, ...]:
    """A set of positions below `total`, after the one that follows it was tried."""
    length = len(found)
    for at in range(length - 1, -1, -1):
        if found[at] < total - length + at:
            if at < own(length):
                return found
            return found[:at] + tuple(range(found[at] + 1, found[at] + 1 + length - at))
    return found


# -- the search


class _Search:
    """The first set of nodes, in the order of positions, with the least deviation.

    Two facts bound a set of which only some nodes are known. A node with more free CPUs in place of another
    never makes the machine less even, so that no set is better than the known nodes with the freest others.
    And no way to hand out the rest is better than to take every group from the node with most left. Nodes
    with equal free counts are alike, so that of sets that look alike only the first is tried.
    """

    def __init__(self, free: Sequence[int], count: int, size: int, group: int) -> None:
        self.size = size
        self.group = group
        self.each = count // size // group * group
        self.groups = (count - self.each * size) // group
        self.score = _scoring(free, count)
        self.squares = sum(number * number for number in free)
        self.nodes = [at for at, number in enumerate(free) if number >= self.each]
        self.counts = [free[at] for at in self.nodes]
        # Of the nodes from a position on, the freest first.
        self.freest = [sorted(self.counts[at:], reverse=True) for at in range(len(self.counts) + 1)]
        self.best = 0
        self.found: tuple[int, ...] | None = None
        self.known: dict[tuple[int, ...], int | None] = {}

    def find(self) -> tuple[int, ...] | None:
        if len(self.nodes) < self.size:
            return None
        seed = self._score_of(self._freest_set())
        if seed is None:
            # The freest nodes cannot give so many: no others can.
            return None
        self.best = seed + 1
        self._descend((), (), 0)
        return self.found

    def _freest_set(self) -> tuple[int, ...]:
        """Free counts of the freest nodes, in the order of positions."""
        chosen = sorted(range(len(self.counts)), key=lambda at: -self.counts[at])[: self.size]
        return tuple(self.counts[at] for at in sorted(chosen))

    def _descend(self, chosen: tuple[int, ...], counts: tuple[int, ...], start: int) -> None:
        missing = self.size - len(chosen)
        if missing == 0:
            score = self._score_of(counts)
            if score is not None and score < self.best:
                self.best = score
                self.found = tuple(self.nodes[at] for at in chosen)
            return
        hopeless = -1
        tried = set()
        for at in range(start, len(self.counts) - missing + 1):
            count = self.counts[at]
            if count <= hopeless or count in tried:
                continue
            tried.add(count)
            with_this = (*counts, count)
            bound = self._bound([*with_this, *self.freest[at + 1][: missing - 1]])
            if bound is None or bound >= self.best:
                hopeless = count
                continue
            self._descend((*chosen, at), with_this, at + 1)

    def _bound(self, counts: list[int]) -> int | None:
        """A score that no set with these free counts can better; None if they cannot give so many."""
        squares = self._squares_after_each(counts)
        if not self.groups:
            return self.score(squares)
        left = [count - self.each for count in counts]
        if sum(number // self.group for number in left) < self.groups:
            return None
        return self.score(squares - _most(left, self.groups, self.group))

    def _squares_after_each(self, counts: Sequence[int]) -> int:
        return self.squares + self.each * (self.each * len(counts) - 2 * sum(counts))

    def _score_of(self, counts: tuple[int, ...]) -> int | None:
        """The least score of a set of nodes with these free counts; None if they cannot give so many."""
        if counts not in self.known:
            squares = self._squares_after_each(counts)
            if self.groups:
                left = [count - self.each for count in counts if count - self.each >= self.group]
                drop = _Rest(left, self.groups, self.group).best
                self.known[counts] = None if drop is None else self.score(squares - drop)
            else:
                self.known[counts] = self.score(squares)
        return self.known[counts]

    def find_rest(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Which of the nodes that have a group left give the rest: positions among these."""
        at = dict(zip(self.nodes, self.counts, strict=True))
        counts = [at[node] for node in nodes]
        squares = self._squares_after_each(counts)
        left = [count - self.each for count in counts if count - self.each >= self.group]
        return _Rest(left, self.groups, self.group).find(lambda drop: self.score(squares - drop) <= self.best)


class _Rest:
    """How the rest is dealt out: `groups` groups, in turn from a subset of nodes with so many CPUs left.

    A subset that cannot give so many groups is passed over; the kubelet does not return from it. `best` is by
    how much the sum of squares can drop.
    """

    def __init__(self, left: Sequence[int], groups: int, group: int) -> None:
        self.left = left
        self.groups = groups
        self.group = group
        # By how much squares drop with as many nodes as groups or more, and with fewer, by how many.
        self.single = self._drop_single()
        self.fewer = dict(self._drops_fewer())
        best = max((self.single, *self.fewer.values()))
        self.best = best if best >= 0 else None

    def _drop_single(self) -> int:
        """One group from each of as many nodes."""
        if len(self.left) < self.groups:
            return -1
        return self._single(sum(heapq.nlargest(self.groups, self.left)))

    def _single(self, total: int) -> int:
        return self.group * (2 * total - self.groups * self.group)

    def _drops_fewer(self) -> Iterator[tuple[int, int]]:
        best = self.single
        ordered = sorted(self.left, reverse=True)
        for size in range(min(self.groups - 1, len(ordered)), 0, -1):
            # Only what is better than all larger subsets counts, and fewer nodes cannot do better than more.
            if _most(ordered[:size], self.groups, self.group) <= best:
                return
            drop = self._drop_of(size)
            if drop > best:
                best = drop
                yield size, drop

    def _drop_of(self, size: int) -> int:
        rounds, extra = divmod(self.groups, size)
        if min(self.left) // self.group >= rounds + (extra > 0):
            return self._drop_roomy(size, rounds, extra)
        return max(self.drop(subset) for subset in combinations(self.left, size))

    def _drop_roomy(self, size: int, rounds: int, extra: int) -> int:
        """Where no node runs out: the first `extra` of the subset give one group more than the others."""
        sums = [0] + [-1] * size
        for number in self.left:
            for at in range(size - 1, -1, -1):
                if sums[at] >= 0:
                    gives = rounds + 1 if at < extra else rounds
                    sums[at + 1] = max(sums[at + 1], sums[at] + gives * number)
        squares = extra * (rounds + 1) ** 2 + (size - extra) * rounds**2
        return self.group * (2 * sums[size] - self.group * squares)

    def drop(self, subset: Sequence[int]) -> int:
        """By how much squares drop if these nodes give in turn; -1 if they cannot give so many groups."""
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
        """The first good subset, larger ones first, then in the order of positions."""
        if self.single >= 0 and good(self.single):
            return self._find_single(good)
        for size in range(min(self.groups - 1, len(self.left)), 0, -1):
            if size in self.fewer and good(self.fewer[size]):
                for subset in combinations(range(len(self.left)), size):
                    drop = self.drop([self.left[at] for at in subset])
                    if drop >= 0 and good(drop):
                        return subset
        return ()

    def _find_single(self, good: Callable[[int], bool]) -> tuple[int, ...]:
        """Only the first members of a large subset give: the sooner these end, the larger it can be."""
        left, groups = self.left, self.groups

        def enough(chosen: list[int], start: int, end: int) -> bool:
            others = left[start:end]
            missing = groups - len(chosen)
            if len(others) < missing:
                return False
            total = sum(left[at] for at in chosen) + sum(heapq.nlargest(missing, others))
            return good(self._single(total))

        end = next(end for end in range(groups, len(left) + 1) if enough([], 0, end))
        chosen: list[int] = []
        for at in range(end):
            if len(chosen) < groups and enough([*chosen, at], at + 1, end):
                chosen.append(at)
        return (*chosen, *range(end, len(left)))


def _most(left: Sequence[int], groups: int, group: int) -> int:
    """By how much squares drop if each group is taken from the node with most left."""
    heap = [-number for number in left]
    heapq.heapify(heap)
    drop = 0
    for _ in range(groups):
        number = -heap[0]
        drop += group * (2 * number - group)
        heapq.heapreplace(heap, group - number)
    return drop


def _scoring(free: Sequence[int], count: int) -> Callable[[int], int]:
    """Sum of squares -> standard deviation in thousandths, rounded as the kubelet rounds."""
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
