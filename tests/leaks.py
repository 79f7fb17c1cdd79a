"""Tasks that a test leaves running, found by the file of the code that they run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any


def leaked_tasks(directory: str) -> list[asyncio.Task[Any]]:
    """Return the other tasks of the running loop that run code of a directory, such as ``plimsoll/node``."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [task for task in others if any(f"/{directory}/" in path for path in _paths(task))]


def _paths(task: asyncio.Task[Any]) -> Iterator[str]:
    """Yield the file of each coroutine and async generator that a task is in, outermost first."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        code = getattr(awaited, "cr_code", None) or getattr(awaited, "ag_code", None)
        if code is not None:
            yield code.co_filename
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
