"""Garbage-collector control: collect young generations while idle; never run a full collection under load.

The snapshot of a large cluster has millions of long-lived objects; a full collection blocks for seconds.
After the first lists all objects are frozen and the automatic collector is disabled. Young generations are
collected when the process is idle or when they are large, and the survivors are frozen as well. Reference
counting still frees frozen objects; a full collection, for cycles, runs only after a long idle time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

#: Size of the young generation that is collected when idle, and between batches.
_IDLE_THRESHOLD = 5_000
_BUSY_THRESHOLD = 30_000
#: Quiet time required for a full collection, and the shortest interval between two (seconds).
_QUIET_SECONDS = 60.0
_FULL_INTERVAL_SECONDS = 6 * 3600.0


class GCControl:
    """Control of the cyclic garbage collector; `start` takes over, `stop` restores it."""

    def __init__(
        self,
        observe: Callable[[int, float], None] = lambda generation, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._was_enabled = True
        self._started = 0.0
        self._busy_at = self._full_at = 0.0
        self._active = False

    def start(self) -> None:
        """Freeze all current objects and disable the automatic collector."""
        if self._active:
            return
        self._active = True
        self._was_enabled = gc.isenabled()
        gc.callbacks.append(self._on_gc)
        gc.disable()
        gc.collect()
        gc.freeze()
        self._busy_at = self._full_at = self._clock()

    def stop(self) -> None:
        if not self._active:
            return
        self._active = False
        gc.callbacks.remove(self._on_gc)
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()

    def on_busy(self) -> None:
        """Collect between two batches if the young generation is large."""
        if self._active and gc.get_count()[0] >= _BUSY_THRESHOLD:
            self._collect_young()

    def on_idle(self) -> None:
        """Collect while there is no work."""
        if not self._active:
            return
        now = self._clock()
        if gc.get_count()[0] >= _IDLE_THRESHOLD:
            self._busy_at = now
            self._collect_young()
        elif now - self._busy_at >= _QUIET_SECONDS and now - self._full_at >= _FULL_INTERVAL_SECONDS:
            self._full_at = now
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _collect_young(self) -> None:
        gc.collect(0)
        gc.freeze()

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = self._clock()
        else:
            self._observe(info.get("generation", 0), self._clock() - self._started)
