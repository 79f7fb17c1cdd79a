"""Scores of device allocations: small devices, and alternatives as kube-scheduler scores them.

DeviceWaste prefers small devices, because a large one is then unavailable to other claims. Sizes are the
consumed amounts of each capacity, compared by name with the smallest of the searched nodes.

For predictions of kube-scheduler, prioritized lists get 8 points for the first alternative, 7 for the second
and so on, including claims that were allocated before; the node with the most points scores 100, the others
proportionally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.scheduler.devices.exact import MAX_SCORE, NodeFit

#: Maximum number of alternatives in a list.
LIST_MAX = 8


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


def count_points(claims: Sequence[ResourceClaim], allocations: Mapping[str, AllocationResult]) -> int:
    """Count the points of a choice; `allocations` are those of newly allocated claims, by claim name."""
    points = 0
    for claim in claims:
        allocation = claim.status.allocation or allocations.get(claim.metadata.name)
        given = {result.request for result in allocation.devices.results} if allocation is not None else set()
        for request in claim.spec.devices.requests:
            for number, alternative in enumerate(request.first_available):
                if f"{request.name}/{alternative.name}" in given:
                    points += LIST_MAX - number
    return points


def score_points(points: Sequence[int]) -> list[int]:
    """Normalize the points of nodes to scores from 0 to 100."""
    most = max(points, default=0)
    return [each * MAX_SCORE // most if most else 0 for each in points]
