"""Keys that wait for work.

Owns `WorkQueue`: a key is in it once however often it is added; a key that is being worked on is not given
out again until it is done, and then once more if it was added meanwhile; a key can be added for later, and
comes back with growing delay while its work fails. Promises: no key that was added is lost, and two workers
never hold the same key.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from plimsoll.common.clock import Clock

K = TypeVar("K", bound=Hashable)

#: The delay after a first failure, in seconds, and the longest; each further failure doubles it.
FIRST_DELAY = 0.005
LONGEST_DELAY = 1000.0


class WorkQueue(Generic[K]):
    """See the module. All methods are called on one event loop."""

    def __init__(self, clock: Clock, *, longest: float = LONGEST_DELAY) -> None:
        self._clock = clock
        self._longest = longest
        self._ready: deque[K] = deque()
        self._wanted: set[K] = set()  # to be worked on: those in _ready, and those held and added again
        self._held: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}  # the earliest time each key of _later comes back
        self._failures: dict[K, int] = {}
        self._ticket = 0
        self._filled = asyncio.Event()
        self._sooner = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait for a worker now."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether no key is ready or held; some may come back later."""
        return not self._ready and not self._held

    @property
    def next_due(self) -> float | None:
        """When the next delayed key comes back, if there is one."""
        return min(self._due.values(), default=None)

    def add(self, key: K) -> None:
        """Have a key worked on as soon as there is a worker."""
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._held:
            self._ready.append(key)
            self._filled.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have a key worked on after a delay; of several delays of a key the shortest counts."""
        if seconds <= 0:
            self.add(key)
            return
        when = self._clock.now() + seconds
        known = self._due.get(key)
        if known is not None and known <= when:
            return
        self._due[key] = when
        self._ticket += 1
        heapq.heappush(self._later, (when, self._ticket, key))
        if self._later[0][0] == when:
            self._sooner.set()

    def retry(self, key: K) -> float:
        """Add a key whose work failed; the delay, which doubles with every failure, is returned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._longest if failures > 32 else min(self._longest, FIRST_DELAY * 2**failures)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The work of a key succeeded: its next failure is a first one."""
        self._failures.pop(key, None)

    def take(self) -> K | None:
        """A key to work on, if one is ready; it is held until `done`."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._wanted.discard(key)
        self._held.add(key)
        return key

    async def next(self) -> K:
        """Wait for a key to work on; it is held until `done`."""
        while (key := self.take()) is None:
            self._filled.clear()
            await self._filled.wait()
        return key

    def done(self, key: K) -> None:
        """Give a key back; one that was added meanwhile is ready again."""
        self._held.discard(key)
        if key in self._wanted:
            self._ready.append(key)
            self._filled.set()

    def wake(self) -> None:
        """Make every delayed key ready whose time has come."""
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            when, _, key = heapq.heappop(self._later)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)

    async def run_timer(self) -> None:
        """Bring delayed keys back in time, until cancelled."""
        while True:
            self.wake()
            self._sooner.clear()
            if not self._later:
                await self._sooner.wait()
                continue
            pause = asyncio.ensure_future(self._clock.sleep(max(0.0, self._later[0][0] - self._clock.now())))
            news = asyncio.ensure_future(self._sooner.wait())
            try:
                await asyncio.wait((pause, news), return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                news.cancel()
