"""Kernel numbers: CPU amounts as shares, weights and quotas, and sizes of huge pages.

Owns the conversions of section 5 of the accounting semantics and their inverses.

DIFF: no conversion wraps past int64, however large the amount (test_conversions_do_not_wrap).

DIFF: a huge page resource whose name holds no page size is left out; upstream gives it the size 0
(test_huge_pages_without_a_size_are_left_out).
"""

from __future__ import annotations

from plimsoll.api.quantity import Quantity, divide_up
from plimsoll.errors import QuantityError
from plimsoll.ledger.amounts import Amounts, is_huge_page

MIN_SHARES = 2
MAX_SHARES = 262_144
MAX_WEIGHT = 10_000
UNLIMITED = -1
_SHARES_PER_CPU = 1024
_MIN_QUOTA = 1000
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def milli_cpu_to_shares(milli_cpu: int) -> int:
    """cpu.shares (cgroup v1) for a CPU request."""
    return max(MIN_SHARES, min(MAX_SHARES, milli_cpu * _SHARES_PER_CPU // 1000))


def shares_to_milli_cpu(shares: int) -> int:
    """The smallest CPU request in thousandths that these shares stand for."""
    return divide_up(shares * 1000, _SHARES_PER_CPU) if shares >= MIN_SHARES else 0


def shares_to_weight(shares: int) -> int:
    """cpu.weight (cgroup v2) for cpu.shares."""
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    return 1 + (max(shares, MIN_SHARES) - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)


def weight_to_shares(weight: int) -> int:
    """cpu.shares for cpu.weight; a weight is coarser, so a round trip may lose a few shares."""
    return (weight - 1) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - 1) + MIN_SHARES


def milli_cpu_to_quota(milli_cpu: int, period: int) -> int:
    """Microseconds of CPU time in each period; 0 is no limit, and the kernel takes no less than 1000."""
    return max(_MIN_QUOTA, milli_cpu * period // 1000) if milli_cpu else 0


def quota_to_milli_cpu(quota: int, period: int) -> int:
    """The CPU limit in thousandths that a quota stands for; 0 where there is none."""
    return 0 if quota == UNLIMITED else quota * 1000 // period


def parse_page_size(resource: str) -> int | None:
    """Bytes of the pages a resource counts (`hugepages-2Mi`), or None where the name holds no size."""
    if not is_huge_page(resource):
        return None
    try:
        return Quantity.parse(resource.partition("-")[2]).value()
    except QuantityError:
        return None


def format_page_size(size: int) -> str | None:
    """A page size as the kernel writes it (2MB); None where it is no whole number of a unit."""
    power = 0
    while size % 1024 == 0 and power < len(_UNITS) - 1:
        size //= 1024
        power += 1
    return None if size > 1024 and power < len(_UNITS) - 1 else f"{size}{_UNITS[power]}"


def sum_huge_pages(amounts: Amounts) -> dict[int, int]:
    """Bytes of huge pages by page size."""
    found: dict[int, int] = {}
    for name, amount in amounts.items():
        size = parse_page_size(name)
        if size is not None:
            found[size] = found.get(size, 0) + amount.value()
    return found
