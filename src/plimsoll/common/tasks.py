"""Asyncio tasks: cancelling them, and running work until a condition ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def cancel_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for them, except the current one; their exceptions are ignored."""
    others = [task for task in tasks if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def run_until(end: Awaitable[object], work: Awaitable[T]) -> tuple[bool, T | None]:
    """Run some work and cancel it when `end` is done first; return whether it is done, and its result."""
    task, ended = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        return (True, task.result()) if task.done() else (False, None)
    finally:
        await cancel_tasks((task, ended))


async def wait_until(wake: asyncio.Event, condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; it is checked each time the event is set.

    Another task may clear the event at once: waiters are woken all the same.
    """
    while not condition():
        await wake.wait()
        await asyncio.sleep(0)
