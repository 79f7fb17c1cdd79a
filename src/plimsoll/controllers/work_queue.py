"""Work queue of a controller, as in client-go.

A key is queued once however often it is added. A key being processed is not handed out again until it is
done, and then once more if it was added meanwhile. Keys can be added with a delay and are retried with
exponential backoff. No added key is lost, and two workers never process the same key.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from plimsoll.common.clock import Clock

K = TypeVar("K", bound=Hashable)

#: Backoff in seconds after the first failure, and the longest; each failure doubles it.
FIRST_DELAY = 0.005
LONGEST_DELAY = 1000.0


class WorkQueue(Generic[K]):
    """Queue of keys with delays and backoff; all methods run on one event loop."""

    def __init__(self, clock: Clock, *, longest: float = LONGEST_DELAY) -> None:
        self._clock = clock
        self._longest = longest
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()  # dirty: ready, or being processed and added again
        self._processing: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}  # earliest time at which each delayed key becomes ready
        self._failures: dict[K, int] = {}
        self._sequence = 0
        self._not_empty = asyncio.Event()
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of keys ready to be processed."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """True if no key is ready or being processed; delayed keys do not count."""
        return not self._ready and not self._processing

    @property
    def next_due(self) -> float | None:
        """Time at which the next delayed key becomes ready, or None."""
        return min(self._due.values(), default=None)

    def add(self, key: K) -> None:
        """Add a key to be processed as soon as a worker is free."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.append(key)
            self._not_empty.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after a delay; of several delays of a key the shortest applies."""
        if seconds <= 0:
            self.add(key)
            return
        when = self._clock.monotonic() + seconds
        known = self._due.get(key)
        if known is not None and known <= when:
            return
        self._due[key] = when
        self._sequence += 1
        heapq.heappush(self._delayed, (when, self._sequence, key))
        if self._delayed[0][0] == when:
            self._earlier.set()

    def retry(self, key: K) -> float:
        """Requeue a key whose processing failed; return the delay, which doubles with every failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._longest if failures > 32 else min(self._longest, FIRST_DELAY * 2**failures)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the backoff of a key."""
        self._failures.pop(key, None)

    def take(self) -> K | None:
        """Return a ready key, or None; it is being processed until `done`."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    async def next(self) -> K:
        """Wait for a key; it is being processed until `done`."""
        while (key := self.take()) is None:
            self._not_empty.clear()
            await self._not_empty.wait()
        return key

    def done(self, key: K) -> None:
        """Mark a key as processed; if it was added meanwhile, it is ready again."""
        self._processing.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._not_empty.set()

    def wake(self) -> None:
        """Make every delayed key ready whose time has come."""
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            when, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)

    async def run_timer(self) -> None:
        """Make delayed keys ready on time, until cancelled."""
        while True:
            self.wake()
            self._earlier.clear()
            if not self._delayed:
                await self._earlier.wait()
                continue
            pause = asyncio.ensure_future(
                self._clock.sleep(max(0.0, self._delayed[0][0] - self._clock.monotonic()))
            )
            news = asyncio.ensure_future(self._earlier.wait())
            try:
                await asyncio.wait((pause, news), return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                news.cancel()
