"""Waiting for a claim to become something.

Owns `ClaimWaits`. Whoever follows claims tells it what it hears (`tell`); where nobody does, or something is
missed, the claim is read again every few seconds, as kube-scheduler does. The time a claim has is counted
from its allocation, so that a restart gives it no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from plimsoll.api.resource import ResourceClaim
from plimsoll.client.cache import is_older

_POLL_SECONDS = 5.0


class ClaimWaits:
    """Who waits for which claim."""

    def __init__(
        self,
        read: Callable[[ResourceClaim], Awaitable[ResourceClaim | None]],
        *,
        poll: float = _POLL_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._read = read
        self._poll = poll
        self._now = now
        self._waiting: dict[str, set[asyncio.Future[ResourceClaim]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def tell(self, claim: ResourceClaim) -> None:
        """A claim has changed."""
        for future in self._waiting.get(claim.metadata.uid, ()):
            if not future.done():
                future.set_result(claim)

    async def wait_for(
        self, claim: ResourceClaim, predicate: Callable[[ResourceClaim], bool], timeout_ms: int
    ) -> ResourceClaim | None:
        """The claim once it is as wanted, or as it is when its time is over; None if it is gone."""
        left = timeout_ms / 1000 - self._age(claim)
        deadline = asyncio.get_running_loop().time() + max(0.0, left)
        while not predicate(claim):
            wait = min(self._poll, deadline - asyncio.get_running_loop().time())
            heard = await self._listen(claim.metadata.uid, wait) if wait > 0 else None
            if heard is not None and is_older(
                heard.metadata.resource_version, claim.metadata.resource_version
            ):
                continue  # the watch tells of what was before our own write
            if heard is None:
                heard = await self._read(claim)
            if heard is None:
                return None
            claim = heard
            if wait <= 0:
                break
        return claim

    async def _listen(self, uid: str, seconds: float) -> ResourceClaim | None:
        future: asyncio.Future[ResourceClaim] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(uid, set())
        waiting.add(future)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(uid, None)

    def _age(self, claim: ResourceClaim) -> float:
        allocation = claim.status.allocation
        if allocation is None or allocation.allocation_timestamp is None:
            return 0.0
        try:
            since = datetime.fromisoformat(allocation.allocation_timestamp)
        except ValueError:
            return 0.0
        if since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        return max(0.0, (self._now() - since).total_seconds())
