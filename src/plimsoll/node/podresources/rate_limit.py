"""How many calls are served: a bucket of tokens, refilled steadily. Who finds it empty is turned away.

Owns `Limit`, the setting, and `Tokens`, a pure function of the times it is asked at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """Calls a second in the long run, and how many at once; the kubelet's own by default."""

    per_second: float = 100.0
    burst: int = 10


class Tokens:
    """What is left of a limit."""

    __slots__ = ("_at", "_left", "_limit")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._left = float(limit.burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether a call at this time (in seconds, of any clock) is served."""
        if self._at is not None and now > self._at:
            refilled = self._left + (now - self._at) * self._limit.per_second
            self._left = min(refilled, float(self._limit.burst))
        if self._at is None or now > self._at:
            self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
