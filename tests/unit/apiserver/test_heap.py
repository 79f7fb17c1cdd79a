"""Memory that is given back to the system."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.apiserver import heap
from plimsoll.apiserver.heap import HeapTrimmer, find_malloc_trim


def test_the_heap_is_trimmed_once_enough_has_been_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_PAUSE", 0.0)

    async def story() -> None:
        trims: list[int] = []
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def trim() -> None:
            trims.append(1)
            loop.call_soon_threadsafe(done.set)

        trimmer = HeapTrimmer(trim)
        trimmer.freed(heap._WORTH - 1)
        assert trimmer._planned is None
        trimmer.freed(1)
        trimmer.freed(heap._WORTH)  # once for both
        async with asyncio.timeout(10):
            await done.wait()
        assert (trims, trimmer._planned) == ([1], None)
        trimmer.freed(heap._WORTH)
        trimmer.close()
        assert trimmer._planned is None

    asyncio.run(story())


def test_this_system_can_or_cannot() -> None:
    trim = find_malloc_trim()
    if trim is not None:
        trim()
