"""Permit of a gang: no pod is bound before minCount of them have their claims and charges written.

The writes of a binding up to the binding itself can be undone. So each pod of a gang waits after them until
enough others are as far; if too many fail, all of them undo their writes and none is bound.

DIFF: kube-scheduler decides before these writes, so that a gang is bound in part if one of them fails
(test_no_member_is_bound_if_one_cannot_write_its_claim).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from plimsoll.api.resource import ResourceClaimConsumerReference
from plimsoll.scheduler.result import Placement

GROUP_FAILED = "another pod of the pod group could not be bound: {error}"


class GangPermit:
    """Permit of the placements of one attempt of a gang."""

    def __init__(
        self,
        placements: Iterable[Placement],
        needed: int,
        group_consumers: Mapping[str, ResourceClaimConsumerReference] | None = None,
    ) -> None:
        """Create a permit for at least `needed` of the placements."""
        self._needed = needed
        self.group_consumers = group_consumers or {}
        self._pending: set[str] = set()
        #: Pod that allocates a claim, by the claim's UID.
        self._owners: dict[str, str] = {}
        for placement in placements:
            self._pending.add(placement.pod_info.key)
            for claim in placement.pod_info.unallocated_claims:
                self._owners[claim.metadata.uid] = placement.pod_info.key
        self._ready: set[str] = set()
        self._failed: dict[str, str] = {}
        self._event = asyncio.Event()

    @property
    def _error(self) -> str:
        """Reason against binding the group, or ""."""
        if len(self._pending) + len(self._ready) >= self._needed:
            return ""
        return GROUP_FAILED.format(error=next(iter(self._failed.values())))

    async def await_claims(self, placement: Placement) -> str:
        owners = {self._owners.get(claim.metadata.uid, "") for claim in placement.pod_info.claims}
        owners -= {"", placement.pod_info.key}
        await self._until(lambda: bool(self._error) or not owners & self._pending)
        lost = next((self._failed[key] for key in owners if key in self._failed), "")
        return self._error or (GROUP_FAILED.format(error=lost) if lost else "")

    async def await_group(self, placement: Placement) -> str:
        key = placement.pod_info.key
        self._pending.discard(key)
        self._ready.add(key)
        self._notify()
        await self._until(lambda: bool(self._error) or len(self._ready) >= self._needed)
        return self._error

    def fail(self, placement: Placement, error: str) -> None:
        key = placement.pod_info.key
        if key in self._pending:
            self._pending.discard(key)
            self._failed[key] = error
            self._notify()

    async def _until(self, is_decided: Callable[[], bool]) -> None:
        while not is_decided():
            await self._event.wait()

    def _notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()
