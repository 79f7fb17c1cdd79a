"""Asyncio tasks: starting and cancelling them, and running work until a condition or a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


def start_task(
    tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T], name: str = ""
) -> asyncio.Task[T]:
    """Start a task that is held in a set until it is done."""
    task = asyncio.create_task(work, name=name or None)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def log_failure(log: logging.Logger, task: asyncio.Task[Any]) -> None:
    """Log the exception with which a task has ended, if any."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s stopped: %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)


async def cancel_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for them, except the current one; their exceptions are ignored."""
    others = [task for task in tasks if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def close_listener(server: asyncio.Server) -> None:
    """Stop accepting connections; those already accepted reach their protocol before or shortly after this.

    `Server.close` alone lets asyncio lose a connection that it has just accepted: it stays open, unused,
    until it is collected as garbage.
    """
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # the loop of Windows has no readers
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()


@asynccontextmanager
async def at_most(seconds: float | None) -> AsyncIterator[None]:
    """End a block without an error when it takes longer than this."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


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


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the running event loop when SIGINT or SIGTERM arrives."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


async def sleep_to_tick(interval: float) -> None:
    """Sleep until the next multiple of an interval.

    Periodic checks of a process that wait with it wake it up together, not one after the other.
    """
    if interval > 0:
        rest = interval - asyncio.get_running_loop().time() % interval
        await asyncio.sleep(rest if rest > interval / 10 else rest + interval)
    else:
        await asyncio.sleep(0)
