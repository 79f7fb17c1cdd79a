"""Whole cores only: which are free, and how many of each size make up an amount.

Cores of one machine may have different numbers of threads (hybrid machines, CPUs switched off). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from plimsoll.drivers.cpu.allocation.topology_tables import Tables


def free_cores(tables: Tables, free: int) -> list[int]:
    """Masks of the cores all of whose CPUs are free."""
    return [core for core in tables.core_masks if core & free == core]


def threads(tables: Tables) -> int:
    """What every amount made of whole cores is a multiple of: CPUs per core, where all have as many."""
    return gcd(*(core.bit_count() for core in tables.core_masks)) or 1


def split_any(tables: Tables, cpus: int) -> bool:
    """Whether some core is in part among these CPUs and in part not."""
    return any(0 != core & cpus != core for core in tables.core_masks)


def size_within(cores: Sequence[int], mask: int) -> int:
    """CPUs per core of a mask of cores of one size."""
    return next(core.bit_count() for core in cores if core & mask)


def first_of(cores: Sequence[int], parts: Sequence[tuple[int, int]]) -> int:
    """The first cores that make up the amounts of each size."""
    taken = 0
    for mask, amount in parts:
        for core in cores:
            if core & mask and amount >= core.bit_count():
                taken |= core
                amount -= core.bit_count()
    return taken


def parts_of(cores: Sequence[int], count: int) -> list[tuple[int, int]] | None:
    """`count` CPUs as amounts of cores of one size each: (mask of all cores of a size, how many CPUs).

    As many of the larger cores as possible. None if no whole cores make up the amount.
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
