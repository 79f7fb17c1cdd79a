"""Detection of stale claims: deallocated in the cluster and unused by containers, but never unprepared.

A node that lost its state, or another driver that released a claim, leaves allocations in the checkpoint that
survive every restart. Such a claim is stale only after it was unused and deallocated at every check for a
grace period. Pure except for the calls passed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.protocols.dra import ClaimRef

#: Time that a claim must be deallocated and unused before its CPUs are released.
GRACE_SECONDS = 300.0


@dataclass(slots=True)
class StaleClaimTracker:
    """Tracks since when claims have been deallocated and unused."""

    grace_seconds: float = GRACE_SECONDS
    _since: dict[str, float] = field(default_factory=dict)

    @property
    def deallocated(self) -> frozenset[str]:
        """UIDs of claims that were deallocated and unused at the last check."""
        return frozenset(self._since)

    async def update(
        self,
        allocations: Iterable[ClaimAllocation],
        used: Collection[str],
        is_allocated: Callable[[ClaimRef], Awaitable[bool]],
        now: float,
    ) -> list[ClaimRef]:
        """Return the claims to release now. `used` are the UIDs of claims that containers use."""
        gone = [
            allocation.ref
            for allocation in allocations
            if allocation.ref.uid not in used and not await is_allocated(allocation.ref)
        ]
        self._since = {ref.uid: self._since.get(ref.uid, now) for ref in gone}
        return [ref for ref in gone if now - self._since[ref.uid] >= self.grace_seconds]
