"""Accounting of unauthenticated connections: served, waiting and dropped."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.unauthenticated import (
    IDLE_SECONDS,
    MAX_SERVED_SECONDS,
    UnauthenticatedConnections,
    address_group,
)


class Peer:
    """Connection that records the actions on it."""

    def __init__(self, source: str = "a") -> None:
        self.source = source
        self.served = 0
        self.dropped = 0

    def serve(self) -> None:
        self.served += 1

    def abort(self) -> None:
        self.dropped += 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(served: int = 2, waiting: int = 5, per_address: int = 100, size: int = 1000) -> ServerLimits:
    return ServerLimits(
        unauthenticated=served,
        unauthenticated_waiting=waiting,
        unauthenticated_per_address=per_address,
        unauthenticated_bytes=size,
    )


def start(bounds: ServerLimits | None = None) -> tuple[UnauthenticatedConnections, Clock]:
    clock = Clock()
    return UnauthenticatedConnections(bounds or limits(), clock), clock


def enter(peers: UnauthenticatedConnections, source: str = "a") -> Peer:
    """Open a connection whose first byte arrives at once."""
    peer = Peer(source)
    peers.connect(peer)
    if not peer.dropped:
        peers.arrive(peer)
    return peer


def test_connections_are_served_up_to_the_limit_and_then_wait() -> None:
    peers, _ = start()
    first, second, third, fourth = (enter(peers) for _ in range(4))
    assert [peer.served for peer in (first, second, third, fourth)] == [1, 1, 0, 0]
    peers.leave(first)
    assert (third.served, fourth.served) == (1, 0)
    peers.leave(fourth)  # it waits no more
    peers.leave(second)
    assert (peers.served, peers.waiting, fourth.served) == (1, 0, 0)


def test_idle_clients_are_evicted_for_waiting_ones() -> None:
    peers, clock = start()
    idle, busy = enter(peers), enter(peers)
    clock.now += IDLE_SECONDS
    peers.record_buffered(busy, 10)
    assert peers.wake_at() is None
    waiting = enter(peers)
    assert (idle.dropped, busy.dropped, waiting.served) == (1, 0, 1)


def test_no_client_is_evicted_without_a_waiting_one() -> None:
    peers, clock = start()
    kept = enter(peers)
    clock.now += 1000
    peers.tick()
    assert (peers.served, kept.dropped) == (1, 0)


def test_clients_that_keep_sending_are_evicted_eventually() -> None:
    peers, clock = start(limits(served=1))
    dripping, waiting = enter(peers), enter(peers)
    began = clock.now
    while clock.now < began + MAX_SERVED_SECONDS - 0.1:
        clock.now += 0.1
        peers.record_buffered(dripping, 1)
        peers.tick()
        assert not dripping.dropped
    assert peers.wake_at() == began + MAX_SERVED_SECONDS
    clock.now = began + MAX_SERVED_SECONDS
    peers.tick()
    assert (dripping.dropped, waiting.served) == (1, 1)


def test_a_late_server_does_not_evict_clients() -> None:
    peers, clock = start(limits(served=1))
    served, waiting = enter(peers), enter(peers)
    clock.now += 2 * IDLE_SECONDS
    peers.tick(lag=IDLE_SECONDS)
    assert (served.dropped, waiting.served) == (0, 0)
    clock.now += IDLE_SECONDS
    peers.tick(lag=IDLE_SECONDS)
    assert (served.dropped, waiting.served) == (1, 1)


@given(st.lists(st.floats(0.001, 3.0), min_size=1, max_size=30))
def test_a_late_server_sleeps_between_ticks(lags: list[float]) -> None:
    """Every tick of a real loop is late: that must neither keep it busy nor protect idle clients."""
    peers, clock = start(limits(served=1))
    served, waiting = enter(peers), enter(peers)
    began, previous = clock.now, 0.0
    for lag in lags:
        planned = peers.wake_at(previous)
        assert planned is not None
        assert planned > clock.now
        clock.now = planned + lag
        peers.tick(lag)
        assert served.dropped == waiting.served
        if lag <= previous or clock.now >= began + MAX_SERVED_SECONDS:
            assert served.dropped
        if served.dropped:
            break
        previous = lag


def test_the_address_with_the_fewest_served_comes_first() -> None:
    peers, _ = start(limits(served=2, waiting=10))
    greedy = [enter(peers, "a") for _ in range(4)]
    other = enter(peers, "b")
    peers.leave(greedy[0])
    assert (other.served, greedy[2].served) == (1, 0)
    peers.leave(greedy[1])
    assert greedy[2].served == 1


def test_the_address_with_the_most_served_is_evicted_from() -> None:
    peers, clock = start(limits(served=3))
    modest = enter(peers, "b")
    greedy = [enter(peers, "a") for _ in range(2)]
    clock.now += IDLE_SECONDS
    other = enter(peers, "c")
    assert other.served == 1
    assert [peer.dropped for peer in (modest, *greedy)] == [0, 1, 0]


def test_the_longest_quiet_are_dropped_when_there_are_too_many() -> None:
    peers, _ = start(limits(served=1, waiting=3))
    quiet = [Peer() for _ in range(4)]
    for peer in quiet:
        peers.connect(peer)
    assert [peer.dropped for peer in quiet] == [1, 0, 0, 0]
    assert (peers.quiet, peers.dropped) == (3, 1)


def test_connections_per_address_are_limited() -> None:
    peers, _ = start(limits(served=2, waiting=100, per_address=4))
    mine = [enter(peers, "a") for _ in range(6)]
    assert [peer.dropped for peer in mine] == [0, 0, 0, 0, 1, 1]
    other = enter(peers, "b")
    assert not other.dropped


def test_the_largest_are_dropped_when_the_budget_is_exceeded() -> None:
    peers, _ = start(limits(served=3, size=1000))
    small, large, middle = (enter(peers) for _ in range(3))
    peers.record_buffered(small, 100)
    peers.record_buffered(large, 600)
    peers.record_buffered(middle, 299)
    assert peers.buffered == 999
    peers.record_buffered(small, 102)
    assert [peer.dropped for peer in (small, large, middle)] == [0, 1, 0]
    assert peers.buffered == 401
    peers.record_buffered(large, 10_000)  # gone by now
    assert peers.buffered == 401


def test_all_clients_are_disconnected_at_the_end() -> None:
    peers, _ = start()
    all_of_them = [enter(peers) for _ in range(4)]
    quiet = Peer()
    peers.connect(quiet)
    peers.drop_all()
    assert [peer.dropped for peer in (*all_of_them, quiet)] == [1] * 5
    assert (peers.quiet, peers.waiting, peers.served, peers.buffered) == (0, 0, 0, 0)


class Model:
    """Naive accounting for one address, in plain lists."""

    def __init__(self, bounds: ServerLimits) -> None:
        self.bounds = bounds
        self.quiet: list[Peer] = []
        self.waiting: deque[Peer] = deque()
        self.served: list[tuple[Peer, float]] = []
        #: All that were ever served, and dropped.
        self.begun: set[Peer] = set()
        self.ended: set[Peer] = set()

    def connect(self, peer: Peer) -> None:
        self.quiet.append(peer)
        everyone = len(self.quiet) + len(self.waiting) + len(self.served)
        most = self.bounds.unauthenticated_waiting
        if everyone > self.bounds.unauthenticated_per_address or len(self.quiet) + len(self.waiting) > most:
            self.ended.add(self.quiet.pop(0))

    def arrive(self, peer: Peer, now: float) -> None:
        self.quiet.remove(peer)
        self.waiting.append(peer)
        self.fill(now)

    def fill(self, now: float) -> None:
        while self.waiting:
            overdue = [entry for entry in self.served if entry[1] + IDLE_SECONDS <= now]
            if len(self.served) >= self.bounds.unauthenticated:
                if not overdue:
                    return
                self.served.remove(overdue[0])
                self.ended.add(overdue[0][0])
            self.begun.add(self.waiting[0])
            self.served.append((self.waiting.popleft(), now))

    def leave(self, peer: Peer, now: float) -> None:
        self.served = [entry for entry in self.served if entry[0] is not peer]
        self.quiet = [other for other in self.quiet if other is not peer]
        self.waiting = deque(other for other in self.waiting if other is not peer)
        self.fill(now)


@given(
    st.lists(
        st.tuples(st.sampled_from(["connect", "arrive", "leave", "pass"]), st.integers(0, 30)), max_size=60
    ),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 8),
)
def test_accounting_equals_plain_lists(
    steps: list[tuple[str, int]], served: int, waiting: int, per_address: int
) -> None:
    bounds = limits(served, waiting, per_address)
    peers, clock = start(bounds)
    model = Model(bounds)
    known: list[Peer] = []
    for action, number in steps:
        if action == "connect":
            known.append(Peer())
            peers.connect(known[-1])
            model.connect(known[-1])
        elif action == "pass":
            clock.now += number / 20
            peers.tick()
            model.fill(clock.now)
        elif action == "arrive" and model.quiet:
            peer = model.quiet[number % len(model.quiet)]
            peers.arrive(peer)
            model.arrive(peer, clock.now)
        elif action == "leave" and known:
            peer = known[number % len(known)]
            peers.leave(peer)
            model.leave(peer, clock.now)
        assert [peer for peer in known if peer.served] == [peer for peer in known if peer in model.begun]
        assert [peer for peer in known if peer.dropped] == [peer for peer in known if peer in model.ended]
        assert (peers.quiet, peers.waiting, peers.served) == (
            len(model.quiet),
            len(model.waiting),
            len(model.served),
        )
        assert peers.served <= bounds.unauthenticated
        assert peers.quiet + peers.waiting <= bounds.unauthenticated_waiting


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
        (("nonsense", 1), ""),
    ],
)
def test_sources(address: object, source: str) -> None:
    assert address_group(address) == source
