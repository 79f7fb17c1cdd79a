"""How long a search may take: so many steps, and until the caller's deadline.

The core has no clock, so the deadline is a question that the caller answers. Running out is a third answer
beside yes and no, and says how far the search came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Steps between two questions about the deadline.
DEADLINE_CHECK_INTERVAL = 256


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """A bound on the work of one allocation. A step is one device tried for one request."""

    steps: int = 200_000
    expired: Callable[[], bool] | None = None  #: whether the deadline is past


class StepCounter:
    """Counts steps; shared by everything that works on one allocation."""

    __slots__ = ("_expired", "_last", "expired", "steps")

    def __init__(self, limits: SearchLimits) -> None:
        self.steps = 0
        self.expired = False  #: whether the deadline, not the step budget, ended it
        self._last = limits.steps
        self._expired = limits.expired

    def tick(self) -> bool:
        """Count a step; whether there are none left."""
        self.steps += 1
        if self.steps > self._last:
            return True
        if self._expired is not None and self.steps % DEADLINE_CHECK_INTERVAL == 1 and self._expired():
            self.expired = True
        return self.expired


class StepBudget:
    """A part of a clock's steps, for an attempt that is given up early."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: StepCounter, steps: int) -> None:
        self._clock = clock
        self._last = clock.steps + steps

    def tick(self) -> bool:
        return self._clock.tick() or self._clock.steps > self._last
