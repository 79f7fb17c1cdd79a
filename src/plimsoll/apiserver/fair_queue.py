"""Fair queue for expensive requests.

A limited number of requests run at once, and a limited number of them for one user. Waiting requests are
served round-robin by user, so that a user with many expensive requests delays others by one of them at most.
The number of waiting requests is limited too; beyond it a request is rejected with 429 and Retry-After.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from plimsoll.apiserver import status


class FairQueue:
    """Slots for expensive requests, shared fairly between users."""

    def __init__(self, slots: int, *, per_user: int, waiting: int, waiting_per_user: int) -> None:
        self._slots = slots
        self._max_per_user = per_user
        self._max_waiting = waiting
        self._max_waiting_per_user = waiting_per_user
        self._running: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    async def acquire(self, user: str, timeout: float) -> None:
        """Take a slot, waiting at most `timeout` seconds for it; ApiError 429. Return it with `release`."""
        if not self._waiting.get(user) and self._can_run(user):
            self._take(user)
            return
        queue = self._waiting.setdefault(user, deque())
        if len(queue) >= self._max_waiting_per_user or self.waiting >= self._max_waiting:
            self._drop_empty(user)
            raise status.too_many_requests(
                "too many expensive requests are waiting, please try again later", 5
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except BaseException as interruption:
            if waiter in queue:
                queue.remove(waiter)
                self._drop_empty(user)
            elif not waiter.cancelled():
                self.release(user)  # the slot was assigned at the same time
            if isinstance(interruption, TimeoutError):
                raise status.too_many_requests(
                    "no worker became free in time, please try again later", 5
                ) from None
            raise

    def release(self, user: str) -> None:
        """Return a slot; the next user in turn gets it."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        self._start_next()

    def _can_run(self, user: str) -> bool:
        return self.running < self._slots and self._running.get(user, 0) < self._max_per_user

    def _take(self, user: str) -> None:
        self._running[user] = self._running.get(user, 0) + 1

    def _start_next(self) -> None:
        for user in list(self._waiting):
            queue = self._waiting[user]
            while queue and self._can_run(user):
                waiter = queue.popleft()
                if not waiter.done():  # else cancelled
                    self._take(user)
                    waiter.set_result(None)
                    self._waiting.move_to_end(user)
                    break
            self._drop_empty(user)

    def _drop_empty(self, user: str) -> None:
        if not self._waiting.get(user, True):
            del self._waiting[user]
