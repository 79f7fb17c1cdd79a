"""What changed lately, and the feeds that follow it.

Owns the events, a sequence for each resource, bounded together by number and bytes. Promises: an event is
shown only once it is durable, in order, to each feed exactly once; a feed is a place in the shared sequence
and no queue of its own, so that a slow follower costs nothing and is told (410) when it fell behind; what
one commit made visible is not trimmed before the next one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from plimsoll.apiserver.storage import api_errors
from plimsoll.apiserver.storage.records import EventType, StoredObject, StoreEvent
from plimsoll.errors import StoreError

#: What a write was: its type, what it left behind, what stood there before.
Change = tuple[EventType, StoredObject, StoredObject | None]
_revision = attrgetter("revision")


class ResourceEvents:
    """The events of one resource. A place is the number of events the resource ever had before it."""

    __slots__ = ("base", "dropped", "events", "ready", "skip", "waiting")

    def __init__(self) -> None:
        self.events: list[StoreEvent | None] = []
        self.base = 0  # the place of events[0]
        self.skip = 0  # how many of `events` are trimmed already
        self.dropped = 0  # the revision of the last event trimmed
        self.ready = 0  # the place after the last durable event
        self.waiting: dict[WatchCursor, asyncio.Future[None]] = {}

    @property
    def first(self) -> int:
        return self.base + self.skip

    @property
    def end(self) -> int:
        return self.base + len(self.events)

    def place_after(self, revision: int) -> int:
        """The place of the first event past a revision."""
        return self.base + bisect_right(self.events, revision, lo=self.skip, key=_revision)

    def between(self, start: int, end: int) -> list[StoreEvent]:
        return self.events[start - self.base : end - self.base]  # type: ignore[return-value]  # none is trimmed

    def pop_first(self) -> StoreEvent:
        event = self.events[self.skip]
        assert event is not None
        self.events[self.skip] = None
        self.dropped = event.stored.revision
        self.skip += 1
        if self.skip > 512 and self.skip * 2 > len(self.events):
            del self.events[: self.skip]
            self.base += self.skip
            self.skip = 0
        return event

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)


class EventHistory:
    """The events of all resources."""

    def __init__(self, *, events: int, octets: int, dropped: Callable[[Change], None]) -> None:
        self.floor = 0  # the oldest revision a watch may start from
        self.durable = 0
        self.octets = 0
        self.closed = False
        self.undone = 0  # how often events were taken back
        self.warm: deque[StoreEvent] = deque()
        self._most_events = events
        self._most_octets = octets
        self._dropped = dropped
        self._lines: dict[str, ResourceEvents] = {}
        self._order: deque[ResourceEvents] = deque()  # whose event came when
        self._pending: deque[ResourceEvents] = deque()  # the same for those not yet durable

    def __len__(self) -> int:
        return len(self._order)

    def load(self, changes: Sequence[Change], floor: int, durable: int) -> None:
        """Begin with what a file says happened between two revisions, as far as the bounds allow."""
        self.floor = floor
        kept = octets = 0
        for change in reversed(changes):
            octets += _octets(change[1], change[2])
            if kept >= self._most_events or octets > self._most_octets:
                break
            kept += 1
        for change in changes[: len(changes) - kept]:
            self._dropped(change)
            self.floor = change[1].revision
        for kind, stored, before in changes[len(changes) - kept :]:
            self.append(StoreEvent(kind, stored, before, self.warm))
        self.show(durable)

    def append(self, event: StoreEvent) -> None:
        """Take in an event, not yet to be shown."""
        stored = event.stored
        line = self._line(stored.key.resource)
        line.events.append(event)
        self._order.append(line)
        self._pending.append(line)
        self.octets += _octets(stored, event.before)

    def undo(self) -> Iterator[StoreEvent]:
        """Take back the events that were never shown, newest first."""
        self.undone += 1
        while self._pending:
            line = self._pending.pop()
            self._order.pop()
            event = line.events.pop()
            assert event is not None
            self.octets -= _octets(event.stored, event.before)
            yield event

    def show(self, durable: int) -> None:
        """Everything up to a revision is durable: let the feeds have it."""
        self._trim()
        lines = set()
        pending = self._pending
        while pending:
            line = pending[0]
            event = line.events[line.ready - line.base]
            assert event is not None
            if event.stored.revision > durable:
                break
            pending.popleft()
            line.ready += 1
            lines.add(line)
        self.durable = durable
        for line in lines:
            if line.waiting:
                line.wake()

    def since(self, resource: str, revision: int) -> list[StoreEvent]:
        """All events of a resource past a revision, shown or not."""
        line = self._lines.get(resource)
        return line.between(line.place_after(revision), line.end) if line else []

    def follow(self, resource: str, since: int) -> WatchCursor:
        if since < self.floor:
            raise api_errors.watch_expired(since, self.floor)
        return WatchCursor(self, self._line(resource), since)

    def feeds_waiting(self) -> int:
        return sum(len(line.waiting) for line in self._lines.values())

    def close(self) -> None:
        """Let the feeds hand out what is there, and then say that it is over."""
        self.closed = True
        for line in self._lines.values():
            line.wake()

    def _trim(self) -> None:
        """Drop the oldest events beyond the bounds, of those that the feeds could have had."""
        order = self._order
        shown = len(order) - len(self._pending)
        while shown > 0 and (len(order) > self._most_events or self.octets > self._most_octets):
            event = order.popleft().pop_first()
            shown -= 1
            self.octets -= _octets(event.stored, event.before)
            self.floor = event.revision
            self._dropped((event.type, event.stored, event.before))

    def _line(self, resource: str) -> ResourceEvents:
        line = self._lines.get(resource)
        if line is None:
            line = self._lines[resource] = ResourceEvents()
        return line


class WatchCursor:
    """The durable events of one resource past a revision, in order."""

    def __init__(self, history: EventHistory, line: ResourceEvents, since: int) -> None:
        self._history = history
        self._line = line
        self._since = since
        # Not past what is durable: the rest may be taken back, and others come in its place.
        self._place = min(line.place_after(since), line.ready)
        self._closed = False
        self._nudged = False

    @property
    def revision(self) -> int:
        """Everything up to this revision has been handed out."""
        if self._place >= self._line.ready:
            return max(self._since, self._history.durable)
        return self._since

    async def next(self, limit: int = 1000) -> list[StoreEvent]:
        """The next events, at least one; waits for it. Raises ApiError 410 when they are no longer there.

        After a `nudge` there may be none.
        """
        while True:
            events = self.take(limit)
            if events or self._nudged:
                self._nudged = False
                return events
            future = asyncio.get_running_loop().create_future()
            self._line.waiting[self] = future
            try:
                await future
            finally:
                self._line.waiting.pop(self, None)

    def nudge(self) -> None:
        """Have a `next` that waits (or the coming one) return, with or without events."""
        self._nudged = True
        future = self._line.waiting.get(self)
        if future is not None and not future.done():
            future.set_result(None)

    def take(self, limit: int = 1000) -> list[StoreEvent]:
        """What there is at once, perhaps nothing."""
        line, place = self._line, self._place
        if self._closed:
            raise StoreError("the feed is closed")
        if line.dropped > self._since:
            raise api_errors.watch_expired(self._since, self._history.floor)
        place = max(place, line.first)  # those it need not see may be gone
        if place >= line.ready:
            if self._history.closed:
                raise StoreError("the store is closed")
            return []
        events = line.between(place, min(line.ready, place + limit))
        if events[0].revision <= self._since:
            # A watch may start in the future: what comes before that is not for it.
            place = min(line.place_after(self._since), line.ready)
            events = line.between(place, min(line.ready, place + limit))
        self._place = place + len(events)
        if events:
            self._since = events[-1].revision
        return events

    def close(self) -> None:
        """Stop: a `next` that waits raises StoreError."""
        self._closed = True
        future = self._line.waiting.pop(self, None)
        if future is not None and not future.done():
            future.set_result(None)


def _octets(stored: StoredObject, before: StoredObject | None) -> int:
    """What an event keeps in memory: its object, and the one before it."""
    return len(stored.raw) + len(before.raw) if before else len(stored.raw)
