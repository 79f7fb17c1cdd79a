"""Tests of the server's limits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.limits import ServerLimits, WatchLimiter
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import BOB

EVE = User("eve")


def test_default_limits_are_those_of_kubernetes() -> None:
    limits = ServerLimits()
    assert (limits.body, limits.in_flight) == (3 * 1024 * 1024, 400 + 200)


def test_watches_are_bounded_for_each_and_for_all() -> None:
    watches = WatchLimiter(ServerLimits(watches=5, watches_per_user=3))
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(watches.acquire(BOB))
        with pytest.raises(ApiError) as caught:
            watches.acquire(BOB)
        assert (caught.value.code, caught.value.headers) == (429, {"Retry-After": "1"})
        for _ in range(2):
            stack.enter_context(watches.acquire(EVE))
        with pytest.raises(ApiError):
            watches.acquire(EVE)
        assert watches.open == 5
    assert watches.open == 0
