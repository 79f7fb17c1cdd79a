"""Calls about objects that many bindings share: one at a time, each for all that wait for it.

The pods of a claim with 256 consumers are bound at the same time. Written by each of them, the claim would be
written 256 times, every time against the writes of all others. Here one task per object makes the calls, with
the arguments of all bindings that have asked meanwhile. Who asks during a call waits for the next one, so
that a result is never older than the request. Each binding gets the outcome of its call, an error included,
as if it had made the call alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from plimsoll.common.tasks import start_task

A = TypeVar("A")
R = TypeVar("R")


class SharedCalls(Generic[A, R]):
    """Callers of one method, by the key of its object."""

    def __init__(self, call: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]]) -> None:
        """Create shared calls of a method that returns a result or an error for each of its arguments."""
        self._call = call
        self._waiting: dict[str, list[tuple[A, asyncio.Future[R]]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def join(self, key: str, argument: A) -> R:
        """Take part in the next call about an object; return its result for this argument."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._waiting[key] = []
            start_task(self._tasks, self._run(key))
        self._waiting[key].append((argument, future))
        return await future

    async def _run(self, key: str) -> None:
        try:
            while waiting := [each for each in self._waiting[key] if not each[1].done()]:
                self._waiting[key] = []
                arguments = [argument for argument, _ in waiting]
                results: Sequence[R | Exception]
                try:
                    results = await self._call(arguments)
                except Exception as error:
                    results = [error] * len(arguments)
                for (_, future), result in zip(waiting, results, strict=True):
                    if future.done():
                        continue  # the binding was cancelled
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            del self._waiting[key]
