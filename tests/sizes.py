"""Sizes of property tests: a short form for `make test`, the full one for `make test-slow`."""

from __future__ import annotations

import os

FULL = os.environ.get("PLIMSOLL_TESTS") == "full"


def examples(count: int) -> int:
    """Return how many examples to try of the number that the full form tries."""
    return count if FULL else max(count // 4, 8)
