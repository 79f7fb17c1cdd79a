"""Tests of the server's limits."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.users import ADMIN, ANONYMOUS, CONTROLLERS, SCHEDULER, User, node_user
from plimsoll.apiserver.limits import ConcurrencyLimiter, ServerLimits, WatchLimiter, is_system_user
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import BOB

EVE = User("eve")


def enter(admission: ConcurrencyLimiter, stack: ExitStack, user: User, method: str, times: int) -> int:
    """Take seats until there is none; return their number."""
    for number in range(times):
        try:
            stack.enter_context(admission.acquire(user, method))
        except ApiError as error:
            if error.code != 429:
                raise
            return number
    return times


def test_default_limits_are_those_of_kubernetes() -> None:
    limits = ServerLimits()
    assert (limits.body, limits.reads_in_flight, limits.writes_in_flight) == (3 * 1024 * 1024, 400, 200)


def test_one_user_takes_its_share_and_the_system_always_gets_in() -> None:
    admission = ConcurrencyLimiter(
        ServerLimits(reads_in_flight=20, writes_in_flight=10, share=50, reserve=10)
    )
    with ExitStack() as stack:
        assert enter(admission, stack, BOB, "POST", 20) == 5
        assert enter(admission, stack, EVE, "PUT", 20) == 4
        assert enter(admission, stack, ANONYMOUS, "PATCH", 20) == 0
        assert enter(admission, stack, SCHEDULER, "DELETE", 20) == 1
        assert enter(admission, stack, ADMIN, "POST", 1) == 0
        assert enter(admission, stack, BOB, "GET", 20) == 10
        assert admission.in_flight == (10, 10)
    assert admission.in_flight == (0, 0)
    assert not admission._writes._by_user


def test_refusals_have_retry_after() -> None:
    admission = ConcurrencyLimiter(ServerLimits(writes_in_flight=1, reserve=0))
    with admission.acquire(BOB, "POST"), pytest.raises(ApiError) as caught:
        admission.acquire(EVE, "POST")
    assert caught.value.code == 429
    assert caught.value.headers == {"Retry-After": "1"}


def test_seats_are_returned_on_errors() -> None:
    admission = ConcurrencyLimiter(ServerLimits())

    with suppress(TimeoutError), admission.acquire(BOB, "POST"):
        assert admission.in_flight == (0, 1)
        raise TimeoutError
    assert admission.in_flight == (0, 0)


def test_watches_are_bounded_for_each_and_for_all() -> None:
    watches = WatchLimiter(ServerLimits(watches=5, watches_per_user=3))
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(watches.acquire(BOB))
        with pytest.raises(ApiError):
            watches.acquire(BOB)
        for _ in range(2):
            stack.enter_context(watches.acquire(EVE))
        with pytest.raises(ApiError):
            watches.acquire(EVE)
        assert watches.open == 5
    assert watches.open == 0


def test_system_users() -> None:
    assert all(map(is_system_user, (ADMIN, CONTROLLERS, SCHEDULER, node_user("n"))))
    assert not any(map(is_system_user, (BOB, ANONYMOUS, User("system:node:n"))))


@given(st.lists(st.tuples(st.sampled_from([BOB, EVE, SCHEDULER]), st.booleans()), max_size=40))
def test_seats_are_counted_exactly(steps: list[tuple[User, bool]]) -> None:
    """Compare with a plain list of requests in progress."""
    admission = ConcurrencyLimiter(ServerLimits(writes_in_flight=10, share=50, reserve=20))
    inside: list[tuple[User, ExitStack]] = []
    for user, comes in steps:
        if comes:
            stack = ExitStack()
            got_in = enter(admission, stack, user, "POST", 1) == 1
            held = sum(other is user for other, _ in inside)
            fits = len(inside) < 10 if user is SCHEDULER else len(inside) < 8 and held < 5
            assert got_in == fits
            if got_in:
                inside.append((user, stack))
        elif inside:
            inside.pop(0)[1].close()
        assert admission.in_flight == (0, len(inside))
