"""Full cores: free cores, and combinations of core sizes that make up an amount. Pure.

Cores of one machine may have different numbers of threads (hybrid machines, CPUs offline).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from plimsoll.drivers.cpu.allocation.topology_tables import TopologyTables


def find_free_cores(tables: TopologyTables, free: int) -> list[int]:
    """Return the masks of completely free cores."""
    return [core for core in tables.core_masks if core & free == core]


def get_cpus_per_core(tables: TopologyTables) -> int:
    """Return the greatest common divisor of core sizes: the CPUs per core if all are equal."""
    return gcd(*(core.bit_count() for core in tables.core_masks)) or 1


def splits_any_core(tables: TopologyTables, cpus: int) -> bool:
    """Report whether the CPUs contain a core partially."""
    return any(0 != core & cpus != core for core in tables.core_masks)


def get_core_size(cores: Sequence[int], mask: int) -> int:
    """Return the core size within a mask of cores of one size."""
    return next(core.bit_count() for core in cores if core & mask)


def take_first_cores(cores: Sequence[int], parts: Sequence[tuple[int, int]]) -> int:
    """Return the first cores that make up the amounts of each size."""
    taken = 0
    for mask, amount in parts:
        for core in cores:
            if core & mask and amount >= core.bit_count():
                taken |= core
                amount -= core.bit_count()
    return taken


def split_by_core_size(cores: Sequence[int], count: int) -> list[tuple[int, int]] | None:
    """Split `count` CPUs into amounts per core size: (mask of all cores of a size, number of CPUs).

    Prefers larger cores. None if full cores cannot make up the amount.
    """
    masks: dict[int, int] = {}
    for core in cores:
        size = core.bit_count()
        masks[size] = masks.get(size, 0) | core
    sizes = sorted(masks, reverse=True)
    dead: set[tuple[int, int]] = set()

    def choose(at: int, missing: int) -> list[tuple[int, int]] | None:
        if missing == 0:
            return []
        if at == len(sizes) or (at, missing) in dead:
            return None
        size = sizes[at]
        for number in range(min(missing, masks[size].bit_count()) // size, -1, -1):
            rest = choose(at + 1, missing - number * size)
            if rest is not None:
                return [(masks[size], number * size), *rest] if number else rest
        dead.add((at, missing))
        return None

    return choose(0, count)
