"""Event loop in virtual time: timeouts and sleeps pass at once, and a slow machine cannot trigger them.

For scenarios whose peers share the loop and talk over Unix sockets or queues: what one writes, another can
read at once, so that time advances only when all of them wait. Peers in other processes, in threads of their
own (gRPC) or behind TCP need real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from tests.waiting import DEADLINE

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose time advances only when nothing is ready, to the time of the next timer."""

    def __init__(self) -> None:
        loop = self
        self.now = 1000.0
        #: Calls in threads; time stands still until they have returned.
        self._in_threads = 0

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                if events := super().select(0):
                    return events
                if loop._in_threads and timeout != 0:
                    events = super().select(DEADLINE)
                    assert events, "a call in a thread does not return"
                    return events
                assert timeout is not None, "everything waits and nothing is due"
                loop.now += max(timeout, 0.0)
                return []

        super().__init__(Selector())

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, function: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        result = super().run_in_executor(executor, function, *arguments)
        self._in_threads += 1
        result.add_done_callback(self._on_return)
        return result

    async def shutdown_default_executor(self, *arguments: Any, **options: Any) -> None:
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*arguments, **options)
        finally:
            self._in_threads -= 1

    def _on_return(self, result: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scenario)


def run_scenario(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test as `run` does: `@run_by(virtual_time.run_scenario)`."""
    return run(scenario())
