"""How much is handed out, compared between nodes.

Owns the score for small devices: what a pod needs can often be served by a small device or a large one, and a
large one taken is one that nobody else can have. Sizes are what allocations take of each capacity, in shares
what they consume; they are compared name by name with the smallest among the nodes that were asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.scheduler.devices.exact import MAX_SCORE, NodeFit


def score_sizes(fits: Sequence[NodeFit]) -> list[int]:
    """0 to 100 for each: 100 for those that take the least of everything."""
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
