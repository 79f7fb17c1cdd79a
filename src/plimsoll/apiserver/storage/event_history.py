"""Event history: recent events of each resource, and the cursors of watches.

The events of all resources are limited together by number and bytes. An event is published only once it is
durable, in order, and to each cursor exactly once. A cursor is a position in the shared sequence, not a queue
of its own: a slow watch costs nothing, and gets 410 when it has fallen behind. Events published by one commit
are not trimmed before the next one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter

from plimsoll.apiserver.status import resource_expired
from plimsoll.apiserver.storage.records import EventType, StoredObject, StoreEvent
from plimsoll.errors import ApiError, StoreError

#: Type of a write, the object after it and the one before it.
Change = tuple[EventType, StoredObject, StoredObject | None]
_revision = attrgetter("revision")
#: Watches woken in one turn of the event loop, so that thousands of them do not delay requests: each takes
#: about 40 microseconds to write its event.
WOKEN_AT_ONCE = 128


class EventSequence:
    """Events of one resource. A position is the number of events that the resource ever had before it."""

    __slots__ = ("base", "dropped", "events", "ready", "trimmed", "waiting")

    def __init__(self) -> None:
        self.events: list[StoreEvent | None] = []
        self.base = 0  # position of events[0]
        self.trimmed = 0  # number of leading `events` that are trimmed
        self.dropped = 0  # the revision of the last event trimmed
        self.ready = 0  # position after the last durable event
        self.waiting: dict[WatchCursor, asyncio.Future[None]] = {}

    @property
    def first(self) -> int:
        return self.base + self.trimmed

    @property
    def end(self) -> int:
        return self.base + len(self.events)

    def position_after(self, revision: int) -> int:
        """Return the position of the first event after a revision."""
        return self.base + bisect_right(self.events, revision, lo=self.trimmed, key=_revision)

    def between(self, start: int, end: int) -> list[StoreEvent]:
        return self.events[start - self.base : end - self.base]  # type: ignore[return-value]  # none is trimmed

    def pop_first(self) -> StoreEvent:
        event = self.events[self.trimmed]
        assert event is not None
        self.events[self.trimmed] = None
        self.dropped = event.stored.revision
        self.trimmed += 1
        if self.trimmed > 512 and self.trimmed * 2 > len(self.events):
            del self.events[: self.trimmed]
            self.base += self.trimmed
            self.trimmed = 0
        return event

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        _wake_some(iter(waiting.values()))


def _wake_some(waiting: Iterator[asyncio.Future[None]]) -> None:
    """Wake some watches now and the others in the next turns of the event loop."""
    for future in islice(waiting, WOKEN_AT_ONCE):
        if not future.done():
            future.set_result(None)
    for future in waiting:
        future.get_loop().call_soon(_wake_some, chain((future,), waiting))
        return


class EventHistory:
    """Events of all resources."""

    def __init__(self, *, max_events: int, max_bytes: int, on_dropped: Callable[[Change], None]) -> None:
        self.floor = 0  # the oldest revision a watch may start from
        self.durable = 0
        self.size_bytes = 0
        self.closed = False
        self.rollbacks = 0  # number of rollbacks
        self.decoded_events: deque[StoreEvent] = deque()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._on_dropped = on_dropped
        self._sequences: dict[str, EventSequence] = {}
        self._order: deque[EventSequence] = deque()  # sequences in the order of their events
        self._pending: deque[EventSequence] = deque()  # the same for those not yet durable

    def __len__(self) -> int:
        return len(self._order)

    def load(self, changes: Sequence[Change], floor: int, durable: int) -> None:
        """Load the events of a file between two revisions, as far as the limits allow."""
        self.floor = floor
        kept = size_bytes = 0
        for change in reversed(changes):
            size_bytes += _event_bytes(change[1], change[2])
            if kept >= self._max_events or size_bytes > self._max_bytes:
                break
            kept += 1
        for change in changes[: len(changes) - kept]:
            self._on_dropped(change)
            self.floor = change[1].revision
        for kind, stored, before in changes[len(changes) - kept :]:
            self.append(StoreEvent(kind, stored, before, self.decoded_events))
        self.publish(durable)

    def append(self, event: StoreEvent) -> None:
        """Add an event that is not published yet."""
        stored = event.stored
        sequence = self._sequence_of(stored.key.resource)
        sequence.events.append(event)
        self._order.append(sequence)
        self._pending.append(sequence)
        self.size_bytes += _event_bytes(stored, event.before)

    def roll_back(self) -> Iterator[StoreEvent]:
        """Remove the events that were never published, newest first."""
        self.rollbacks += 1
        while self._pending:
            sequence = self._pending.pop()
            self._order.pop()
            event = sequence.events.pop()
            assert event is not None
            self.size_bytes -= _event_bytes(event.stored, event.before)
            yield event

    def publish(self, durable: int) -> None:
        """Make everything up to a durable revision visible to watches."""
        self._trim()
        sequences = set()
        pending = self._pending
        while pending:
            sequence = pending[0]
            event = sequence.events[sequence.ready - sequence.base]
            assert event is not None
            if event.stored.revision > durable:
                break
            pending.popleft()
            sequence.ready += 1
            sequences.add(sequence)
        self.durable = durable
        for sequence in sequences:
            if sequence.waiting:
                sequence.wake()

    def since(self, resource: str, revision: int) -> list[StoreEvent]:
        """Return all events of a resource after a revision, published or not."""
        sequence = self._sequences.get(resource)
        return sequence.between(sequence.position_after(revision), sequence.end) if sequence else []

    def watch(self, resource: str, since: int) -> WatchCursor:
        if since < self.floor:
            raise _expired(since, self.floor)
        return WatchCursor(self, self._sequence_of(resource), since)

    def count_waiting(self) -> int:
        return sum(len(sequence.waiting) for sequence in self._sequences.values())

    def close(self) -> None:
        """Let the cursors return the remaining events, and then raise StoreError."""
        self.closed = True
        for sequence in self._sequences.values():
            sequence.wake()

    def _trim(self) -> None:
        """Drop the oldest published events beyond the limits."""
        order = self._order
        shown = len(order) - len(self._pending)
        while shown > 0 and (len(order) > self._max_events or self.size_bytes > self._max_bytes):
            event = order.popleft().pop_first()
            shown -= 1
            self.size_bytes -= _event_bytes(event.stored, event.before)
            self.floor = event.revision
            self._on_dropped((event.type, event.stored, event.before))

    def _sequence_of(self, resource: str) -> EventSequence:
        sequence = self._sequences.get(resource)
        if sequence is None:
            sequence = self._sequences[resource] = EventSequence()
        return sequence


class WatchCursor:
    """Cursor over the durable events of one resource after a revision."""

    def __init__(self, history: EventHistory, sequence: EventSequence, since: int) -> None:
        self._history = history
        self._sequence = sequence
        self._since = since
        # Not past what is durable: the rest may be rolled back and replaced.
        self._position = min(sequence.position_after(since), sequence.ready)
        self._closed = False
        self._woken = False

    @property
    def revision(self) -> int:
        """Return the revision up to which everything has been returned."""
        if self._position >= self._sequence.ready:
            return max(self._since, self._history.durable)
        return self._since

    async def next(self, limit: int = 1000) -> list[StoreEvent]:
        """Return the next events, waiting for at least one; ApiError 410 when they are no longer available.

        After a `wake` there may be none.
        """
        while True:
            events = self.take(limit)
            if events or self._woken:
                self._woken = False
                return events
            future = asyncio.get_running_loop().create_future()
            self._sequence.waiting[self] = future
            try:
                await future
            finally:
                self._sequence.waiting.pop(self, None)

    def wake(self) -> None:
        """Make a waiting (or the next) `next` return, with or without events."""
        self._woken = True
        future = self._sequence.waiting.get(self)
        if future is not None and not future.done():
            future.set_result(None)

    def take(self, limit: int = 1000) -> list[StoreEvent]:
        """Return the available events without waiting."""
        sequence = self._sequence
        if self._closed:
            raise StoreError("the watch is closed")
        position = self._position
        if position < sequence.ready:  # otherwise all are taken, so no other can have been trimmed
            if sequence.dropped > self._since:
                raise _expired(self._since, self._history.floor)
            position = self._position = max(position, sequence.first)  # earlier ones may be trimmed
        if position >= sequence.ready:
            if self._history.closed:
                raise StoreError("the store is closed")
            return []
        events = sequence.between(position, min(sequence.ready, position + limit))
        if events[0].revision <= self._since:
            # A watch may start at a future revision: skip events before it.
            position = min(sequence.position_after(self._since), sequence.ready)
            events = sequence.between(position, min(sequence.ready, position + limit))
        self._position = position + len(events)
        if events:
            self._since = events[-1].revision
        return events

    def close(self) -> None:
        """Close the cursor: a waiting `next` raises StoreError."""
        self._closed = True
        future = self._sequence.waiting.pop(self, None)
        if future is not None and not future.done():
            future.set_result(None)


def _expired(since: int, floor: int) -> ApiError:
    return resource_expired(f"too old resource version: {since} ({floor})")


def _event_bytes(stored: StoredObject, before: StoredObject | None) -> int:
    """Return the memory of an event: its object and the previous one."""
    return stored.size_bytes + before.size_bytes if before else stored.size_bytes
