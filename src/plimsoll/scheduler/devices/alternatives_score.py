"""How kube-scheduler counts the alternatives of prioritized lists.

Owns `count_points` and `score_points`, for predictions of it: 8 for the first of a list, 7 for the second and
so on, claims that had their devices before included; the node with the most points has 100, the others their
part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.resource import AllocationResult, ResourceClaim

#: How many alternatives a list can have.
LIST_MAX = 8
_BEST = 100


def count_points(claims: Sequence[ResourceClaim], allocations: Mapping[str, AllocationResult]) -> int:
    """The points of a choice; `allocations`, by name, are those of claims that waited."""
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
    """Points of nodes as scores from 0 to 100."""
    most = max(points, default=0)
    return [each * _BEST // most if most else 0 for each in points]
