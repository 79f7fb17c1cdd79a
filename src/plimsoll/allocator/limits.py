"""Limits of a search: a number of steps, and a deadline.

The core has no clock, so the caller provides the deadline as a function. A search at its limit is aborted,
which is neither success nor refusal, and reports its number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Steps between two checks of the deadline.
DEADLINE_CHECK_INTERVAL = 256


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of one allocation. A step is one device tried for one request."""

    steps: int = 200_000
    expired: Callable[[], bool] | None = None  #: returns whether the deadline has passed


class StepCounter:
    """Step counter shared by all searches of one allocation."""

    __slots__ = ("_expired", "_last", "expired", "steps")

    def __init__(self, limits: SearchLimits) -> None:
        self.steps = 0
        self.expired = False  #: True if the deadline, not the step limit, was reached
        self._last = limits.steps
        self._expired = limits.expired

    def tick(self) -> bool:
        """Count a step and return whether the limit is reached."""
        self.steps += 1
        if self.steps > self._last:
            return True
        if self._expired is not None and self.steps % DEADLINE_CHECK_INTERVAL == 1 and self._expired():
            self.expired = True
        return self.expired


class StepBudget:
    """A part of a counter's steps, for a search that may be aborted early."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: StepCounter, steps: int) -> None:
        self._clock = clock
        self._last = clock.steps + steps

    def tick(self) -> bool:
        return self._clock.tick() or self._clock.steps > self._last
