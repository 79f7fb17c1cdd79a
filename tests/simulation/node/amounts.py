"""Amounts of resources in thousandths, parsed independently of the product."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import ceil

Amounts = dict[str, int]

_FACTORS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (number + 1)) for number, letter in enumerate("kMGT")},
    **{f"{letter}i": Fraction(1024 ** (number + 1)) for number, letter in enumerate("KMGT")},
}


@cache
def amount_of(text: str) -> int:
    """Parse a quantity, in thousandths."""
    number = text.rstrip("mkKMGTi")
    return ceil(Fraction(number) * _FACTORS[text[len(number) :]] * 1000)


def amounts_of(texts: Mapping[str, object] | None) -> Amounts:
    return {name: amount_of(str(text)) for name, text in (texts or {}).items()}


def add_amounts(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def largest_amounts(one: Amounts, other: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
