"""Waiting for a condition that may change whenever an event is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_until(
    wake: asyncio.Event, condition: Callable[[], bool], work: Coroutine[Any, Any, T]
) -> T | None:
    """Return the result of the work, or None if the condition becomes true first."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(wait_until(wake, condition))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def wait_until(wake: asyncio.Event, condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; it is checked each time the event is set.

    Another task may clear the event at once: waiters are woken all the same.
    """
    while not condition():
        await wake.wait()
        await asyncio.sleep(0)
