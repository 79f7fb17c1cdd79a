"""Transport interface between the client and HTTP or an in-process server.

A transport sends one request once: it neither retries nor interprets the response. A failure is an
UnreachableError that states whether the server may have received the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from plimsoll.errors import ConfigError, UnreachableError

CONNECT_SECONDS = 10.0
#: Share of the idle timeout for connecting; the rest is for the first byte of the response.
_CONNECT_SHARE = 0.75
#: Idle connections are closed before servers close them, so that requests rarely fail on a closed one.
KEEP_ALIVE_SECONDS = 30.0


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


def connect_seconds(request: Request) -> float:
    """Return the seconds that a request may take to connect."""
    return min(CONNECT_SECONDS, request.idle_timeout * _CONNECT_SHARE or CONNECT_SECONDS)


def no_connection(what: str, request: Request) -> UnreachableError:
    seconds = min(request.timeout, connect_seconds(request))
    return UnreachableError(f"{what}: no connection within {seconds:g} s", sent=False, reason="Timeout")


def untrusted_error(base: str, origin: str, problem: object) -> ConfigError:
    """Return the error of a server whose certificate is not trusted, with its fix."""
    fix = "set the certificate-authority that signed it"
    if "mismatch" in str(problem):
        fix = "use an address that is in the certificate, or set tls-server-name to one"
    where = f" ({origin})" if origin else ""
    return ConfigError(f"{base}: the server's certificate is not trusted: {problem}; {fix}{where}")
