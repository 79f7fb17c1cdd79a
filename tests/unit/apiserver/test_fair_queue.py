"""Fair queue of users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from plimsoll.apiserver.fair_queue import FairQueue
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.waiting import DEADLINE


def run_scenario(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario()

    asyncio.run(run())


async def step() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@run_by(run_scenario)
async def test_one_user_leaves_seats_for_others() -> None:
    queue = FairQueue(4, per_user=2, waiting=10, waiting_per_user=3)
    greedy = [asyncio.create_task(queue.acquire("greedy", 10)) for _ in range(4)]
    await step()
    assert [task.done() for task in greedy] == [True, True, False, False]
    await queue.acquire("other", 10)
    assert (queue.running, queue.waiting) == (3, 2)
    queue.release("greedy")
    await step()
    assert [task.done() for task in greedy] == [True, True, True, False]
    greedy[3].cancel()


@run_by(run_scenario)
async def test_users_take_turns() -> None:
    queue = FairQueue(1, per_user=1, waiting=10, waiting_per_user=5)
    order: list[str] = []

    async def work(user: str) -> None:
        await queue.acquire(user, 10)
        order.append(user)
        await step()
        queue.release(user)

    await queue.acquire("a", 10)
    tasks = [asyncio.create_task(work(user)) for user in ("a", "a", "a", "b", "c", "b")]
    await step()
    queue.release("a")
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "a", "b", "a"]
    assert (queue.running, queue.waiting) == (0, 0)


@run_by(run_scenario)
async def test_too_many_are_refused_with_retry_after() -> None:
    queue = FairQueue(1, per_user=1, waiting=3, waiting_per_user=2)
    await queue.acquire("a", 10)
    tasks = [asyncio.create_task(queue.acquire("a", 10)) for _ in range(2)]
    await step()
    with pytest.raises(ApiError) as refusal:
        await queue.acquire("a", 10)
    assert refusal.value.code == 429
    assert "Retry-After" in refusal.value.headers
    tasks.append(asyncio.create_task(queue.acquire("b", 10)))
    await step()
    with pytest.raises(ApiError):
        await queue.acquire("c", 10)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert queue.waiting == 0
    queue.release("a")
    assert queue.running == 0


@run_by(run_scenario)
async def test_every_waiter_times_out() -> None:
    queue = FairQueue(1, per_user=1, waiting=3, waiting_per_user=2)
    await queue.acquire("a", 10)
    with pytest.raises(ApiError) as refusal:
        await queue.acquire("b", 0.01)
    assert refusal.value.code == 429
    assert (queue.running, queue.waiting) == (1, 0)


@run_by(run_scenario)
async def test_a_seat_given_to_a_cancelled_request_is_returned() -> None:
    queue = FairQueue(1, per_user=1, waiting=3, waiting_per_user=2)
    await queue.acquire("a", 10)
    task = asyncio.create_task(queue.acquire("b", 10))
    await step()
    queue.release("a")  # the place is b's now, which has not noticed yet
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await queue.acquire("c", 10)
    assert queue.running == 1
