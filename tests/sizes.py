"""Sizes of tests: a short form for `make test`, the full one for `make test-slow`.

Tests that use `part_of` or `some` have the marker `sized`, which `make test-slow` selects; `seeds` brings it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
FULL = os.environ.get("PLIMSOLL_TESTS") == "full"
#: Part of the full form that the short one tries: one in so many.
SHORT = 12


def examples(count: int) -> int:
    """Return how many examples to try of the number that the full form tries."""
    return count if FULL else max(count // SHORT, 8)


def part_of(items: Iterable[T], number: int, each: int = 4) -> list[T]:
    """Return all items in the full form, and in the short one every fourth (`each`), by the case's number.

    Consecutive cases take different items, so that each item is tried with some of the cases.
    """
    return list(items) if FULL else list(items)[number % each :: each]


def some(count: int, each: int = 4) -> range:
    """Return the numbers below a count in the full form, and in the short one the first quarter of them."""
    return range(count if FULL else max(count // each, 2))


def seeds(count: int, each: int = 4) -> list[Any]:
    """Return the numbers of `some` as parameters of a test that is `sized`."""
    return [pytest.param(seed, marks=pytest.mark.sized) for seed in some(count, each)]
