"""Shrinking of a failing case: the fewest faults and events with which it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrink(keys: Sequence[str], fails: Callable[[frozenset[str]], bool], tries: int = 400) -> list[str]:
    """Return a part of the keys with which a case still fails, none of which can be left out alone.

    Delta debugging: parts are left out, at first large ones. After so many tries the best so far is returned.
    """
    left = list(dict.fromkeys(keys))
    parts = 2
    while len(left) > 1 and tries > 0:
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            without = left[:start] + left[start + size :]
            tries -= 1
            if fails(frozenset(without)):
                left, parts = without, max(2, parts - 1)
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(len(left), parts * 2)
    return left
