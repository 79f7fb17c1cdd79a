"""Distributed: the same number of CPUs from each of as few NUMA nodes as possible.

Owns `take_distributed`, bit-exact with the kubelet's static policy of 1.36, except that it always returns.
Inside a NUMA node CPUs are packed. Where no NUMA nodes can give the same number each, all is packed. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.drivers.cpu.allocation.balance import Deal, find_deal
from plimsoll.drivers.cpu.allocation.explanation import What
from plimsoll.drivers.cpu.allocation.options import Sorting
from plimsoll.drivers.cpu.allocation.packed import Log, order_numas, take_packed
from plimsoll.drivers.cpu.allocation.topology_tables import Group, Tables


@dataclass(frozen=True, slots=True)
class Dealt:
    """What was dealt out, and how many are missing (below zero: too many)."""

    mask: int
    missing: int
    log: Log


def take_distributed(
    tables: Tables, free: int, count: int, group: int, sorting: Sorting, *, log: Log
) -> tuple[int, int]:
    """The CPUs taken of those that are free, and how many are missing. `count` is not more than are free."""
    free &= tables.all
    if count >= 1 and count % group == 0:
        dealt = _deal(tables, free, count, group, sorting)
        if dealt is not None:
            log.extend(dealt.log)
            return dealt.mask, dealt.missing
        log.append((What.NOT_EVEN, 0, 0))
    return take_packed(tables, free, count, sorting, align_l3=False, log=log)


def _deal(tables: Tables, free: int, count: int, group: int, sorting: Sorting) -> Dealt | None:
    # A node that reaches over several sockets is met in each.
    numas = list({numa.id: numa for numa in order_numas(tables, free)}.values())
    counts = [(numa.mask & free).bit_count() for numa in numas]
    for size in _sizes(tables, len(numas), count, group):
        deals = find_deal(counts, count, size, group)
        if deals is None:
            continue
        found, used = deals
        dealt = _hand_out(tables, free, count, group, sorting, numas, used if tables.quirks else found)
        # DIFF: where the kubelet would hand out groups for ever, the deal is used as it was found
        # (test_what_the_kubelet_does_not_return_from_is_dealt_out).
        dealt = dealt or _hand_out(tables, free, count, group, sorting, numas, found)
        if dealt is not None and not found.best:
            dealt.log.append((What.CUT_SHORT, 0, 0))
        return dealt
    return None


def _sizes(tables: Tables, numas: int, count: int, group: int) -> range:
    """How many NUMA nodes could be enough, and how many at most could give a group."""
    groups = -(-tables.all.bit_count() // group)
    per_numa = -(-groups // len(tables.numas))
    needed = -(-count // group)
    return range(-(-needed // per_numa), min(needed, numas) + 1)


def _hand_out(
    tables: Tables, free: int, count: int, group: int, sorting: Sorting, numas: list[Group], deal: Deal
) -> Dealt | None:
    """Take the CPUs of a deal; None if nodes for the rest have none left, so that it would never end."""
    log: Log = []
    taken = 0
    missing = count

    def take(what: What, numa: Group, amount: int) -> None:
        nonlocal free, taken, missing
        here = free & numa.mask
        if here.bit_count() < amount:
            return
        mask, _ = take_packed(tables, here, amount, sorting, align_l3=False, log=[])
        taken |= mask
        free &= ~mask
        missing -= mask.bit_count()
        log.append((what, numa.id, mask))

    for at in deal.nodes:
        take(What.EVEN, numas[at], deal.each)
    rest = count - deal.each * len(deal.nodes)
    while rest > 0:
        before = rest
        for at in deal.rest:
            if rest > 0 and (free & numas[at].mask).bit_count() >= group:
                take(What.REST, numas[at], group)
                rest -= group
        if rest == before:
            return None
    return Dealt(taken, missing, log)
