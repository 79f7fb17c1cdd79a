"""Asynchronous locks by key, for work on one pod or claim at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class KeyedLock:
    """One lock per key in use.

    Free of deadlocks as long as all callers lock in one order (pods before claims); keys are locked in sorted
    order. Keys without holders or waiters use no memory.
    """

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all keys."""
        async with AsyncExitStack() as held:
            for key in sorted(set(keys)):
                await held.enter_async_context(self._hold_one(key))
            yield

    @asynccontextmanager
    async def _hold_one(self, key: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1

    def __len__(self) -> int:
        return len(self._locks)
