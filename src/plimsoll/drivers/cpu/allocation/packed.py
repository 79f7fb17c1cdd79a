"""Packed algorithm: as few sockets, NUMA nodes, caches and cores as possible, the fullest first. Pure.

Takes full sockets and NUMA nodes while the request is that large, then (with `align_l3`) full L3 caches or a
part of one, full cores, and single threads; ties are broken by the lowest ID. Bit-exact with the kubelet's
static policy of 1.36, including its behavior on machines with uneven cores, where it may take CPUs that are
not free (`TopologyTables.quirks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from plimsoll.drivers.cpu.allocation.explanation import StepKind
from plimsoll.drivers.cpu.allocation.options import Sorting
from plimsoll.drivers.cpu.allocation.topology_tables import CpuGroup, Groups, TopologyTables

Log: TypeAlias = "list[tuple[StepKind, int, int]]"
"""Taken CPUs: kind, ID, mask."""


def take_packed(
    tables: TopologyTables, free: int, count: int, sorting: Sorting, *, align_l3: bool, log: Log
) -> tuple[int, int]:
    """Return the taken CPUs and the number of missing ones; `count` must not exceed the free CPUs."""
    run = _PackedAllocation(tables, free & tables.all, count, log)
    if count < 1:
        return 0, 0
    run.take_full_domains()
    if run.needed > 0 and align_l3:
        run.take_caches()
    if run.needed > 0 and sorting is not Sorting.SPREAD:
        run.take_cores()
    if run.needed > 0:
        run.take_threads(sorting)
    return run.taken, max(run.needed, 0)


def order(groups: Iterable[CpuGroup], free: int) -> list[CpuGroup]:
    """Return groups with free CPUs, the fullest (fewest free CPUs) first, then by ID."""
    # Lists are in the order of ids, and sorting is stable.
    found = [group for group in groups if group.inside & free]
    if len(found) > 1:
        found.sort(key=lambda group: (group.mask & free).bit_count())
    return found


def order_numas(tables: TopologyTables, free: int) -> list[CpuGroup]:
    """Return NUMA nodes with free CPUs, grouped by socket if sockets are the larger unit."""
    if tables.numa_first:
        return order(tables.numas, free)
    return _order_lower(tables, tables.sockets, free)


def _order_sockets(tables: TopologyTables, free: int) -> list[CpuGroup]:
    if tables.numa_first:
        return _order_lower(tables, tables.numas, free)
    return order(tables.sockets, free)


def _order_lower(tables: TopologyTables, upper: Groups, free: int) -> list[CpuGroup]:
    return [group for one in order(upper, free) for group in order(tables.lower[one.id], free)]


#: Steps in a cache, where the socket takes its place.
_SOCKET_STEPS = {StepKind.CACHES: StepKind.SOCKETS, StepKind.CACHE_PART: StepKind.SOCKET_PART}


class _PackedAllocation:
    """Allocation in progress. Each step considers the CPUs that were free when it began."""

    __slots__ = ("free", "log", "needed", "tables", "taken")

    def __init__(self, tables: TopologyTables, free: int, count: int, log: Log) -> None:
        self.tables = tables
        self.free = free
        self.needed = count
        self.taken = 0
        self.log = log

    def take(self, what: StepKind, group: int, mask: int) -> None:
        if mask & self.tables.without_l3:
            what = _SOCKET_STEPS.get(what, what)
        # With quirks a group that occurs twice counts twice, including its CPUs that are not free.
        self.needed -= (mask if self.tables.quirks else mask & self.free).bit_count()
        self.taken |= mask
        self.free &= ~mask
        self.log.append((what, group, mask))

    def take_full_domains(self) -> None:
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
            self._take_full(StepKind.SOCKETS, _order_sockets(self.tables, self.free))

    def _take_numas(self) -> None:
        if self.needed >= self.tables.least_numa:
            self._take_full(StepKind.NUMA_NODES, order_numas(self.tables, self.free))

    def _take_full(self, what: StepKind, groups: Iterable[CpuGroup]) -> None:
        free = self.free
        for group in groups:
            if (group.mask & free).bit_count() == group.whole and self.needed >= group.size:
                self.take(what, group.id, group.mask)

    def take_caches(self) -> None:
        """Take full caches while the request is that large, else the remainder inside one cache."""
        tables = self.tables
        caches = [
            cache
            for numa in order_numas(tables, self.free)
            for cache in order(tables.caches[numa.id], self.free)
        ]
        tried = False
        for cache in caches:
            # Once is enough: a cache that did not fit, or was not completely free, never will.
            if not tried and self.needed >= tables.per_cache:
                tried = True
                if self.needed >= tables.least_cache:
                    self._take_full(StepKind.CACHES, caches)
                    if self.needed < 1:
                        return
            part = self._part_of(cache)
            if part:
                self.take(StepKind.CACHE_PART, cache.id, part)
                return

    def _part_of(self, cache: CpuGroup) -> int:
        """Return the missing CPUs from the first cores of a cache; 0 if it has too few."""
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

    def _part_of_cores(self, cores: Iterable[CpuGroup]) -> int:
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
                self.take(StepKind.CORES, core.id, core.mask)

    def take_threads(self, sorting: Sorting) -> None:
        free = self.free
        spread = sorting is Sorting.SPREAD
        for group in _order_sockets(self.tables, free) if spread else self._cores(free):
            mask = group.mask & free
            if not self.tables.quirks:
                mask &= self.free
            if mask:
                self.take(StepKind.THREADS, group.id, lowest(mask, self.needed))
            if self.needed < 1:
                return

    def _cores(self, free: int) -> Iterator[CpuGroup]:
        tables = self.tables
        lower = _order_sockets(tables, free) if tables.numa_first else order_numas(tables, free)
        for group in lower:
            yield from order(tables.cores[group.id], free)


def lowest(mask: int, count: int) -> int:
    """Return up to `count` lowest CPUs of a mask."""
    if count >= mask.bit_count():
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest
