"""Timing for the benchmarks: best of several runs, in CPU seconds of this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Return the CPU seconds of the work, the best of several runs with the garbage collector disabled."""
    times = []
    for _ in range(runs):
        gc.collect()
        gc.disable()
        start = time.process_time()
        kept = work()
        times.append(time.process_time() - start)
        gc.enable()
        del kept
    return min(times)
