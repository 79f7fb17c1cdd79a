"""Queue sets: limits, rejection, and fairness between flows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.flowcontrol.configuration import PriorityLevel
from plimsoll.apiserver.flowcontrol.queue_set import QueueSet, SeatRequest


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queue_level(queues: int = 64, hand: int = 6, length: int = 50) -> PriorityLevel:
    return PriorityLevel("level", "u", False, 10, 0, None, queues, hand, length)


REJECTING = PriorityLevel("level", "u", False, 10, 0)
EXEMPT = PriorityLevel("exempt", "u", True, 0, 0)


def make(level: PriorityLevel, limit: int, clock: Callable[[], float] | None = None) -> QueueSet:
    queue_set = QueueSet(level, clock or Clock())
    queue_set.set_limit(limit)
    return queue_set


def is_running(request: SeatRequest | None) -> bool:
    return request is not None and request.started is not None


async def test_a_rejecting_level_rejects_beyond_its_limit() -> None:
    queue_set = make(REJECTING, 2)
    first, second = (queue_set.start("s", "a", 1) for _ in range(2))
    assert is_running(first)
    assert is_running(second)
    assert queue_set.start("s", "a", 1) is None
    assert first is not None
    queue_set.finish(first)
    assert is_running(queue_set.start("s", "a", 1))


async def test_an_exempt_level_has_no_limit() -> None:
    queue_set = make(EXEMPT, 0)
    assert all(is_running(queue_set.start("s", "a", 1)) for _ in range(1000))


async def test_a_queue_is_limited() -> None:
    queue_set = make(queue_level(queues=2, hand=1, length=3), 1)
    started = [queue_set.start("s", "a", 1) for _ in range(5)]
    assert [request is not None for request in started] == [True] * 4 + [False]
    assert [is_running(request) for request in started] == [True] + [False] * 4
    assert (queue_set.seats_in_use, queue_set.seats_waiting) == (1, 3)


async def test_requests_wider_than_the_level_run_alone() -> None:
    queue_set = make(queue_level(), 2)
    small, wide = queue_set.start("s", "a", 1), queue_set.start("s", "b", 5)
    assert is_running(small)
    assert not is_running(wide)
    assert small is not None
    assert wide is not None
    queue_set.finish(small)
    assert is_running(wide)
    other = queue_set.start("s", "c", 1)
    assert not is_running(other)
    queue_set.finish(wide)
    assert is_running(other)


async def test_a_flow_with_few_requests_does_not_wait_for_one_with_many() -> None:
    clock = Clock()
    queue_set = make(queue_level(queues=128, length=500), 4, clock)
    flood = [queue_set.start("s", "eve", 1) for _ in range(400)]
    running = [request for request in flood if is_running(request)]
    assert len(running) == 4
    bob = queue_set.start("s", "bob", 1)
    assert not is_running(bob)
    finished = 0
    while not is_running(bob):
        clock.now += 0.003
        assert running[finished] is not None
        queue_set.finish(running[finished])  # type: ignore[arg-type]
        finished += 1
        running = [request for request in flood if is_running(request)]
    assert finished <= 7  # eve has six queues: one of each, at most, comes before bob's


async def test_flows_that_always_wait_get_equal_shares() -> None:
    clock = Clock()
    queue_set = make(queue_level(queues=128, hand=1, length=500), 3, clock)
    flows = ("a", "b", "c", "d")
    running: list[tuple[str, SeatRequest]] = []
    waiting: list[tuple[str, SeatRequest]] = []
    for flow in flows:
        for _ in range(300 if flow == "a" else 150):
            request = queue_set.start("s", flow, 1)
            assert request is not None
            (running if is_running(request) else waiting).append((flow, request))
    served: Counter[str] = Counter()
    for _ in range(200):
        clock.now += 0.002
        flow, request = running.pop(0)
        queue_set.finish(request)
        served[flow] += 1
        begun = [pair for pair in waiting if is_running(pair[1])]
        waiting = [pair for pair in waiting if not is_running(pair[1])]
        running += begun
    assert max(served.values()) - min(served.values()) <= 6, served


async def test_a_cancelled_request_leaves_its_queue() -> None:
    queue_set = make(queue_level(), 1)
    first, second, third = (queue_set.start("s", flow, 1) for flow in "abc")
    assert first is not None
    assert second is not None
    assert third is not None
    queue_set.cancel(second)
    queue_set.finish(first)
    assert is_running(third)
    assert not is_running(second)
    assert (queue_set.seats_in_use, queue_set.seats_waiting) == (1, 0)


async def test_a_request_that_is_cancelled_when_it_got_its_seat_returns_it() -> None:
    queue_set = make(queue_level(), 1)
    first, second = (queue_set.start("s", flow, 1) for flow in "ab")
    assert first is not None
    assert second is not None
    queue_set.finish(first)
    assert second.granted is not None
    assert second.granted.done()
    queue_set.cancel(second)
    assert queue_set.seats_in_use == 0


@pytest.mark.parametrize("level", [queue_level(2, 1), REJECTING])
async def test_waiting_requests_survive_a_change_of_the_level(level: PriorityLevel) -> None:
    queue_set = make(queue_level(), 1)
    first, *others = (queue_set.start("s", str(number), 1) for number in range(20))
    queue_set.configure(level)
    assert first is not None
    queue_set.finish(first)
    queue_set.set_limit(100)
    assert all(map(is_running, others))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "finish", "cancel", "limit"]), st.integers(0, 5), st.integers(1, 4)
        ),
        max_size=60,
    )
)
def test_counts_are_those_of_a_plain_list(steps: list[tuple[str, int, int]]) -> None:
    """Compare seats in use and waiting with a plain list of requests, and check that
    requests wait only while others run.
    """

    async def play() -> None:
        clock = Clock()
        queue_set = make(queue_level(queues=4, hand=2, length=3), 5, clock)
        alive: list[SeatRequest] = []
        for action, number, amount in steps:
            clock.now += 0.001 * number
            if action == "start":
                request = queue_set.start(f"s{number % 2}", f"f{number}", amount)
                if request is not None:
                    alive.append(request)
            elif action == "limit":
                queue_set.set_limit(amount * 2)
            elif alive:
                request = alive[number % len(alive)]
                if action == "finish" and request.started is not None:
                    queue_set.finish(request)
                    alive.remove(request)
                elif action == "cancel":
                    queue_set.cancel(request)
                    alive.remove(request)
            running = [request for request in alive if request.started is not None]
            waiting = [request for request in alive if request.started is None]
            assert queue_set.seats_in_use == sum(request.seats for request in running)
            assert queue_set.seats_waiting == sum(request.seats for request in waiting)
            assert sum(queue_set.executing.values()) == len(running)
            assert sum(queue_set.waiting.values()) == len(waiting)
            if waiting:  # at least one seat is in use, else the level would be stuck
                assert running
        for request in [request for request in alive if request.started is None]:
            queue_set.cancel(request)
            alive.remove(request)
        for request in alive:
            queue_set.finish(request)
        assert (queue_set.seats_in_use, queue_set.seats_waiting, queue_set.queues) == (0, 0, {})

    asyncio.run(play())
