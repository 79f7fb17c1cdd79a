"""Arithmetic on lists of amounts: resource name -> quantity.

Owns the two ways amounts are put together, adding and taking the greater, name by name. A name that is there
with zero is not the same as a name that is absent, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from plimsoll.api.quantity import Quantity

#: Amounts to read from.
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
    """The sum, name by name."""
    total: dict[str, Quantity] = {}
    for amounts in lists:
        add_amounts(total, amounts)
    return total


def max_amounts(*lists: Amounts) -> dict[str, Quantity]:
    """The greatest amount of each name."""
    total: dict[str, Quantity] = {}
    for amounts in lists:
        raise_amounts(total, amounts)
    return total


def is_huge_page(name: str) -> bool:
    """Whether a resource is huge pages of some size."""
    return name.startswith(_HUGE_PAGES)
