"""Distributed algorithm: the same number of CPUs from each of as few NUMA nodes as possible. Pure.

Bit-exact with the kubelet's static policy of 1.36, except that it always terminates. CPUs of one NUMA node
are packed. If no NUMA nodes can provide the same number each, the packed algorithm is used. With `by_socket`
NUMA nodes of one socket are preferred, as by the kubelet of 1.37.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.drivers.cpu.allocation.balance import Distribution, find_distribution
from plimsoll.drivers.cpu.allocation.explanation import StepKind
from plimsoll.drivers.cpu.allocation.options import Sorting
from plimsoll.drivers.cpu.allocation.packed import Log, order_numas, take_packed
from plimsoll.drivers.cpu.allocation.socket_alignment import find_aligned
from plimsoll.drivers.cpu.allocation.topology_tables import CpuGroup, TopologyTables


@dataclass(frozen=True, slots=True)
class DistributionResult:
    """Taken CPUs and the number of missing ones (negative: too many)."""

    mask: int
    missing: int
    log: Log


def take_distributed(
    tables: TopologyTables,
    free: int,
    count: int,
    group: int,
    sorting: Sorting,
    *,
    by_socket: bool = False,
    log: Log,
) -> tuple[int, int]:
    """Return the taken CPUs and the number of missing ones; `count` must not exceed the free CPUs."""
    free &= tables.all
    if count >= 1 and count % group == 0:
        result = _distribute(tables, free, count, group, sorting, by_socket=by_socket)
        if result is not None:
            log.extend(result.log)
            return result.mask, result.missing
        log.append((StepKind.NOT_EVEN, 0, 0))
    return take_packed(tables, free, count, sorting, align_l3=False, log=log)


def _distribute(
    tables: TopologyTables, free: int, count: int, group: int, sorting: Sorting, *, by_socket: bool
) -> DistributionResult | None:
    # A node that spans several sockets occurs in each of them.
    numas = list({numa.id: numa for numa in order_numas(tables, free)}.values())
    counts = [(numa.mask & free).bit_count() for numa in numas]
    sockets = [frozenset(socket.id for socket in tables.sockets if socket.mask & numa.mask) for numa in numas]
    for size in _sizes(tables, len(numas), count, group):
        if by_socket:
            aligned = find_aligned(counts, sockets, count, size, group)
            if aligned is None:
                continue
            result = _take_distribution(tables, free, count, group, sorting, numas, aligned)
            if result is not None and not aligned.best:
                result.log.append((StepKind.CUT_SHORT, 0, 0))
            return result
        found_distributions = find_distribution(counts, count, size, group)
        if found_distributions is None:
            continue
        found, used = found_distributions
        result = _take_distribution(
            tables, free, count, group, sorting, numas, used if tables.quirks else found
        )
        # DIFF: where the kubelet would loop forever, the distribution is used as found
        # (test_allocations_that_the_kubelet_never_finishes_succeed).
        result = result or _take_distribution(tables, free, count, group, sorting, numas, found)
        if result is not None and not found.best:
            result.log.append((StepKind.CUT_SHORT, 0, 0))
        return result
    return None


def _sizes(tables: TopologyTables, numas: int, count: int, group: int) -> range:
    """Return the range of NUMA node counts to try."""
    groups = -(-tables.all.bit_count() // group)
    per_numa = -(-groups // len(tables.numas))
    needed = -(-count // group)
    return range(-(-needed // per_numa), min(needed, numas) + 1)


def _take_distribution(
    tables: TopologyTables,
    free: int,
    count: int,
    group: int,
    sorting: Sorting,
    numas: list[CpuGroup],
    distribution: Distribution,
) -> DistributionResult | None:
    """Take the CPUs of a distribution; None if its nodes for the remainder run out of CPUs."""
    log: Log = []
    taken = 0
    missing = count

    def take(what: StepKind, numa: CpuGroup, amount: int) -> None:
        nonlocal free, taken, missing
        here = free & numa.mask
        if here.bit_count() < amount:
            return
        mask, _ = take_packed(tables, here, amount, sorting, align_l3=False, log=[])
        taken |= mask
        free &= ~mask
        missing -= mask.bit_count()
        log.append((what, numa.id, mask))

    for at in distribution.nodes:
        take(StepKind.EVEN, numas[at], distribution.each)
    rest = count - distribution.each * len(distribution.nodes)
    while rest > 0:
        before = rest
        for at in distribution.rest:
            if rest > 0 and (free & numas[at].mask).bit_count() >= group:
                take(StepKind.REST, numas[at], group)
                rest -= group
        if rest == before:
            return None
    return DistributionResult(taken, missing, log)
