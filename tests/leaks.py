"""Leaks of tests: running tasks, by the file of their code, and open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar


class CheckedEventLoop(asyncio.SelectorEventLoop):
    """Event loop that records the connections that are open when it is closed.

    Otherwise only the garbage collector finds them, during any later test.
    """

    #: Descriptions of the connections of all loops so far.
    left_open: ClassVar[list[str]] = []

    def close(self) -> None:
        if not self.is_closed():
            for transport in list(self._transports.values()):  # type: ignore[attr-defined]
                connection = transport.get_extra_info("socket")
                if connection is not None and connection.fileno() != -1:
                    self.left_open.append(f"{connection!r} of {transport.get_protocol()!r}")
        super().close()


class CheckedEventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Policy that makes all loops checked ones."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return CheckedEventLoop()


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
