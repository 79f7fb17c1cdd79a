"""Writes and reads of claims that the pods of a claim make together.

Reservations of one claim are collected while a write is on its way, and added by the next one. So are its
fences, its reads, and the removals of reservations from one version of it. The pods of a PodGroup have one
reservation, which is written once. Each binding sees the outcome as that of a write of its own: without a
response it repeats its request and stays uncertain (`binding/attempts.py`), until it is known what was
written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError
from plimsoll.scheduler.pod_claims import RESERVED_MAX
from plimsoll.scheduler.process.shared_calls import SharedCalls

MERGE = "application/merge-patch+json"
#: kube-apiserver applies it at two thirds of the cost of a merge patch.
STRATEGIC = "application/strategic-merge-patch+json"
#: Claim, and the consumer to add or to remove.
_Request: TypeAlias = tuple[ResourceClaim, ResourceClaimConsumerReference]


class PatchClaim(Protocol):
    """Applies a patch of a type to a claim, or to a subresource of it."""

    async def __call__(
        self, claim: ResourceClaim, body: Any, kind: str, subresource: str = ""
    ) -> ResourceClaim: ...


class SharedClaims:
    """Calls about claims on behalf of all bindings of one writer."""

    def __init__(
        self,
        patch: PatchClaim,
        find: Callable[[ResourceClaim], Awaitable[ResourceClaim | None]],
        fence_key: str,
        new_id: Callable[[], str],
    ) -> None:
        """Create calls; `find` returns the claim that has a claim's name now."""
        self._patch = patch
        self._find = find
        self._fence_key = fence_key
        self._new_id = new_id
        self._reservations = SharedCalls(self._reserve)
        self._removals = SharedCalls(self._unreserve)
        self._fences = SharedCalls(self._fence)
        self._reads = SharedCalls(self._read)

    async def reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> ResourceClaim:
        """Add a consumer, without a resourceVersion: what others write meanwhile does not matter."""
        return await self._reservations.join(claim.metadata.uid, (claim, consumer))

    async def unreserve(
        self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Remove a consumer, if the claim is unchanged."""
        key = f"{claim.metadata.uid}/{claim.metadata.resource_version}"
        return await self._removals.join(key, (claim, consumer))

    async def fence(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Give a claim a new resourceVersion; None if it is gone."""
        return await self._fences.join(claim.metadata.uid, claim)

    async def read(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the current claim; None if it is gone, or another one has its name."""
        return await self._reads.join(claim.metadata.uid, claim)

    async def _reserve(self, requests: Sequence[_Request]) -> Sequence[ResourceClaim | Exception]:
        claim, consumers = requests[0][0], {consumer.uid: consumer for _, consumer in requests}
        try:
            return [await self._add(claim, consumers.values())] * len(requests)
        except ApiError as error:
            if error.code != 422 or len(consumers) == 1:
                raise
            refused = error
        # The list may be too long for some of them only.
        fresh = await self._find(claim)
        used = len(fresh.status.reserved_for) if fresh is not None else RESERVED_MAX
        fitting = list(consumers)[: max(0, RESERVED_MAX - used)]
        if not fitting or len(fitting) == len(consumers):
            raise refused
        written = await self._add(claim, [consumers[uid] for uid in fitting])
        return [written if consumer.uid in fitting else refused for _, consumer in requests]

    async def _add(
        self, claim: ResourceClaim, consumers: Iterable[ResourceClaimConsumerReference]
    ) -> ResourceClaim:
        body = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": list(consumers)}}
        return await self._patch(claim, body, STRATEGIC, "/status")

    async def _unreserve(self, requests: Sequence[_Request]) -> Sequence[ResourceClaim]:
        claim, uids = requests[0][0], {consumer.uid: None for _, consumer in requests}
        removed = [{"$patch": "delete", "uid": uid} for uid in uids]
        body = {"metadata": preconditions(claim), "status": {"reservedFor": removed}}
        return [await self._patch(claim, body, STRATEGIC, "/status")] * len(requests)

    async def _fence(self, requests: Sequence[ResourceClaim]) -> Sequence[ResourceClaim | None]:
        claim = requests[0]
        meta = {"uid": claim.metadata.uid, "annotations": {self._fence_key: self._new_id()}}
        fresh: ResourceClaim | None = None
        try:
            fresh = await self._patch(claim, {"metadata": meta}, MERGE)
        except ApiError as error:
            # Without a version a conflict means another UID, or that others wrote at the same time.
            if error.code != 404 and (error.code != 409 or await self.read(claim) is not None):
                raise
        return [fresh] * len(requests)

    async def _read(self, requests: Sequence[ResourceClaim]) -> Sequence[ResourceClaim | None]:
        fresh = await self._find(requests[0])
        is_same = fresh is not None and fresh.metadata.uid == requests[0].metadata.uid
        return [fresh if is_same else None] * len(requests)


def preconditions(thing: ResourceClaim | Pod) -> dict[str, str]:
    """Return the preconditions UID and resourceVersion of a patch."""
    return {"uid": thing.metadata.uid, "resourceVersion": thing.metadata.resource_version}
