"""HTTP through a proxy, or with credentials in the URL: the transport of aiohttp.

Imported only if a configuration asks for it: most processes talk to their API server directly, and aiohttp
takes ten megabytes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import yarl

from plimsoll.client.config import ClientConfig
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
from plimsoll.errors import ConfigError, UnreachableError

_FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ProxiedSession:
    """Session of aiohttp with one server; it starts with the first request."""

    def __init__(self, config: ClientConfig, base: str, credentials: ClientCredentials) -> None:
        self._config, self._base, self._credentials = config, base, credentials
        self._session: aiohttp.ClientSession | None = None
        self._sockets = _SessionSockets()

    async def send(self, request: Request, compressed: bool) -> Reply:
        timeout = aiohttp.ClientTimeout(
            total=request.timeout,
            sock_connect=connect_seconds(request),
            sock_read=request.idle_timeout or None,
        )
        try:
            async with await self._open(request, timeout, compressed) as response:
                body = await response.read()
                return Reply(response.status, _headers(response), body)
        except _FAILURES as error:
            raise self._failure(request, error) from None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=request.timeout)
        try:
            response = await self._open(request, timeout, False)
        except _FAILURES as error:
            raise self._failure(request, error) from None
        try:
            yield ResponseStream(response.status, _headers(response), self._chunks(request, response))
        finally:
            _drop(response)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await self._sockets.close()

    async def _open(
        self, request: Request, timeout: aiohttp.ClientTimeout, compressed: bool | None
    ) -> aiohttp.ClientResponse:
        url = self._base + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        headers = [*request.headers.items(), *await self._credentials.headers()]
        headers.append(("Accept-Encoding", "gzip" if compressed else "identity"))
        options: dict[str, Any] = {}
        if url.startswith("https:"):
            options["ssl"] = await self._credentials.tls()
            if self._config.tls_server_name:
                options["server_hostname"] = self._config.tls_server_name
        if self._config.proxy:
            options["proxy"] = self._config.proxy
        if request.guard is not None:
            request.guard()
        # Up to the head of the response; aiohttp enforces the idle timeout of streams.
        async with asyncio.timeout(request.idle_timeout or None):
            return await self._begin().request(
                request.method,
                yarl.URL(url, encoded=True),
                data=request.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **options,
            )

    def _begin(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, socket_factory=self._sockets.create
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=1 << 20
            )
            # aiohttp would repeat PUT and DELETE when a kept connection breaks, but only the client knows
            # whether that is safe. There is no public option; a test checks that this one works.
            if hasattr(self._session, "_retry_connection"):
                self._session._retry_connection = False
        return self._session

    async def _chunks(self, request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except _FAILURES as error:
            raise self._failure(request, error) from None

    def _failure(self, request: Request, error: BaseException) -> Exception:
        what = f"{request.method} {self._base}{request.path}"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            problem = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            return untrusted_error(self._base, self._config.origin, problem)
        if isinstance(error, aiohttp.InvalidURL):
            where = f" ({self._config.origin})" if self._config.origin else ""
            return ConfigError(f"{self._base}: not a valid URL{where}")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return UnreachableError(f"{what}: the proxy returned {error.status} {error.message}", sent=False)
        if isinstance(error, aiohttp.ClientSSLError):
            problem = getattr(error.os_error, "reason", None) or error.os_error
            return UnreachableError(f"{what}: no TLS connection: {problem}", sent=False)
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.errno or 0
            problem = os.strerror(number) if number > 0 else error.strerror or error.os_error
            return UnreachableError(f"{what}: {problem}", sent=False)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return no_connection(what, request)
        if isinstance(error, asyncio.TimeoutError):
            seconds = request.idle_timeout or request.timeout
            return UnreachableError(f"{what}: no response within {seconds:g} s", sent=True, reason="Timeout")
        return UnreachableError(f"{what}: the connection broke: {error or type(error).__name__}", sent=True)


class _SessionSockets:
    """Sockets of a session, to close those that aiohttp no longer tracks.

    When a request is cancelled right after the TLS handshake, asyncio starts a TLS shutdown, which waits for
    the server and would outlive the session.
    """

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def create(self, address: tuple[Any, ...]) -> socket.socket:
        """Create a socket for an entry of getaddrinfo; see `TCPConnector`."""
        family, kind, protocol, *_ = address
        created = socket.socket(family, kind, protocol)
        self._sockets.add(created)
        return created

    async def close(self) -> None:
        """Shut down connections that are still open; the event loop then closes them."""
        for each in self._list_open():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(10):
            if not self._list_open():
                break
            await asyncio.sleep(0)

    def _list_open(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]


def _drop(response: aiohttp.ClientResponse) -> None:
    """Close a stream before its end, and its connection with it.

    A TLS shutdown would outlive the session.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
