"""Time slices of the event loop: long reads yield to other requests every few milliseconds.

Work over many objects (lists, tables, watches that begin with all objects, deletions of collections) calls
`pause` after each object; when its slice is used up, other requests are served first. Only one such request
continues per iteration of the event loop, round-robin by user, so that a hundred concurrent lists delay a
small request no more than one list does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

from plimsoll.apiserver.fair_queue import FairQueue
from plimsoll.apiserver.status import timeout

#: Time that one request holds the event loop before others are served.
SLICE_SECONDS = 0.002
#: kube-apiserver's default for a request (--request-timeout).
REQUEST_SECONDS = 60.0
_UNLIMITED = 1 << 30


class EventLoopShare:
    """Time slices of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._queue = FairQueue(1, per_user=1, waiting=_UNLIMITED, waiting_per_user=_UNLIMITED)
        #: Number of times that a request yielded; for tests.
        self.pauses = 0

    def start_slice(self, user: str, seconds: float | None = REQUEST_SECONDS) -> TimeSlice:
        """Start the first time slice of a request that may take `seconds` in total; None: no limit."""
        return TimeSlice(self, self._queue, self.clock, user, seconds)


class TimeSlice:
    """Time slice of one request; use it in a `with` block and call `pause` often."""

    __slots__ = ("_clock", "_end", "_has_slot", "_queue", "_seconds", "_share", "_slice_end", "_user")

    def __init__(
        self,
        share: EventLoopShare,
        queue: FairQueue,
        clock: Callable[[], float],
        user: str,
        seconds: float | None,
    ) -> None:
        self._share, self._queue, self._clock = share, queue, clock
        self._user, self._seconds = user, seconds
        now = clock()
        self._slice_end = now + SLICE_SECONDS
        self._end = None if seconds is None else now + seconds
        self._has_slot = False

    def __enter__(self) -> TimeSlice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_expired(self) -> bool:
        """Return whether the slice is used up, so that `pause` would yield."""
        return self._clock() >= self._slice_end

    async def pause(self) -> None:
        """Yield to other requests if the slice is used up; ApiError 504 if the request has taken too long."""
        if self._clock() < self._slice_end:
            return
        if self._end is not None and self._clock() > self._end:
            raise timeout(f"request did not complete within {self._seconds:g} seconds; ask for fewer objects")
        self._share.pauses += 1
        self.release()
        await self._queue.acquire(self._user, REQUEST_SECONDS)
        self._has_slot = True  # during one iteration of the loop, in which the others run
        await asyncio.sleep(0)
        self._slice_end = self._clock() + SLICE_SECONDS

    def release(self) -> None:
        """Let other long requests continue; call it before waiting for anything else, such as a client."""
        if self._has_slot:
            self._has_slot = False
            self._queue.release(self._user)

    def renew(self) -> TimeSlice:
        """Return another slice of the same request without a deadline, for sending the result."""
        return TimeSlice(self._share, self._queue, self._clock, self._user, None)
