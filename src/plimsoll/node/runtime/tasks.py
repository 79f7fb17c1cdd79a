"""Background work of a runtime: tasks that run to completion, cgroup changes, and findings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.tasks import cancel_tasks, start_task

_log = logging.getLogger("plimsoll.node.runtime")
T = TypeVar("T")

#: Maximum number of findings kept, the newest.
_FINDINGS_MAX = 200


class RuntimeTasks:
    """Tasks and findings of one runtime, between `start` and `stop`."""

    def __init__(self) -> None:
        self.findings: list[NodeFinding] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start the thread in which changes of cgroups are serialized."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cgroups")

    async def finish(self) -> None:
        """Wait for the tasks for a limited time, then cancel them."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=10)
        await cancel_tasks(self._tasks)

    def stop(self) -> None:
        """Stop the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Complete some work, even if the caller stops waiting."""
        return await asyncio.shield(self.spawn(work))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run some work in the background."""
        return start_task(self._tasks, work)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that changes cgroups, after all earlier ones."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))

    def add_finding(self, severity: FindingSeverity, text: str) -> None:
        """Record and log a problem."""
        self.report((NodeFinding(severity, text),))

    def report(self, findings: Sequence[NodeFinding]) -> None:
        """Record and log problems."""
        for finding in findings:
            _log.warning("%s", finding.what)
        self.findings += findings
        del self.findings[:-_FINDINGS_MAX]
