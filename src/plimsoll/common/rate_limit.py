"""Client-side rate limit: a token bucket.

Off by default: servers have fairer means. Guarantees: callers are served in order, at most `burst` at once
and `qps` per second in the long run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Bucket:
    def __init__(
        self,
        qps: float,
        burst: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._spacing = 1.0 / qps
        self._slack = self._spacing * (max(1, burst or round(qps)) - 1)
        self._clock = clock
        self._sleep = sleep
        #: Time of the next token at an even rate; never further back than the burst allows.
        self._due = clock() - self._slack

    async def take(self) -> None:
        """Wait for a token; later callers get later tokens."""
        now = self._clock()
        due = max(self._due, now - self._slack)
        self._due = due + self._spacing
        if due > now:
            await self._sleep(due - now)
