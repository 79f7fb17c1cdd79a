"""Time as an argument.

Owns `Clock`, which the loops are given so that tests need not sleep, and the two spellings of a moment that
the API knows. A moment is a number of seconds since 1970 in UTC.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the loops know of time."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def read_moment(text: str | None) -> float | None:
    """The moment a timestamp names; None if there is none, or none that can be read."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def write_moment(moment: float) -> str:
    """`2025-06-01T12:00:00Z`: what most fields hold, cut to whole seconds."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_micro_moment(moment: float) -> str:
    """`2025-06-01T12:00:00.000000Z`: what leases and new events hold."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
