"""Clock interface, so that tests need not sleep."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Current time and sleep."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set: durations are measured by it."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
