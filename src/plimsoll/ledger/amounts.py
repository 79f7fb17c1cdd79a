"""Arithmetic on resource lists (resource name -> quantity).

Addition and maximum, resource by resource. As in Kubernetes, a resource with amount zero differs from an
absent resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from plimsoll.api.quantity import Quantity

#: Read-only resource list.
Amounts: TypeAlias = Mapping[str, Quantity]

_HUGE_PAGES = "hugepages-"


def add_amounts(total: dict[str, Quantity], amounts: Amounts) -> None:
    """Add amounts to a total, in place."""
    for name, amount in amounts.items():
        before = total.get(name)
        total[name] = amount if before is None else before + amount


def raise_amounts(total: dict[str, Quantity], amounts: Amounts) -> None:
    """Raise a total to at least these amounts, in place."""
    for name, amount in amounts.items():
        before = total.get(name)
        if before is None or amount > before:
            total[name] = amount


def sum_amounts(lists: Iterable[Amounts]) -> dict[str, Quantity]:
    """Return the sum, resource by resource."""
    total: dict[str, Quantity] = {}
    for amounts in lists:
        add_amounts(total, amounts)
    return total


def max_amounts(*lists: Amounts) -> dict[str, Quantity]:
    """Return the maximum, resource by resource."""
    total: dict[str, Quantity] = {}
    for amounts in lists:
        raise_amounts(total, amounts)
    return total


def is_huge_page(name: str) -> bool:
    """Return whether a resource is huge pages of any size."""
    return name.startswith(_HUGE_PAGES)
