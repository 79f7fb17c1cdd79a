"""Return of freed memory to the system."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys

import pytest

from plimsoll.apiserver import heap
from plimsoll.apiserver.heap import HeapTrimmer, find_malloc_trim
from tests.waiting import DEADLINE


async def test_the_heap_is_trimmed_once_enough_has_been_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "INTERVAL_SECONDS", 0.0)
    trims: list[int] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        trims.append(1)
        loop.call_soon_threadsafe(done.set)

    trimmer = HeapTrimmer(trim)
    trimmer.record_freed(heap.MIN_FREED_BYTES - 1)
    assert trimmer.timer is None
    trimmer.record_freed(1)
    trimmer.record_freed(heap.MIN_FREED_BYTES)  # once for both
    async with asyncio.timeout(DEADLINE):
        await done.wait()
    assert (trims, trimmer.timer) == ([1], None)
    trimmer.record_freed(heap.MIN_FREED_BYTES)
    trimmer.close()
    assert trimmer.timer is None


_BUFFERS = """
import resource
from plimsoll.apiserver.heap import reuse_buffers

assert reuse_buffers()
faults = 0
for turn in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"x" * size for size in (300_000, 3_000_000, 600_000)]
    buffers.clear()
    if turn:  # the first ones are new
        faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(find_malloc_trim() is None, reason="the C library is not glibc")
def test_freed_buffers_are_reused() -> None:
    command = [sys.executable, "-c", _BUFFERS]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    pages = 19 * 3_900_000 // resource.getpagesize()
    assert faults < pages // 100  # a twentieth of them, without


def test_malloc_trim_on_this_system() -> None:
    trim = find_malloc_trim()
    if trim is not None:
        trim()
