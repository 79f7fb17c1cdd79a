"""Transport interface between the client and HTTP or an in-process server.

A transport sends one request once: it neither retries nor interprets the response. A failure is an
UnreachableError that states whether the server may have received the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol


class Request(NamedTuple):
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    #: Seconds for the complete response; for a stream, the idle timeout.
    timeout: float = 30.0
    #: Seconds without data, including the time to connect; 0: only `timeout` applies.
    idle_timeout: float = 0.0
    #: Called right before the request is sent; an exception prevents that.
    guard: Callable[[], None] | None = None


class Reply(NamedTuple):
    """Complete response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ResponseStream(NamedTuple):
    """Response that is received in parts."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    async def send(self, request: Request) -> Reply: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[ResponseStream]: ...

    async def renew(self) -> bool:
        """Renew credentials after a 401; return whether a retry makes sense."""
        ...

    async def close(self) -> None: ...
