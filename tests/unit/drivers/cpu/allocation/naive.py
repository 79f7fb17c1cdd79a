"""Naive version of the kubelet's CPU selection: sets, every combination, no shortcuts.

`ENDLESS` stands for selections that the kubelet never finishes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.topology import Cpu, Topology

ENDLESS = "endless"

Of: TypeAlias = Callable[[Cpu], int]


class NoProgress(Exception):
    """Raised when a full round takes no CPU."""


def choose(topology: Topology, available: set[int], count: int, options: AssignOptions) -> set[int] | str:
    """Return the selected CPUs, or the text of an error."""
    try:
        if options.algorithm is Algorithm.PACKED:
            return packed(topology, available, count, options.sorting, options.align_l3)
        return distributed(topology, available, count, options.sorting, options.group_size)
    except NoProgress:
        return ENDLESS


class FreeCpus:
    """Free CPUs, and those already taken of them."""

    def __init__(self, topology: Topology, available: set[int], count: int) -> None:
        self.machine = list(topology.cpus)
        self.free = [cpu for cpu in topology.cpus if cpu.id in available]
        self.needed = count
        self.taken: set[int] = set()
        sockets = {cpu.socket for cpu in self.machine}
        self.per_core = len(self.machine) // max(1, len({cpu.core for cpu in self.machine}))
        self.per_socket = len(self.machine) // max(1, len(sockets))
        self.per_cache = len(self.machine) // max(1, len({cache_of(cpu) for cpu in self.machine}))
        self.numa_first = len(sockets) >= len({cpu.numa for cpu in self.machine})

    def take(self, cpus: Iterable[int]) -> None:
        cpus = set(cpus)
        self.taken |= cpus
        self.free = [cpu for cpu in self.free if cpu.id not in self.taken]
        self.needed -= len(cpus)

    def sort(self, what: Of, within: Of | None = None, key: int = 0) -> list[int]:
        """Sort IDs by their number of free CPUs, then by ID."""
        ids = {what(cpu) for cpu in self.free if within is None or within(cpu) == key}
        return sorted(ids, key=lambda key: (len(members(self.free, what, key)), key))

    def numas(self) -> list[int]:
        if self.numa_first:
            return self.sort(numa_of)
        return [n for s in self.sockets() for n in self.sort(numa_of, socket_of, s)]

    def sockets(self) -> list[int]:
        if not self.numa_first:
            return self.sort(socket_of)
        return [s for n in self.numas() for s in self.sort(socket_of, numa_of, n)]

    def caches(self) -> list[int]:
        return [c for n in self.numas() for c in self.sort(cache_of, numa_of, n)]

    def cores(self) -> list[int]:
        if self.numa_first:
            return [c for s in self.sockets() for c in self.sort(core_of, socket_of, s)]
        return [c for n in self.numas() for c in self.sort(core_of, numa_of, n)]

    def get_cpus_per_core(self, sorting: Sorting) -> list[int]:
        if sorting is Sorting.SPREAD:
            return [cpu for s in self.sockets() for cpu in sorted(members(self.free, socket_of, s))]
        return [cpu for c in self.cores() for cpu in sorted(members(self.free, core_of, c))]

    def take_whole(self, ids: list[int], what: Of, size: int | None) -> None:
        whole = [
            key
            for key in ids
            if len(members(self.free, what, key)) == (size or len(members(self.machine, what, key)))
        ]
        for key in whole:
            cpus = members(self.machine, what, key)
            if self.needed >= len(cpus):
                self.take(cpus)

    def take_part(self, cache: int) -> None:
        cores = sorted({cpu.core for cpu in self.free if cache_of(cpu) == cache})
        cores = cores[: math.ceil(self.needed / self.per_core)]
        cpus = sorted(cpu.id for cpu in self.free if cpu.core in cores)
        if self.needed % 2 and self.per_core > 1 and len(cpus) > self.needed:
            cpus.pop()
        if len(cpus) == self.needed:
            self.take(cpus)


def packed(
    topology: Topology, available: set[int], count: int, sorting: Sorting, align: bool
) -> set[int] | str:
    pile = FreeCpus(topology, available, count)
    if count < 1:
        return set()
    if count > len(pile.free):
        return f"not enough cpus available to satisfy request: requested={count}, available={len(available)}"
    for step in _steps(pile, sorting, align):
        step()
        if pile.needed < 1:
            return pile.taken
    return "failed to allocate cpus"


def _steps(pile: FreeCpus, sorting: Sorting, align: bool) -> Iterator[Callable[[], None]]:
    levels = [
        lambda: pile.take_whole(pile.numas(), numa_of, None),
        lambda: pile.take_whole(pile.sockets(), socket_of, pile.per_socket),
    ]
    yield from levels if pile.numa_first else reversed(levels)

    def caches() -> None:
        for cache in pile.caches():
            if pile.needed >= pile.per_cache:
                pile.take_whole(pile.caches(), cache_of, None)
            if pile.needed >= 1:
                pile.take_part(cache)
            if pile.needed < 1:
                return

    def get_cpus_per_core() -> None:
        for cpu in pile.get_cpus_per_core(sorting):
            pile.take([cpu])
            if pile.needed < 1:
                return

    if align:
        yield caches
    if sorting is not Sorting.SPREAD:
        yield lambda: pile.take_whole(pile.cores(), core_of, pile.per_core)
    yield get_cpus_per_core


def distributed(
    topology: Topology, available: set[int], count: int, sorting: Sorting, group: int
) -> set[int] | str:
    if count % group:
        return packed(topology, available, count, sorting, False)
    pile = FreeCpus(topology, available, count)
    if count < 1:
        return set()
    if count > len(pile.free):
        return f"not enough cpus available to satisfy request: requested={count}, available={len(available)}"
    numas = pile.numas()
    free = {numa: len(members(pile.free, numa_of, numa)) for numa in numas}
    groups = math.ceil(len(pile.machine) / group)
    per_numa = math.ceil(groups / len({cpu.numa for cpu in pile.machine}))
    for size in range(math.ceil(count / group / per_numa), min(count // group, len(free)) + 1):
        distribution = find_distribution(numas, free, count, size, group)
        if distribution is None:
            continue
        nodes, rest = distribution

        def take(numa: int, amount: int) -> None:
            cpus = packed(topology, members(pile.free, numa_of, numa), amount, sorting, False)
            pile.take(cpus if isinstance(cpus, set) else ())

        each = count // size // group * group
        for numa in nodes:
            take(numa, each)
        missing = count - each * size
        while missing > 0:
            before = missing
            for numa in rest:
                if missing and len(members(pile.free, numa_of, numa)) >= group:
                    take(numa, group)
                    missing -= group
            if missing == before:
                raise NoProgress
        if pile.needed:
            amount = "not enough" if pile.needed > 0 else "too many"
            return f"accounting error, {amount} CPUs allocated, remaining: {pile.needed}"
        return pile.taken
    return packed(topology, available, count, sorting, False)


def find_distribution(
    numas: list[int], free: dict[int, int], count: int, size: int, group: int
) -> tuple[list[int], list[int]] | None:
    """Return the NUMA nodes to take from and those for the remainder, as the kubelet's slices hold them."""
    best = math.inf
    kept: GoSlice | None = None
    kept_rest: list[int] = []
    each = count // size // group * group
    for nodes in combinations(numas, size):
        if best == 0:
            break
        combo = nodes.read()
        if sum(free[numa] // group * group for numa in combo) < count:
            continue
        if any(free[numa] < each for numa in combo):
            continue
        left = free | {numa: free[numa] - each for numa in combo}
        missing = count - each * size
        rest: list[int] = []
        if missing:
            here, rest = find_rest([numa for numa in combo if left[numa] >= group], left, missing, group)
        else:
            here = deviation(left.values())
        if here < best:
            best, kept, kept_rest = here, nodes, rest
    return None if kept is None else (kept.read(), kept_rest)


def find_aligned(
    free: list[int], sockets: list[set[int]], count: int, size: int, group: int
) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Return nodes, even share and givers of the rest as 1.37 does, but for its reused slices."""
    best: tuple[float, tuple[int, ...], int, tuple[int, ...]] | None = None
    best_in_one = False
    for nodes in itertools.combinations(range(len(free)), size):
        if sum(free[at] // group for at in nodes) * group < count:
            continue
        each = min([count // size // group * group, *(free[at] // group * group for at in nodes)])
        left = {at: number - (each if at in nodes else 0) for at, number in enumerate(free)}
        missing = count - each * size
        givers = [at for at in nodes if left[at] >= group]
        found: tuple[float, tuple[int, ...]] | None = None if missing else (deviation(left.values()), ())
        for some in range(len(givers), 0, -1) if missing else ():
            for subset in itertools.combinations(givers, some):
                if sum(left[at] // group for at in subset) * group < missing:
                    continue
                after, rest = dict(left), missing
                while rest:
                    for at in subset:
                        if rest and after[at] >= group:
                            after[at] -= group
                            rest -= group
                balance = deviation(after.values())
                if found is None or balance < found[0]:
                    found = balance, subset
        if found is None:
            continue
        in_one = len(set().union(*(sockets[at] for at in nodes))) == 1
        better = best is None or found[0] < best[0]
        if in_one != best_in_one:
            better = in_one
        if better:
            best, best_in_one = (found[0], nodes, each, found[1]), in_one
    return None if best is None else best[1:]


def find_rest(choices: list[int], left: dict[int, int], missing: int, group: int) -> tuple[float, list[int]]:
    best = math.inf
    kept: GoSlice | None = None
    for size in range(len(choices), 0, -1):
        for subset in combinations(choices, size):
            if sum(left[numa] for numa in subset.read()) < missing:
                continue
            after = dict(left)
            needed = missing
            while needed > 0:
                before = needed
                for numa in subset.read():
                    if needed and after[numa] >= group:
                        after[numa] -= group
                        needed -= group
                if needed == before:
                    raise NoProgress
            here = deviation(after.values())
            if here < best:
                best, kept = here, subset
    return best, [] if kept is None else kept.read()


class GoSlice:
    """Growing list by Go's rules: an item is appended in place if there is capacity, else to a copy."""

    def __init__(self, memory: list[int] | None = None, length: int = 0) -> None:
        self.memory = [] if memory is None else memory
        self.length = length

    def read(self) -> list[int]:
        return self.memory[: self.length]

    def append(self, item: int) -> GoSlice:
        if self.length < len(self.memory):
            self.memory[self.length] = item
            return GoSlice(self.memory, self.length + 1)
        capacity = max(1, 2 * len(self.memory))
        memory = [*self.read(), item, *[0] * (capacity - self.length - 1)]
        return GoSlice(memory, self.length + 1)


def combinations(items: list[int], size: int) -> Iterator[GoSlice]:
    def grow(size: int, start: int, grown: GoSlice) -> Iterator[GoSlice]:
        if size == 0:
            yield grown
            return
        for at in range(start, len(items) - size + 1):
            yield from grow(size - 1, at + 1, grown.append(items[at]))

    yield from grow(size, 0, GoSlice())


def deviation(numbers: Iterable[int]) -> float:
    numbers = list(numbers)
    mean = round_go(sum(numbers) / len(numbers) * 1000) / 1000
    squares = sum((number - mean) ** 2 for number in numbers)
    return round_go(math.sqrt(squares / len(numbers)) * 1000) / 1000


def round_go(number: float) -> int:
    return math.floor(number) + (number - math.floor(number) >= 0.5)


def members(cpus: list[Cpu], what: Of, key: int) -> set[int]:
    return {cpu.id for cpu in cpus if what(cpu) == key}


def numa_of(cpu: Cpu) -> int:
    return cpu.numa


def socket_of(cpu: Cpu) -> int:
    return cpu.socket


def core_of(cpu: Cpu) -> int:
    return cpu.core


def cache_of(cpu: Cpu) -> int:
    return cpu.socket if cpu.l3 < 0 else cpu.l3
