"""Packed: as few sockets, NUMA nodes, caches and cores as possible, the fullest first.

Owns `take_packed`: whole sockets and NUMA nodes while the request is as large, then (if asked) whole L3
caches or a part of one, whole cores, single threads. Ties go to the lowest id. Bit-exact with the kubelet's
static policy of 1.36, including what it does on machines whose cores are uneven, where it may take CPUs that
are not free (`Tables.quirks`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from plimsoll.drivers.cpu.allocation.explanation import What
from plimsoll.drivers.cpu.allocation.options import Sorting
from plimsoll.drivers.cpu.allocation.topology_tables import Group, Groups, Tables

Log: TypeAlias = "list[tuple[What, int, int]]"
"""What was taken: kind, id, mask."""


def take_packed(
    tables: Tables, free: int, count: int, sorting: Sorting, *, align_l3: bool, log: Log
) -> tuple[int, int]:
    """The CPUs taken of those that are free, and how many are missing; `count` is not more than are free."""
    taking = _Taking(tables, free & tables.all, count, log)
    if count < 1:
        return 0, 0
    taking.take_whole_parts()
    if taking.needed > 0 and align_l3:
        taking.take_caches()
    if taking.needed > 0 and sorting is not Sorting.SPREAD:
        taking.take_cores()
    if taking.needed > 0:
        taking.take_threads(sorting)
    return taking.taken, max(taking.needed, 0)


def order(groups: Iterable[Group], free: int) -> list[Group]:
    """Groups with anything free in them, the fullest (fewest free CPUs) first, then by id."""
    # Lists are in the order of ids, and sorting is stable.
    found = [group for group in groups if group.inside & free]
    if len(found) > 1:
        found.sort(key=lambda group: (group.mask & free).bit_count())
    return found


def order_numas(tables: Tables, free: int) -> list[Group]:
    """NUMA nodes with anything free; inside their sockets where sockets are the larger."""
    if tables.numa_first:
        return order(tables.numas, free)
    return _order_lower(tables, tables.sockets, free)


def _order_sockets(tables: Tables, free: int) -> list[Group]:
    if tables.numa_first:
        return _order_lower(tables, tables.numas, free)
    return order(tables.sockets, free)


def _order_lower(tables: Tables, upper: Groups, free: int) -> list[Group]:
    return [group for one in order(upper, free) for group in order(tables.lower[one.id], free)]


class _Taking:
    """CPUs being taken. What is looked at in a step is what was free when the step began."""

    __slots__ = ("free", "log", "needed", "tables", "taken")

    def __init__(self, tables: Tables, free: int, count: int, log: Log) -> None:
        self.tables = tables
        self.free = free
        self.needed = count
        self.taken = 0
        self.log = log

    def take(self, what: What, group: int, mask: int) -> None:
        # With quirks a group that is met twice counts twice, and all of it counts, free or not.
        self.needed -= (mask if self.tables.quirks else mask & self.free).bit_count()
        self.taken |= mask
        self.free &= ~mask
        self.log.append((what, group, mask))

    def take_whole_parts(self) -> None:
        tables = self.tables
        if tables.numa_first:
            self._take_numas()
            if self.needed > 0:
                self._take_sockets()
        else:
            self._take_sockets()
            if self.needed > 0:
                self._take_numas()

    def _take_sockets(self) -> None:
        if self.needed >= self.tables.least_socket:
            self._take_whole(What.SOCKETS, _order_sockets(self.tables, self.free))

    def _take_numas(self) -> None:
        if self.needed >= self.tables.least_numa:
            self._take_whole(What.NUMA_NODES, order_numas(self.tables, self.free))

    def _take_whole(self, what: What, groups: Iterable[Group]) -> None:
        free = self.free
        for group in groups:
            if (group.mask & free).bit_count() == group.whole and self.needed >= group.size:
                self.take(what, group.id, group.mask)

    def take_caches(self) -> None:
        """Whole caches while the request is as large, else the rest of it inside one cache."""
        tables = self.tables
        caches = [
            cache
            for numa in order_numas(tables, self.free)
            for cache in order(tables.caches[numa.id], self.free)
        ]
        tried = False
        for cache in caches:
            # Once is enough: what did not fit then, or was not wholly free, cannot be so later.
            if not tried and self.needed >= tables.per_cache:
                tried = True
                if self.needed >= tables.least_cache:
                    self._take_whole(What.CACHES, caches)
                    if self.needed < 1:
                        return
            part = self._part_of(cache)
            if part:
                self.take(What.CACHE_PART, cache.id, part)
                return

    def _part_of(self, cache: Group) -> int:
        """As many CPUs as are missing, of the first cores of a cache; nothing if it has not so many."""
        cores = [core for core in self.tables.cache_cores[cache.id] if core.inside & self.free]
        if not self.tables.quirks:
            return self._part_of_cores(cores)
        per_core = self.tables.per_core
        part = 0
        for core in cores[: (self.needed + per_core - 1) // per_core]:
            part |= core.mask
        part &= self.free
        excess = part.bit_count() - self.needed
        if excess > 0 and self.needed % 2 and per_core > 1:
            part ^= 1 << (part.bit_length() - 1)
            excess -= 1
        return part if excess == 0 else 0

    def _part_of_cores(self, cores: Iterable[Group]) -> int:
        part = 0
        for core in cores:
            part |= core.mask & self.free
            if (excess := part.bit_count() - self.needed) >= 0:
                spare = core.mask & self.free
                return part ^ spare ^ lowest(spare, spare.bit_count() - excess)
        return 0

    def take_cores(self) -> None:
        free = self.free
        least = self.tables.least_core
        for core in self._cores(free):
            if self.needed < least:
                return
            if (core.mask & free).bit_count() == core.whole and self.needed >= core.size:
                self.take(What.CORES, core.id, core.mask)

    def take_threads(self, sorting: Sorting) -> None:
        free = self.free
        spread = sorting is Sorting.SPREAD
        for group in _order_sockets(self.tables, free) if spread else self._cores(free):
            mask = group.mask & free
            if not self.tables.quirks:
                mask &= self.free
            if mask:
                self.take(What.THREADS, group.id, lowest(mask, self.needed))
            if self.needed < 1:
                return

    def _cores(self, free: int) -> Iterator[Group]:
        tables = self.tables
        lower = _order_sockets(tables, free) if tables.numa_first else order_numas(tables, free)
        for group in lower:
            yield from order(tables.cores[group.id], free)


def lowest(mask: int, count: int) -> int:
    """The lowest CPUs of a mask, at most so many."""
    if count >= mask.bit_count():
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest
