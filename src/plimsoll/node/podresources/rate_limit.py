"""Rate limit of the PodResources API: a token bucket. Calls that find it empty are rejected.

Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Calls per second, and burst; the defaults are the kubelet's."""

    per_second: float = 100.0
    burst: int = 10


class TokenBucket:
    """Token bucket of a rate limit."""

    __slots__ = ("_at", "_left", "_limit")

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._left = float(limit.burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token at this time (in seconds, of any clock); return whether the call is allowed."""
        if self._at is not None and now > self._at:
            refilled = self._left + (now - self._at) * self._limit.per_second
            self._left = min(refilled, float(self._limit.burst))
        if self._at is None or now > self._at:
            self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
