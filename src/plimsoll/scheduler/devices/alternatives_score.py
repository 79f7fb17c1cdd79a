"""Score of prioritized lists as kube-scheduler computes it.

For predictions of kube-scheduler: 8 points for the first alternative of a list, 7 for the second and so on,
claims that were allocated before included. The node with the most points scores 100, the others
proportionally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.resource import AllocationResult, ResourceClaim

#: Maximum number of alternatives in a list.
LIST_MAX = 8
_BEST = 100


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
    return [each * _BEST // most if most else 0 for each in points]
