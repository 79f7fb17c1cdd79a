"""Queue set of one priority level: seats in use, and fair queuing among the flows that wait for one.

Upstream's algorithm (KEP-1040, "Fair Queuing for Server Requests"): each flow uses a few queues (shuffle
sharding) and adds a request to the one with the least waiting work. The virtual time R advances by the seats
that each active queue would get under perfectly fair sharing. A queue may dispatch its next request at
`start`, a reading of R that each request advances by the time it takes; of all waiting requests, the one with
the earliest virtual finish is dispatched first. So a flow with few requests is served before one with many.

Queues exist only while they are active, so that a level costs nothing while it is idle.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from plimsoll.apiserver.flowcontrol.configuration import PriorityLevel
from plimsoll.apiserver.flowcontrol.seat_demand import SeatDemand
from plimsoll.common.shuffle_sharding import deal_hand, hash_flow

#: Assumed duration of a request until it has finished.
_SERVICE_SECONDS = 0.003
_MAX_HANDS = 5_000
#: Longer names of flows are not kept, since clients choose them.
_MAX_FLOW = 256


class _FlowQueue:
    """Queue of requests of some flows."""

    __slots__ = ("executing", "number", "seats_waiting", "start", "waiting")

    def __init__(self, number: int, start: float) -> None:
        self.number = number
        self.start = start
        self.waiting: deque[SeatRequest] = deque()
        self.seats_waiting = 0
        self.executing = 0


class SeatRequest:
    """Request that holds seats, or waits for them: then `granted` is a future."""

    __slots__ = ("arrival", "granted", "queue", "queue_set", "schema", "seats", "started")

    def __init__(self, queue_set: QueueSet, schema: str, seats: int, queue: _FlowQueue | None) -> None:
        self.queue_set = queue_set
        self.schema = schema
        self.seats = seats
        self.queue = queue
        self.arrival = queue_set.progress
        self.started: float | None = None
        self.granted: asyncio.Future[None] | None = None


class QueueSet:
    """Seats and queues of one priority level; `limit` is the number of seats it may use now."""

    def __init__(self, level: PriorityLevel, clock: Callable[[], float]) -> None:
        self.level = level
        self.limit = 0
        self.progress = 0.0  #: the virtual time R
        self.seats_in_use = 0
        self.seats_waiting = 0
        self.executing: Counter[str] = Counter()  #: by FlowSchema, like the next two
        self.executing_seats: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.demand = SeatDemand(clock())
        self._clock = clock
        self._now = clock()
        self._requests = 0  # executing
        self._enqueues = 0
        self.queues: dict[int, _FlowQueue] = {}
        self._nonempty: dict[_FlowQueue, None] = {}  # the one that was served last is the last
        self._hands: dict[tuple[str, str], tuple[int, ...]] = {}

    def configure(self, level: PriorityLevel) -> None:
        """Take over a changed level; requests that wait stay in their queues."""
        if (level.queues, level.hand_size) != (self.level.queues, self.level.hand_size):
            self._hands.clear()
        self.level = level

    def set_limit(self, limit: int) -> None:
        self._advance()
        self.limit = limit
        self._dispatch()

    def start(self, schema: str, flow: str, seats: int) -> SeatRequest | None:
        """Start a request of a flow, or let it wait; None if it must be rejected."""
        self._advance()
        level = self.level
        if not level.queues:
            if not level.is_exempt and not self._fits(seats):
                return None
            request = SeatRequest(self, schema, seats, None)
            self._execute(request)
            return request
        queue = self._choose_queue(schema, flow)
        if not self._nonempty and self.seats_in_use < self.limit and self._fits(seats):
            return self._start_now(schema, seats, queue)
        if self.seats_in_use >= self.limit and len(queue.waiting) >= level.queue_length:
            return None  # such a queue has requests, so it is not a new one
        request = SeatRequest(self, schema, seats, queue)
        queue.waiting.append(request)
        queue.seats_waiting += seats
        self.seats_waiting += seats
        self.waiting[schema] += 1
        self._nonempty[queue] = None
        self._bound(queue)
        self._dispatch()
        if request.started is None:
            request.granted = asyncio.get_running_loop().create_future()
            self._note_demand()
        return request

    def _start_now(self, schema: str, seats: int, queue: _FlowQueue) -> SeatRequest:
        """Start a request that need not wait, as if it had been added to its queue and dispatched."""
        request = SeatRequest(self, schema, seats, queue)
        self.waiting.setdefault(schema, 0)
        queue.executing += 1
        queue.start = max(queue.start, request.arrival) + seats * _SERVICE_SECONDS
        self._execute(request)
        return request

    def queue_length(self, request: SeatRequest) -> int:
        """Return the number of requests that wait in the queue of a request."""
        return len(request.queue.waiting) if request.queue is not None else 0

    def finish(self, request: SeatRequest) -> float:
        """Return the seats of a request; return how long it held them."""
        self._advance()
        assert request.started is not None
        elapsed = self._now - request.started
        self._requests -= 1
        self.seats_in_use -= request.seats
        self.executing[request.schema] -= 1
        self.executing_seats[request.schema] -= request.seats
        queue = request.queue
        if queue is not None:
            queue.executing -= 1
            queue.start -= request.seats * (_SERVICE_SECONDS - elapsed)
            self._bound(queue)
            self._drop_if_idle(queue)
        self.demand.set(self.seats_in_use + self.seats_waiting, self._now)
        if self._nonempty:
            self._dispatch()
        return elapsed

    def cancel(self, request: SeatRequest) -> None:
        """Remove a request that waits; if it got its seats at the same time, return them."""
        if request.started is not None:
            self.finish(request)
            return
        queue = request.queue
        assert queue is not None
        self._advance()
        queue.waiting.remove(request)
        self._leave_queue(request, queue)
        self._bound(queue)
        self._drop_if_idle(queue)
        self._note_demand()
        self._dispatch()  # the next of its queue may need fewer seats

    def _advance(self) -> None:
        """Advance the virtual time; call it before any change."""
        now = self._clock()
        if self.queues:
            seats = min(self.seats_in_use + self.seats_waiting, self.limit)
            self.progress += (now - self._now) * seats / len(self.queues)
        self._now = now

    def _choose_queue(self, schema: str, flow: str) -> _FlowQueue:
        """Return the queue of a flow's hand with the least waiting work."""
        hand = self._hands.get((schema, flow))
        if hand is None:
            if len(self._hands) >= _MAX_HANDS:
                self._hands.clear()
            hand = deal_hand(hash_flow(schema, flow), self.level.queues, self.level.hand_size)
            if len(flow) <= _MAX_FLOW:
                self._hands[schema, flow] = hand
        # Start at another queue each time, so that flows with overlapping hands avoid each other.
        offset = self._enqueues % len(hand)
        self._enqueues += 1
        chosen, least = hand[offset], -1
        for number in (*hand[offset:], *hand[:offset]):
            queue = self.queues.get(number)
            waiting = queue.seats_waiting if queue is not None else 0
            if least < 0 or waiting < least:
                chosen, least = number, waiting
            if not waiting:
                break
        found = self.queues.get(chosen)
        if found is None:
            found = self.queues[chosen] = _FlowQueue(chosen, self.progress)
        return found

    def _fits(self, seats: int) -> bool:
        if self.level.is_exempt:
            return True
        if seats > self.limit:  # alone, else it would never run
            return not self._requests
        return self.seats_in_use + seats <= self.limit

    def _dispatch(self) -> None:
        """Start as many waiting requests as there are seats for."""
        while self._nonempty and self.seats_in_use < self.limit:
            queue = min(self._nonempty, key=_virtual_finish)
            request = queue.waiting[0]
            if not self._fits(request.seats):
                return
            queue.waiting.popleft()
            self._leave_queue(request, queue)
            queue.executing += 1
            queue.start += request.seats * _SERVICE_SECONDS
            self._bound(queue)
            self._execute(request)
            if request.granted is not None and not request.granted.done():
                request.granted.set_result(None)

    def _leave_queue(self, request: SeatRequest, queue: _FlowQueue) -> None:
        queue.seats_waiting -= request.seats
        self.seats_waiting -= request.seats
        self.waiting[request.schema] -= 1
        del self._nonempty[queue]
        if queue.waiting:
            self._nonempty[queue] = None

    def _execute(self, request: SeatRequest) -> None:
        request.started = self._now
        self._requests += 1
        self.seats_in_use += request.seats
        self.executing[request.schema] += 1
        self.executing_seats[request.schema] += request.seats
        self.demand.set(self.seats_in_use + self.seats_waiting, self._now)

    def _bound(self, queue: _FlowQueue) -> None:
        """Keep a queue from dispatching before the arrival of its next request, in virtual time; otherwise a
        queue that cannot use its share would save it up.
        """
        if queue.waiting and queue.start < queue.waiting[0].arrival:
            queue.start = queue.waiting[0].arrival

    def _drop_if_idle(self, queue: _FlowQueue) -> None:
        if not queue.waiting and not queue.executing:
            del self.queues[queue.number]
            if not self.queues:
                self.progress = 0.0  # no queue has a reading of it

    def _note_demand(self) -> None:
        self.demand.set(self.seats_in_use + self.seats_waiting, self._now)


def _virtual_finish(queue: _FlowQueue) -> float:
    return queue.start + queue.waiting[0].seats * _SERVICE_SECONDS
