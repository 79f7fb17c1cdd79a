"""Waiters for changes of claims.

Watch events are passed to `notify`; the claim is also read every few seconds, as kube-scheduler does, in case
an event is missed. Timeouts count from the allocation, so that a restart does not extend them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from plimsoll.api.resource import ResourceClaim
from plimsoll.api.timestamps import parse_time
from plimsoll.client.cache import is_older

_POLL_SECONDS = 5.0


class ClaimWaiters:
    """Futures that wait for a claim, by UID."""

    def __init__(
        self,
        read: Callable[[ResourceClaim], Awaitable[ResourceClaim | None]],
        *,
        poll: float = _POLL_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._read = read
        self.poll = poll
        self._now = now
        self._waiting: dict[str, set[asyncio.Future[ResourceClaim]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def notify(self, claim: ResourceClaim) -> None:
        """Wake the waiters of a claim that has changed."""
        for future in self._waiting.get(claim.metadata.uid, ()):
            if not future.done():
                future.set_result(claim)

    async def wait_for(
        self, claim: ResourceClaim, predicate: Callable[[ResourceClaim], bool], timeout_ms: int
    ) -> ResourceClaim | None:
        """Return the claim once it satisfies the predicate or its time is over; None if it is gone."""
        left = timeout_ms / 1000 - self._age(claim)
        deadline = asyncio.get_running_loop().time() + max(0.0, left)
        while not predicate(claim):
            wait = min(self.poll, deadline - asyncio.get_running_loop().time())
            fresh = await self._wait_for_change(claim.metadata.uid, wait) if wait > 0 else None
            if fresh is not None and is_older(
                fresh.metadata.resource_version, claim.metadata.resource_version
            ):
                continue  # older than our own write
            if fresh is None:
                fresh = await self._read(claim)
            if fresh is None:
                return None
            claim = fresh
            if wait <= 0:
                break
        return claim

    async def _wait_for_change(self, uid: str, seconds: float) -> ResourceClaim | None:
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
        since = None if allocation is None else parse_time(allocation.allocation_timestamp)
        return 0.0 if since is None else max(0.0, self._now().timestamp() - since)
