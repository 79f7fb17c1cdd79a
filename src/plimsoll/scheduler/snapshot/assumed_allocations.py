"""Devices allocated to claims: by the API, or assumed by a binding in progress.

An assumed allocation counts until its binding has ended, whenever the claim's status has none: the binding
may write it again after it was removed. A claim for extended resources is assumed before the API server has
assigned its UID; once it is allocated, that UID takes over what was assumed for its pod. Every change returns
the released allocations, so that the snapshot can invalidate caches.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from plimsoll.allocator import AllocationState
from plimsoll.api.core import NodeSelector
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import AllocationResult, DeviceAllocationResult, ResourceClaim
from plimsoll.scheduler.extended_resources import in_memory_uid


@dataclass(slots=True)
class Assumption:
    """Allocation assumed for a pod, and the one that the claim's status has."""

    pod: str
    allocation: AllocationResult
    written: AllocationResult | None = None


class AssumedAllocations:
    """Allocations by claim UID; `state` has the same allocations by device."""

    __slots__ = ("_allocations", "_assumed", "_claims_of", "state")

    def __init__(self, shared: bool) -> None:
        self.state = AllocationState(shared)
        self._allocations: dict[str, AllocationResult] = {}
        self._assumed: dict[str, Assumption] = {}
        self._claims_of: dict[str, list[str]] = {}  # UIDs of claims that were assumed, by pod

    def of(self, uid: str) -> AllocationResult | None:
        """Return the allocation of a claim, written or assumed."""
        return self._allocations.get(uid)

    def assumed(self, uid: str) -> AllocationResult | None:
        """Return the allocation of a claim that a binding in progress assumes."""
        found = self._assumed.get(uid)
        return None if found is None else found.allocation

    def without_claims(self, known: Container[str]) -> dict[str, AllocationResult]:
        """Return the assumed allocations of claims that are not among these UIDs."""
        return {uid: each.allocation for uid, each in self._assumed.items() if uid not in known}

    def assumed_by(self, uid: str) -> str:
        """Return the key of the pod that a claim is assumed for, or ""."""
        found = self._assumed.get(uid)
        return "" if found is None else found.pod

    def set(self, uid: str, allocation: AllocationResult | None) -> AllocationResult | None:
        """Replace the allocation of a claim and return the released one."""
        before = self._allocations.get(uid)
        if before is not None and allocation is not None and _decision(before) == _decision(allocation):
            self._allocations[uid] = allocation  # with the time at which it was written
            return None
        if before is not None:
            self.state.release_all(before)
            del self._allocations[uid]
        if allocation is not None:
            self.state.hold_all(allocation)
            self._allocations[uid] = allocation
        return before

    def assume(self, uid: str, pod: str, allocation: AllocationResult) -> AllocationResult | None:
        """Assume an allocation for a pod's claim."""
        self._assumed[uid] = Assumption(pod, allocation)
        self._claims_of.setdefault(pod, []).append(uid)
        return self.set(uid, allocation)

    def forget(self, pod: str) -> list[AllocationResult | None]:
        """Drop the allocations assumed for a pod; only the status of its claims counts from now on."""
        uids = dict.fromkeys(self._claims_of.pop(pod, ()))
        ended = [uid for uid in uids if self.assumed_by(uid) == pod]
        return [self.set(uid, self._assumed.pop(uid).written) for uid in ended]

    def on_claim(self, claim: ResourceClaim) -> AllocationResult | None:
        """Handle a new or changed claim."""
        uid, allocation = claim.metadata.uid, claim.status.allocation
        if allocation is not None and (pod := find_requesting_pod(claim)) is not None:
            self._take_over(in_memory_uid(pod.uid), uid)
        assumption = self._assumed.get(uid)
        if assumption is not None:
            assumption.written = allocation
            allocation = allocation or assumption.allocation
        return self.set(uid, allocation)

    def _take_over(self, before: str, uid: str) -> None:
        """Move an assumed allocation to the UID of the created claim."""
        assumption = self._assumed.pop(before, None)
        if assumption is None:
            return
        self._assumed[uid] = assumption
        self._claims_of[assumption.pod].append(uid)
        if uid in self._allocations:
            self.set(before, None)
        else:
            self._allocations[uid] = self._allocations.pop(before)

    def on_claim_deleted(self, uid: str) -> AllocationResult | None:
        """Handle a deleted claim, and drop what was assumed for it."""
        self._assumed.pop(uid, None)
        return self.set(uid, None)


def _decision(allocation: AllocationResult) -> tuple[DeviceAllocationResult, NodeSelector | None]:
    return allocation.devices, allocation.node_selector
