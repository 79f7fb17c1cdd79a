"""Tasks: starting and cancelling them, and work that ends on a condition, a timeout or a signal."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from plimsoll.common.tasks import at_most, cancel_tasks, run_until, start_task, stop_on_signals, wait_until
from tests.waiting import DEADLINE


def test_finished_work_has_its_result() -> None:
    async def work() -> int:
        return 1

    async def run() -> tuple[bool, int | None]:
        return await run_until(asyncio.Event().wait(), work())

    assert asyncio.run(run()) == (True, 1)


async def test_failed_work_raises_its_exception() -> None:
    async def work() -> int:
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        await run_until(asyncio.Event().wait(), work())


async def test_a_task_can_cancel_all_tasks_with_itself() -> None:
    async def fail() -> None:
        raise ValueError

    failed, waiting = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    await cancel_tasks((current, failed, waiting))
    assert waiting.cancelled()
    assert failed.done()


async def test_work_is_canceled_when_the_condition_becomes_true() -> None:
    wake, canceled, conditions = asyncio.Event(), asyncio.Event(), [False]

    async def work() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            canceled.set()
            raise
        return 1

    task = asyncio.create_task(run_until(wait_until(wake, lambda: conditions[0]), work()))
    await asyncio.sleep(0)
    wake.set()  # a change of something else
    await asyncio.sleep(0.01)
    assert not task.done()
    conditions[0] = True
    assert await task == (False, None)
    assert canceled.is_set()


async def test_waiters_are_woken_although_the_event_is_cleared_at_once() -> None:
    wake, conditions = asyncio.Event(), [False]
    task = asyncio.create_task(wait_until(wake, lambda: conditions[0]))
    await asyncio.sleep(0)
    conditions[0] = True
    wake.set()
    wake.clear()
    await asyncio.wait_for(task, DEADLINE)


def test_a_block_ends_without_an_error_when_its_time_is_over() -> None:
    async def run() -> list[str]:
        seen = []
        async with at_most(0.01):
            seen.append("begun")
            await asyncio.Event().wait()
            seen.append("never")
        async with at_most(None):
            seen.append("after")
        with pytest.raises(ValueError, match="inside"):
            async with at_most(60):
                raise ValueError("inside")
        return seen

    assert asyncio.run(run()) == ["begun", "after"]


async def test_a_started_task_is_held_until_it_is_done() -> None:
    async def work() -> int:
        return 1

    tasks: set[asyncio.Task[int]] = set()
    task = start_task(tasks, work(), "one")
    assert tasks == {task}
    assert task.get_name() == "one"
    assert await task == 1
    await asyncio.sleep(0)
    assert not tasks


async def test_signals_call_stop() -> None:
    stopped = asyncio.Event()
    stop_on_signals(stopped.set)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(DEADLINE):
        await stopped.wait()
