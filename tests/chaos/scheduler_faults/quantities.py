"""Exact quantities and sums of resource lists, independent of the product's own."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

Amounts: TypeAlias = dict[str, Fraction]

_SUFFIXES = {
    "": Fraction(1),
    **{name: Fraction(10) ** (3 * power) for power, name in enumerate("num", -3)},
    **{name: Fraction(10) ** (3 * power) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int) -> Fraction:
    """Return the exact value of a Kubernetes quantity."""
    text = str(text)
    number = text.rstrip("numkMGTPEKi")
    if text[len(number) :] in _SUFFIXES:
        return Fraction(number) * _SUFFIXES[text[len(number) :]]
    raise ValueError(f"not a quantity: {text!r}")


def read_amounts(tree: Mapping[str, Any] | None) -> Amounts:
    """Return a resource list with parsed quantities."""
    return {name: parse_quantity(value) for name, value in (tree or {}).items()}


def add(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, Fraction()) + right.get(name, Fraction()) for name in {**left, **right}}


def largest(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, Fraction()), right.get(name, Fraction())) for name in {**left, **right}}
