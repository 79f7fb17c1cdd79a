"""`HistoryRecorder`: takes a sample of a live cluster every minute."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from plimsoll.tools.dashboard.history.samples import Sample
from plimsoll.tools.dashboard.history.store import HistoryStore

_log = logging.getLogger("plimsoll.history")
INTERVAL = 60.0
#: A sample takes at most this share of the time.
MAX_SHARE = 0.05


class HistoryRecorder:
    """Samples a cluster until cancelled."""

    def __init__(
        self,
        store: HistoryStore,
        take: Callable[[int], Awaitable[Sample]],
        *,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`take` returns the sample of a time in seconds since the epoch."""
        self.store = store
        self._take = take
        self._interval = interval
        self._clock = clock

    async def run(self) -> None:
        """Take samples; a failure is logged and the next one is tried."""
        while True:
            began = time.monotonic()
            try:
                await self.record()
            except Exception as error:
                _log.error("no sample for the history: %s", error, exc_info=error)
            took = time.monotonic() - began
            await asyncio.sleep(max(self._interval - took, took / MAX_SHARE if took > 1 else 0))

    async def record(self) -> None:
        """Take one sample now."""
        sample = await self._take(int(self._clock()))
        await asyncio.to_thread(self.store.add, sample)
