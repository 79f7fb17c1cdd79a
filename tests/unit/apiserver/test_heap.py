"""Return of freed memory to the system."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.apiserver import heap
from plimsoll.apiserver.heap import HeapTrimmer, find_malloc_trim
from tests.waiting import DEADLINE


def test_the_heap_is_trimmed_once_enough_has_been_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_INTERVAL_SECONDS", 0.0)

    async def scenario() -> None:
        trims: list[int] = []
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def trim() -> None:
            trims.append(1)
            loop.call_soon_threadsafe(done.set)

        trimmer = HeapTrimmer(trim)
        trimmer.record_freed(heap._MIN_FREED_BYTES - 1)
        assert trimmer.timer is None
        trimmer.record_freed(1)
        trimmer.record_freed(heap._MIN_FREED_BYTES)  # once for both
        async with asyncio.timeout(DEADLINE):
            await done.wait()
        assert (trims, trimmer.timer) == ([1], None)
        trimmer.record_freed(heap._MIN_FREED_BYTES)
        trimmer.close()
        assert trimmer.timer is None

    asyncio.run(scenario())


def test_malloc_trim_on_this_system() -> None:
    trim = find_malloc_trim()
    if trim is not None:
        trim()
