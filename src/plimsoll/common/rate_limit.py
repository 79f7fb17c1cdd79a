"""Token bucket: at most `burst` calls at once, and `qps` per second in the long run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class TokenBucket:
    """Token bucket for callers that wait for a token, in order, or are rejected without one."""

    def __init__(
        self,
        qps: float,
        burst: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = float(max(1, burst or round(qps)))
        self._clock = clock
        self._sleep = sleep
        #: Negative: tokens that waiting callers have taken in advance.
        self._tokens = self._burst
        self._refilled = clock()

    def _refill(self) -> None:
        now = self._clock()
        if now > self._refilled:
            self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._qps)
            self._refilled = now

    def try_take(self) -> bool:
        """Take a token; return False if there is none."""
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    async def take(self) -> None:
        """Wait for a token; later callers get later tokens."""
        self._refill()
        self._tokens -= 1.0
        if self._tokens < 0.0:
            await self._sleep(-self._tokens / self._qps)
