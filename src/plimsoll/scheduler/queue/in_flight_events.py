"""Events that arrived while pods were in flight.

Events are kept in order while a pod is in flight that has not seen them. The log is bounded: if a pod is in
flight for very long, the oldest events are dropped, and what that pod missed is then unknown.
"""

from __future__ import annotations

from plimsoll.scheduler.events import ClusterEvent

#: Maximum number of events kept.
MAX_EVENTS = 20_000
#: Number of dropped events from which the list is shortened.
_MIN_SHORTENED = 256


class InFlightEvents:
    """Pods in flight and the events they missed."""

    def __init__(self, kept: int = MAX_EVENTS) -> None:
        self._kept = kept
        self._begun: dict[str, int] = {}  # in pop order
        self._log: list[ClusterEvent] = []
        self._head = 0  # index of the first kept event in the list
        self._dropped = 0  # number of events before the list

    def __len__(self) -> int:
        """Return the number of pods in flight."""
        return len(self._begun)

    def __contains__(self, key: str) -> bool:
        return key in self._begun

    def begin(self, key: str) -> None:
        self._begun[key] = self._dropped + len(self._log)

    def add(self, event: ClusterEvent) -> None:
        """Record an event, unless no pod is in flight."""
        if not self._begun:
            return
        self._log.append(event)
        if len(self._log) - self._head > self._kept:
            self._forget(1)

    def since(self, key: str) -> list[ClusterEvent] | None:
        """Return the events since a pod was popped, or None if some were dropped."""
        started_at = self._begun.get(key)
        if started_at is None:
            return []
        if started_at < self._dropped + self._head:
            return None
        return self._log[started_at - self._dropped :]

    def end(self, key: str) -> None:
        """Forget a pod that is no longer in flight."""
        if self._begun.pop(key, None) is None:
            return
        first = next(iter(self._begun.values()), None)
        if first is None:
            self._dropped += len(self._log)
            self._log, self._head = [], 0
        else:
            self._forget(first - self._dropped - self._head)

    def _forget(self, count: int) -> None:
        """Drop the oldest events; the list itself is shortened occasionally."""
        self._head += max(count, 0)
        if self._head > _MIN_SHORTENED and 2 * self._head > len(self._log):
            del self._log[: self._head]
            self._dropped += self._head
            self._head = 0
