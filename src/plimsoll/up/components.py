"""Tasks of the components of a cluster: they fail together and stop in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import ConfigError


class RunningComponents:
    """Components of one cluster that run on the current event loop."""

    def __init__(self, *, ready_seconds: float, stop_seconds: float) -> None:
        #: Set when the cluster is to stop.
        self.stopping = asyncio.Event()
        self._ready_seconds, self._stop_seconds = ready_seconds, stop_seconds
        self._tasks: list[tuple[asyncio.Task[None], Callable[[], None]]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
        """Run a component; `stop` requests its end."""
        self._tasks.append((asyncio.create_task(work, name=name), stop))

    async def wait_ready(self, ready: Coroutine[Any, Any, None]) -> None:
        """Wait for a component to be ready, or for any component to fail."""
        waiting = asyncio.ensure_future(ready)
        try:
            await self._wait_for_any(waiting)
            await waiting
        except TimeoutError:
            raise ConfigError(f"not ready after {self._ready_seconds:g} s; see the log") from None
        finally:
            await cancel_tasks((waiting,))

    async def wait(self) -> None:
        """Wait until the cluster is to stop, or a component fails."""
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            await self._wait_for_any(stopped)
        finally:
            await cancel_tasks((stopped,))

    async def stop(self) -> None:
        """Stop the components, the last one first: drivers before their nodes, nodes before the scheduler."""
        for task, stop in reversed(self._tasks):
            stop()
            await asyncio.wait((task,), timeout=self._stop_seconds)
            await cancel_tasks((task,))
        self._tasks.clear()

    async def _wait_for_any(self, waiting: asyncio.Future[Any]) -> None:
        """Wait for a future or the end of a component, which is a failure unless the cluster stops."""
        await asyncio.wait((waiting, *(task for task, _ in self._tasks)), return_when=asyncio.FIRST_COMPLETED)
        for task, _ in self._tasks:
            if task.done():
                task.result()
                if not self.stopping.is_set():
                    raise ConfigError(f"the {task.get_name()} exited unexpectedly; see the log")
