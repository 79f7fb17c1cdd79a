"""Shared calls: every caller gets what a call of its own, made after its request, would have returned."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scheduler.process.shared_calls import SharedCalls
from tests.sizes import examples


class NumberedCalls:
    """Calls that return their number; an argument 0 is refused alone, -1 with all others of its call."""

    def __init__(self) -> None:
        self.begun = self.running = 0

    async def call(self, arguments: Sequence[int]) -> Sequence[int | Exception]:
        self.begun += 1
        number = self.begun
        self.running += 1
        assert self.running == 1, "one call at a time"
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        if -1 in arguments:
            raise ValueError("refused together")
        return [number if each else ValueError("refused") for each in arguments]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-1, 3)), max_size=30))
def test_a_result_is_of_a_call_made_after_the_request(requests: list[tuple[int, int]]) -> None:
    async def scenario() -> None:
        calls = NumberedCalls()
        shared = SharedCalls(calls.call)

        refused: list[tuple[int, str]] = []

        async def join(turns: int, argument: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            before = calls.begun
            try:
                number = await shared.join("key", argument)
            except ValueError as error:
                refused.append((argument, str(error)))
                return
            assert argument > 0
            assert number == before + 1 or (number == before + 2 and before > 0)

        await asyncio.gather(*(join(*each) for each in requests))
        assert all(argument == 0 or error == "refused together" for argument, error in refused)
        assert calls.begun <= len(requests)

    asyncio.run(scenario())


async def test_calls_about_different_objects_do_not_wait_for_each_other() -> None:
    answered = asyncio.Event()

    async def call(arguments: Sequence[str]) -> Sequence[str]:
        if "slow" in arguments:
            await answered.wait()
        return arguments

    shared = SharedCalls(call)
    slow = asyncio.create_task(shared.join("a", "slow"))
    assert await shared.join("b", "quick") == "quick"
    assert not slow.done()
    answered.set()
    assert await slow == "slow"


async def test_a_call_without_callers_is_not_made() -> None:
    made: list[Sequence[str]] = []
    answered = asyncio.Event()

    async def call(arguments: Sequence[str]) -> Sequence[str]:
        made.append(arguments)
        await answered.wait()
        return arguments

    shared = SharedCalls(call)
    first = asyncio.create_task(shared.join("a", "first"))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(shared.join("a", "second"))
    await asyncio.sleep(0.01)
    for task in (first, second):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    answered.set()
    assert await shared.join("a", "third") == "third"
    assert made == [["first"], ["third"]]
