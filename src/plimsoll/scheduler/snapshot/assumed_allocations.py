"""Which devices are held for which claim: what the API says, and what was promised and is not written yet.

Owns `Holdings`, the devices' side of the books. What the API says about a claim counts, unless it does not
know yet what we promised. Every change tells what was let go, so that whoever waits for it can be told.
"""

from __future__ import annotations

from plimsoll.allocator import AllocationState
from plimsoll.api.resource import AllocationResult, ResourceClaim


class AssumedAllocations:
    """Devices by the UID of the claim they are held for; `state` is the same by device."""

    __slots__ = ("_allocations", "_assumed", "state")

    def __init__(self, shared: bool) -> None:
        self.state = AllocationState(shared)
        self._allocations: dict[str, AllocationResult] = {}
        self._assumed: dict[str, tuple[str, AllocationResult]] = {}

    def of(self, uid: str) -> AllocationResult | None:
        """What is held for a claim, written down or promised."""
        return self._allocations.get(uid)

    def assumed(self, uid: str) -> AllocationResult | None:
        """What a claim was promised that is not written down yet."""
        found = self._assumed.get(uid)
        return None if found is None else found[1]

    def set(self, uid: str, allocation: AllocationResult | None) -> AllocationResult | None:
        """Hold these devices for a claim instead of those it had; what was let go."""
        before = self._allocations.get(uid)
        if before == allocation:
            return None
        if before is not None:
            self.state.release_all(before)
            del self._allocations[uid]
        if allocation is not None:
            self.state.hold_all(allocation)
            self._allocations[uid] = allocation
        return before

    def assume(self, uid: str, pod: str, allocation: AllocationResult) -> AllocationResult | None:
        """A pod's claim is to get these devices."""
        self._assumed[uid] = (pod, allocation)
        return self.set(uid, allocation)

    def forget(self, uid: str, pod: str, claim: ResourceClaim | None) -> AllocationResult | None:
        """A promise to a pod is void: what the API says counts again, `claim` or that there is none."""
        if self._assumed.get(uid, ("",))[0] != pod:
            return None
        del self._assumed[uid]
        written = claim is not None and claim.metadata.uid == uid
        return self.set(uid, claim.status.allocation if claim is not None and written else None)

    def on_claim(self, claim: ResourceClaim) -> AllocationResult | None:
        """A claim is new or has changed."""
        uid, allocation = claim.metadata.uid, claim.status.allocation
        if allocation is None and uid in self._assumed:
            return None
        self._assumed.pop(uid, None)
        return self.set(uid, allocation)

    def on_claim_deleted(self, uid: str) -> AllocationResult | None:
        """A claim is gone, and with it what it was promised."""
        self._assumed.pop(uid, None)
        return self.set(uid, None)
