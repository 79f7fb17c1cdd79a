"""What happened while pods were in flight.

Owns `FlightLog`: happenings in their order, kept for as long as a pod is in flight that has not seen them.
The log has an end: if one pod is in flight for very long, the oldest happenings are dropped, and what it
missed is then said to be unknown.
"""

from __future__ import annotations

from plimsoll.scheduler.queue.events import ClusterEvent

#: How many happenings are kept at most.
KEPT = 20_000
_FEW = 256


class InFlightEvents:
    """The pods in flight and what they missed."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._begun: dict[str, int] = {}  # in the order in which they began
        self._log: list[ClusterEvent] = []
        self._head = 0  # where in the list the log begins
        self._dropped = 0  # how many happenings came before the list

    def __len__(self) -> int:
        """How many pods are in flight."""
        return len(self._begun)

    def __contains__(self, key: str) -> bool:
        return key in self._begun

    def begin(self, key: str) -> None:
        self._begun[key] = self._dropped + len(self._log)

    def add(self, event: ClusterEvent) -> None:
        """Something happened; nobody in flight means nobody missed it."""
        if not self._begun:
            return
        self._log.append(event)
        if len(self._log) - self._head > self._kept:
            self._forget(1)

    def since(self, key: str) -> list[ClusterEvent] | None:
        """What happened since a pod took off; None if that is not known any more."""
        begun = self._begun.get(key)
        if begun is None:
            return []
        if begun < self._dropped + self._head:
            return None
        return self._log[begun - self._dropped :]

    def end(self, key: str) -> None:
        """A pod is in flight no longer."""
        if self._begun.pop(key, None) is None:
            return
        first = next(iter(self._begun.values()), None)
        if first is None:
            self._dropped += len(self._log)
            self._log, self._head = [], 0
        else:
            self._forget(first - self._dropped - self._head)

    def _forget(self, count: int) -> None:
        """Drop the oldest; the list itself is shortened now and then."""
        self._head += max(count, 0)
        if self._head > _FEW and 2 * self._head > len(self._log):
            del self._log[: self._head]
            self._dropped += self._head
            self._head = 0
