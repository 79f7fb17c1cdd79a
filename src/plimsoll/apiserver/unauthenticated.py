"""Limits on connections that have not presented valid credentials.

Such a connection is quiet until its first byte has arrived, then it waits, and then it is served: TLS and
HTTP state exists for it. Few are served at once, because each costs about 300 KiB; the others cost a socket.
A burst of legitimate clients is absorbed, because they authenticate within milliseconds. A served connection
that stays is evicted as soon as another one waits: when its client has not sent anything for `IDLE_SECONDS`,
or has not authenticated within `MAX_SERVED_SECONDS`.

Waiting connections are served in order; among source addresses, the one with the fewest served connections is
next, and connections are evicted from the one with the most. If there are too many connections, those quiet
for longest are closed. The header bytes that all connections hold have a budget; if it is exceeded, the
connection that holds most is closed.

This module does no I/O: the owner passes the clock and calls `tick` at `wake_at`.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Protocol

from plimsoll.apiserver.limits import ServerLimits

IDLE_SECONDS = 0.5
MAX_SERVED_SECONDS = 5.0


class UnauthenticatedPeer(Hashable, Protocol):
    """Interface of a connection. Both methods may call back into the accounting."""

    source: str

    def serve(self) -> None:
        """Start TLS and HTTP."""

    def abort(self) -> None:
        """Close at once, without a response."""


class _ServedConnection:
    """Times and buffered header bytes of a connection that is being served."""

    __slots__ = ("active", "buffered", "since")

    def __init__(self, now: float) -> None:
        self.since = self.active = now
        self.buffered = 0

    def evictable_at(self, idle_timeout: float) -> float:
        return min(self.active + idle_timeout, self.since + MAX_SERVED_SECONDS)


class UnauthenticatedConnections:
    """Accounting of connections without valid credentials, from accept until they authenticate or close."""

    def __init__(self, limits: ServerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._quiet: dict[str, dict[UnauthenticatedPeer, None]] = {}
        self._waiting: dict[str, deque[UnauthenticatedPeer]] = {}
        self._served: dict[UnauthenticatedPeer, _ServedConnection] = {}
        self._served_by: Counter[str] = Counter()
        self.quiet = self.waiting = self.buffered = self.dropped = 0

    @property
    def served(self) -> int:
        """Return the number of connections being served."""
        return len(self._served)

    def wake_at(self, lag: float = 0.0) -> float | None:
        """Return the time at which `tick` can evict for a waiting connection; None if none waits.

        After `tick(lag)` that is later than now, because what is overdue with the same lag has been evicted.
        """
        if not self.waiting:
            return None
        idle_timeout = _idle_timeout(lag)
        return min((entry.evictable_at(idle_timeout) for entry in self._served.values()), default=None)

    def connect(self, peer: UnauthenticatedPeer) -> None:
        """Add a new connection; if there are too many, the oldest quiet one is closed, possibly this one."""
        source = peer.source
        self._quiet.setdefault(source, {})[peer] = None
        self.quiet += 1
        if self._count(source) > self._limits.unauthenticated_per_address:
            self._drop_quiet(source)
        elif self.quiet + self.waiting > self._limits.unauthenticated_waiting:
            self._drop_quiet(max(self._quiet, key=lambda known: len(self._quiet[known])))

    def arrive(self, peer: UnauthenticatedPeer) -> None:
        """Serve a connection whose first byte has arrived, or queue it."""
        self._forget_quiet(peer)
        self._waiting.setdefault(peer.source, deque()).append(peer)
        self.waiting += 1
        self.tick()

    def record_buffered(self, peer: UnauthenticatedPeer, size: int) -> None:
        """Record activity of a served connection and the header bytes that it holds; the largest
        connections are closed if the total exceeds the budget.
        """
        entry = self._served.get(peer)
        if entry is None:
            return
        self.buffered += size - entry.buffered
        entry.buffered, entry.active = size, self._clock()
        while self.buffered > self._limits.unauthenticated_bytes:
            self._evict(max(self._served, key=lambda known: self._served[known].buffered))

    def leave(self, peer: UnauthenticatedPeer) -> None:
        """Forget a connection that has authenticated or closed; unknown ones are ignored."""
        source = peer.source
        if peer in self._served:
            self._forget_served(peer)
            self.tick()
        elif peer in self._quiet.get(source, ()):
            self._forget_quiet(peer)
        elif peer in self._waiting.get(source, ()):
            self._waiting[source].remove(peer)
            self._forget_waiting(source)

    def tick(self, lag: float = 0.0) -> None:
        """Serve waiting connections while there are free slots or connections that can be evicted.

        `lag` is how far the server is behind: that time does not count against clients.
        """
        while self.waiting:
            if len(self._served) >= self._limits.unauthenticated:
                victim = self._find_evictable(_idle_timeout(lag))
                if victim is None:
                    return
                self._evict(victim)
                continue
            source = min(self._waiting, key=lambda known: self._served_by[known])
            peer = self._waiting[source].popleft()
            self._forget_waiting(source)
            self._served[peer] = _ServedConnection(self._clock())
            self._served_by[source] += 1
            peer.serve()

    def drop_all(self) -> None:
        """Close every connection; the server is stopping."""
        everyone = [peer for peers in (*self._quiet.values(), *self._waiting.values()) for peer in peers]
        for peer in [*everyone, *self._served]:
            self.dropped += 1
            peer.abort()
        self._quiet, self._waiting, self._served = {}, {}, {}
        self._served_by.clear()
        self.quiet = self.waiting = self.buffered = 0

    def _count(self, source: str) -> int:
        waiting = len(self._quiet.get(source, ())) + len(self._waiting.get(source, ()))
        return waiting + self._served_by[source]

    def _find_evictable(self, idle_timeout: float) -> UnauthenticatedPeer | None:
        """Return the connection to evict: past its time, from the address with the most, the oldest of
        those.
        """
        now = self._clock()
        overdue = [peer for peer, entry in self._served.items() if entry.evictable_at(idle_timeout) <= now]
        return max(overdue, key=lambda peer: self._served_by[peer.source], default=None)

    def _evict(self, peer: UnauthenticatedPeer) -> None:
        self._forget_served(peer)
        self.dropped += 1
        peer.abort()

    def _drop_quiet(self, source: str) -> None:
        peer = next(iter(self._quiet[source]))
        self._forget_quiet(peer)
        self.dropped += 1
        peer.abort()

    def _forget_served(self, peer: UnauthenticatedPeer) -> None:
        self.buffered -= self._served.pop(peer).buffered
        self._served_by[peer.source] -= 1
        if not self._served_by[peer.source]:
            del self._served_by[peer.source]

    def _forget_quiet(self, peer: UnauthenticatedPeer) -> None:
        self.quiet -= 1
        del self._quiet[peer.source][peer]
        if not self._quiet[peer.source]:
            del self._quiet[peer.source]

    def _forget_waiting(self, source: str) -> None:
        self.waiting -= 1
        if not self._waiting[source]:
            del self._waiting[source]


def _idle_timeout(lag: float) -> float:
    return IDLE_SECONDS + 2 * lag


def address_group(address: object) -> str:
    """Return the source that an address counts for: an IPv4 address, or the /64 network of an IPv6
    address.
    """
    host = address[0] if isinstance(address, tuple) and address else ""
    try:
        found = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
