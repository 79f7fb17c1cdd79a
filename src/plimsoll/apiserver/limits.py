"""Limits of the API server, and the limiter of open watches.

`ServerLimits` holds the numbers, `WatchLimiter` limits open watches: those beyond the limits are rejected
with 429 and Retry-After. Requests in flight are limited by priority and fairness, see `flowcontrol/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.users import User


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the API server; bytes, counts and seconds."""

    body: int = 3 * 1024 * 1024
    header_field: int = 64 * 1024
    headers: int = 256
    #: Request line and headers of one request; kube-apiserver uses Go's default, 1 MiB, as well.
    header_bytes: int = 1024 * 1024
    #: Time until the headers of a request are complete; for the first, from accepting the connection.
    header_timeout: float = 30
    #: Unauthenticated connections: served at once, waiting, both per source address, and the header bytes
    #: that all of them hold together.
    unauthenticated: int = 128
    unauthenticated_waiting: int = 2048
    unauthenticated_per_address: int = 1024
    unauthenticated_bytes: int = 8 * 1024 * 1024
    url: int = 32 * 1024
    #: Seats of requests in flight, shared by the priority levels: the 400 reads and 200 writes of
    #: kube-apiserver's defaults.
    in_flight: int = 600
    watches: int = 20_000
    watches_per_user: int = 10_000
    body_timeout: int = 60
    idle_timeout: int = 180
    #: A client that does not read for this long is disconnected; a watch client then lists again.
    slow_watch_timeout: int = 30


class _SlotCounter:
    """Counter of slots in use, with a limit in total and per user."""

    __slots__ = ("_by_user", "_limit", "_per_user", "in_use")

    def __init__(self, most: int, per_user: int) -> None:
        self._limit = most
        self._per_user = per_user
        self._by_user: dict[str, int] = {}
        self.in_use = 0

    def acquire(self, name: str) -> bool:
        """Take a slot, unless none is left or the user is at its limit; return whether it was taken."""
        count = self._by_user.get(name, 0)
        if self.in_use >= self._limit or count >= self._per_user:
            return False
        self._by_user[name] = count + 1
        self.in_use += 1
        return True

    def release(self, name: str) -> None:
        self.in_use -= 1
        left = self._by_user[name] - 1
        if left:
            self._by_user[name] = left
        else:
            del self._by_user[name]


class HeldSlot:
    """Slot held until the end of a `with` block."""

    __slots__ = ("_counter", "_name")

    def __init__(self, counter: _SlotCounter, name: str) -> None:
        self._counter = counter
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, *problem: object) -> None:
        self._counter.release(self._name)


class WatchLimiter:
    """Limiter of open watches."""

    def __init__(self, limits: ServerLimits) -> None:
        self._counter = _SlotCounter(limits.watches, limits.watches_per_user)

    @property
    def open(self) -> int:
        """Return the number of open watches."""
        return self._counter.in_use

    def acquire(self, user: User) -> HeldSlot:
        """Take a slot for the lifetime of a watch, held in a `with` block; ApiError 429 if there is none."""
        if not self._counter.acquire(user.name):
            raise status.too_many_requests("too many watches, please try again later")
        return HeldSlot(self._counter, user.name)
