"""Retry-After of rejected requests: it doubles while a priority level rejects many, up to 32 seconds."""

from __future__ import annotations

from collections import deque

_LONGEST = 32


class RetryAfter:
    """Seconds after which clients of one priority level should try again."""

    __slots__ = ("_count", "_history", "_increased", "_second", "seconds")

    def __init__(self) -> None:
        self.seconds = 1
        self._second = -1
        self._count = 0
        self._history: deque[tuple[int, int]] = deque()  # (second, rejected requests)
        self._increased = -_LONGEST

    def note_rejection(self, now: float) -> int:
        """Count a rejected request; return the seconds for its Retry-After header."""
        second = int(now)
        if second == self._second:
            self._count += 1
            return self.seconds
        if self._count:
            self._history.append((self._second, self._count))
        self._second, self._count = second, 1
        self._adjust(second)
        return self.seconds

    def _adjust(self, second: int) -> None:
        """Double the time if at least three requests per second were rejected for as long as it is, at most
        once in that time; decrease it if there was less than one per second.
        """
        while self._history and second - self._history[0][0] > _LONGEST:
            self._history.popleft()
        rejected = sum(count for when, count in self._history if second - when <= self.seconds)
        if second - self._increased >= self.seconds and rejected >= 3 * self.seconds:
            self.seconds = min(2 * self.seconds, _LONGEST)
            self._increased = second
        elif rejected < self.seconds and self.seconds > 1:
            self.seconds -= 1
