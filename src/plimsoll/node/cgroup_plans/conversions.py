"""Conversions between CPU amounts and cgroup shares, weights and quotas; huge page sizes.

docs/spec/accounting.md, "Kubelet", and the inverse functions.

DIFF: no conversion wraps past int64, however large the amount (test_conversions_do_not_wrap).

DIFF: a huge page resource whose name holds no page size is left out; upstream gives it the size 0
(test_huge_pages_without_a_size_are_left_out).
"""

from __future__ import annotations

from plimsoll.api.quantity import Quantity
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
    """Convert a CPU request to cpu.shares (cgroup v1)."""
    return max(MIN_SHARES, min(MAX_SHARES, milli_cpu * _SHARES_PER_CPU // 1000))


def shares_to_weight(shares: int) -> int:
    """Convert cpu.shares to cpu.weight (cgroup v2)."""
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    return 1 + (max(shares, MIN_SHARES) - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)


def milli_cpu_to_quota(milli_cpu: int, period: int) -> int:
    """Convert a CPU limit to microseconds per period; 0 means no limit, the kernel minimum is 1000."""
    return max(_MIN_QUOTA, milli_cpu * period // 1000) if milli_cpu else 0


def parse_page_size(resource: str) -> int | None:
    """Return the page size in bytes of a resource (`hugepages-2Mi`), or None if its name has no size."""
    if not is_huge_page(resource):
        return None
    try:
        return Quantity.parse(resource.partition("-")[2]).value()
    except QuantityError:
        return None


def format_page_size(size: int) -> str | None:
    """Format a page size as the kernel does (2MB); None if it is not a multiple of a unit."""
    power = 0
    while size % 1024 == 0 and power < len(_UNITS) - 1:
        size //= 1024
        power += 1
    return None if size > 1024 and power < len(_UNITS) - 1 else f"{size}{_UNITS[power]}"


def sum_huge_pages(amounts: Amounts) -> dict[int, int]:
    """Sum the bytes of huge pages by page size."""
    found: dict[int, int] = {}
    for name, amount in amounts.items():
        size = parse_page_size(name)
        if size is not None:
            found[size] = found.get(size, 0) + amount.value()
    return found
