"""Score that prefers small devices.

A request can often be served by a small device or a large one, and a large one is then unavailable to others.
Sizes are what allocations consume of each capacity; they are compared by name with the smallest of the
searched nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.scheduler.devices.exact import MAX_SCORE, NodeFit


def score_sizes(fits: Sequence[NodeFit]) -> list[int]:
    """Score each node from 0 to 100; 100 for those that consume the least of every capacity."""
    sizes = [dict(fit.sizes) for fit in fits]
    names = sorted({name for each in sizes for name in each})
    if not names:
        return [MAX_SCORE] * len(fits)
    least = {name: min(each.get(name, 0) for each in sizes) for name in names}
    scores = []
    for each in sizes:
        parts = [least[name] * MAX_SCORE // each[name] if each.get(name) else MAX_SCORE for name in names]
        scores.append(sum(parts) // len(parts))
    return scores
