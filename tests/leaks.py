"""Leaks of tests: running tasks, by the file of their code, and open connections."""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
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
            self._abort_tls_shutdowns()
            for transport in self._open_transports():
                connection = transport.get_extra_info("socket")
                if connection is not None and connection.fileno() != -1:
                    self.left_open.append(f"{connection!r} of {transport.get_protocol()!r}")
        super().close()

    def _open_transports(self) -> list[asyncio.Transport]:
        return list(self._transports.values())  # type: ignore[attr-defined]

    def _abort_tls_shutdowns(self) -> None:
        """Abort connections that were closed and wait for the peer's end of the TLS session.

        `asyncio` closes a connection this way if it is cancelled right after its handshake; nothing else can
        wait for it.
        """
        ending = [each for each in self._open_transports() if _is_shutting_down(each.get_protocol())]
        for transport in ending:
            transport.abort()
        if ending:
            self.call_soon(self.stop)
            self.run_forever()


def _is_shutting_down(protocol: asyncio.BaseProtocol) -> bool:
    return isinstance(protocol, SSLProtocol) and bool(
        protocol._app_transport and protocol._app_transport.is_closing()
    )


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
