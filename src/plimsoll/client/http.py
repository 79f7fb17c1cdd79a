"""HTTP transport: persistent connections, TLS and credentials.

Guarantees: a bounded number of requests in flight (not counting watches); a response in time or an
UnreachableError that states whether the server may have received the request; certificates are read again
when their files change; only exceptions of `errors.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from plimsoll.client.config import ClientConfig, check_server
from plimsoll.client.connection_pool import Connections, write_request
from plimsoll.client.credentials import ClientCredentials
from plimsoll.client.transport import (
    CONNECT_SECONDS,
    KEEP_ALIVE_SECONDS,
    Reply,
    Request,
    ResponseStream,
    connect_seconds,
    no_connection,
    untrusted_error,
)
from plimsoll.errors import InputError, UnreachableError

if TYPE_CHECKING:
    from plimsoll.client.proxied_session import ProxiedSession


class HttpTransport:
    """Transport to one server; the first request opens the first connection."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._base = check_server(config.server, config.origin)
        self._credentials = ClientCredentials(config)
        self._compressed = config.compression
        if self._compressed is None:
            self._compressed = not is_loopback(urlsplit(self._base).hostname or "")
        self._slots = asyncio.Semaphore(config.in_flight)
        self._address = urlsplit(self._base)
        default = 443 if self._address.scheme == "https" else 80
        self._connections = Connections(
            self._address.hostname or "",
            self._address.port or default,
            keep=KEEP_ALIVE_SECONDS,
            server_name=config.tls_server_name,
        )
        self._proxied: ProxiedSession | None = None
        if config.proxy or "@" in self._address.netloc:
            from plimsoll.client.proxied_session import ProxiedSession  # noqa: PLC0415

            self._proxied = ProxiedSession(config, self._base, self._credentials)

    async def send(self, request: Request) -> Reply:
        # Responses to reads may be long and worth compressing; those to writes are short.
        compressed = bool(self._compressed) and request.method == "GET"
        async with self._slots:
            if self._proxied is not None:
                return await self._proxied.send(request, compressed)
            wire = await self._encode(request, compressed)
            context = await self._tls()
            what = self._what(request)
            with self._failures(request):
                return await self._connections.send(
                    wire,
                    request.timeout,
                    connect_seconds(request),
                    context,
                    what,
                    request.idle_timeout,
                    request.guard,
                )

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        if self._proxied is not None:
            async with self._proxied.stream(request) as proxied:
                yield proxied
            return
        wire = await self._encode(request, False)
        context = await self._tls()
        with self._failures(request):
            stream = await self._connections.stream(
                wire, request.timeout, CONNECT_SECONDS, context, self._what(request), request.guard
            )
        try:
            yield ResponseStream(stream.status, stream.headers, stream.chunks())
        finally:
            self._connections.end(stream)

    async def renew(self) -> bool:
        return await self._credentials.renew()

    async def close(self) -> None:
        await self._connections.close()
        if self._proxied is not None:
            await self._proxied.close()

    async def _encode(self, request: Request, compressed: bool) -> bytes:
        target = self._address.path + request.path
        if request.query:
            target += "?" + urlencode(request.query)
        host = self._address.netloc
        headers = [("Host", host), *request.headers.items(), *await self._credentials.headers()]
        headers.append(("Accept-Encoding", "gzip" if compressed else "identity"))
        try:
            return write_request(request.method, target, headers, request.body)
        except ValueError:
            raise InputError(f"{request.method} {request.path[:200]!r}: not a request") from None

    async def _tls(self) -> ssl.SSLContext | None:
        return await self._credentials.tls() if self._address.scheme == "https" else None

    def _what(self, request: Request) -> str:
        return f"{request.method} {self._base}{request.path}"

    @contextmanager
    def _failures(self, request: Request) -> Iterator[None]:
        """Turn failures to connect into errors with their reasons."""
        what = self._what(request)
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise untrusted_error(self._base, self._config.origin, error.verify_message) from None
        except ssl.SSLError as error:
            raise UnreachableError(
                f"{what}: no TLS connection: {error.reason or error}", sent=False
            ) from None
        except TimeoutError:
            raise no_connection(what, request) from None
        except OSError as error:
            number = error.errno or 0
            problem = os.strerror(number) if number > 0 else error.strerror or error
            raise UnreachableError(f"{what}: {problem}", sent=False) from None


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
