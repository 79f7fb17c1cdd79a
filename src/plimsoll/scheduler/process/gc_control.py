"""When Python's cyclic garbage collector may run: while nobody waits, and never over everything.

Owns `Memory`. The snapshot of a large cluster is millions of objects that live long; a full collection over
them stops everything for seconds. So after the first listing all that is there is set aside (frozen), the
automatic collector is off, and young garbage is collected in idle moments, or when there is much of it, and
what has survived is set aside in turn. Reference counts free what is dropped, frozen or not; only cycles that
died of age stay, and they are looked for when nothing has happened for long.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

#: New objects before the young are collected in an idle moment, and before that cannot wait.
_SOME = 5_000
_MANY = 30_000
#: How long nothing must have happened, and how long ago the last one, for a look at everything (seconds).
_QUIET = 60.0
_RARE = 6 * 3600.0


class Memory:
    """The collector, on a leash; `begin` takes over, `end` gives it back as it was."""

    def __init__(
        self,
        observe: Callable[[int, float], None] = lambda generation, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._was_on = True
        self._began = 0.0
        self._busy_at = self._full_at = 0.0
        self._active = False

    def begin(self) -> None:
        """Everything that is there now is there to stay."""
        if self._active:
            return
        self._active = True
        self._was_on = gc.isenabled()
        gc.callbacks.append(self._hear)
        gc.disable()
        gc.collect()
        gc.freeze()
        self._busy_at = self._full_at = self._clock()

    def end(self) -> None:
        if not self._active:
            return
        self._active = False
        gc.callbacks.remove(self._hear)
        gc.unfreeze()
        if self._was_on:
            gc.enable()

    def busy(self) -> None:
        """Between two pieces of work: collect only if there is really much."""
        if self._active and gc.get_count()[0] >= _MANY:
            self._young()

    def idle(self) -> None:
        """There is nothing to do just now."""
        if not self._active:
            return
        now = self._clock()
        if gc.get_count()[0] >= _SOME:
            self._busy_at = now
            self._young()
        elif now - self._busy_at >= _QUIET and now - self._full_at >= _RARE:
            self._full_at = now
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _young(self) -> None:
        gc.collect(0)
        gc.freeze()

    def _hear(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._clock()
        else:
            self._observe(facts.get("generation", 0), self._clock() - self._began)
