"""HTTP transport: persistent connections, TLS and credentials.

Guarantees: a bounded number of requests in flight (not counting watches); a response in time or an
UnreachableError that states whether the server may have received the request; certificates are read again
when their files change; only exceptions of `errors.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

import aiohttp
import yarl

from plimsoll.client.config import ClientConfig, check_server
from plimsoll.client.connection_pool import Connections, write_request
from plimsoll.client.credentials import ClientCredentials
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import ConfigError, InputError, UnreachableError

_CONNECT_SECONDS = 10.0
#: Share of the idle timeout for connecting; the rest is for the first byte of the response.
_CONNECT_SHARE = 0.75
#: Idle connections are closed before servers close them, so that requests rarely fail on a closed one.
_KEEP_ALIVE_SECONDS = 30.0
_FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class HttpTransport:
    """Transport to one server; the session starts with the first request."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._base = check_server(config.server, config.origin)
        self._credentials = ClientCredentials(config)
        self._compressed = config.compression
        if self._compressed is None:
            self._compressed = not is_loopback(urlsplit(self._base).hostname or "")
        self._session: aiohttp.ClientSession | None = None
        self._sockets = _SessionSockets()
        self._slots = asyncio.Semaphore(config.in_flight)
        self._address = urlsplit(self._base)
        self._connections: Connections | None = None
        if not config.proxy and "@" not in self._address.netloc:
            default = 443 if self._address.scheme == "https" else 80
            self._connections = Connections(
                self._address.hostname or "",
                self._address.port or default,
                keep=_KEEP_ALIVE_SECONDS,
                server_name=config.tls_server_name,
            )

    async def send(self, request: Request) -> Reply:
        # Responses to reads may be long and worth compressing; those to writes are short.
        if self._connections is not None and not (self._compressed and request.method == "GET"):
            async with self._slots:
                return await self._exchange(self._connections, request)
        timeout = aiohttp.ClientTimeout(
            total=request.timeout,
            sock_connect=_connect_seconds(request),
            sock_read=request.idle_timeout or None,
        )
        async with self._slots:
            try:
                async with await self._open(request, timeout, self._compressed) as response:
                    body = await response.read()
                    return Reply(response.status, _headers(response), body)
            except _FAILURES as error:
                raise self._failure(request, error) from None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=request.timeout)
        try:
            response = await self._open(request, timeout, False)
        except _FAILURES as error:
            raise self._failure(request, error) from None
        try:
            yield ResponseStream(response.status, _headers(response), self._chunks(request, response))
        finally:
            _drop(response)

    async def renew(self) -> bool:
        return await self._credentials.renew()

    async def _exchange(self, connections: Connections, request: Request) -> Reply:
        target = self._address.path + request.path
        if request.query:
            target += "?" + urlencode(request.query)
        host = self._address.netloc
        headers = [("Host", host), *request.headers.items(), *await self._credentials.headers()]
        headers.append(("Accept-Encoding", "identity"))
        context = await self._credentials.tls() if self._address.scheme == "https" else None
        try:
            wire = write_request(request.method, target, headers, request.body)
        except ValueError:
            raise InputError(f"{request.method} {request.path[:200]!r}: not a request") from None
        what = f"{request.method} {self._base}{request.path}"
        try:
            return await connections.send(
                wire,
                request.timeout,
                _connect_seconds(request),
                context,
                what,
                request.idle_timeout,
                request.guard,
            )
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted_error(error.verify_message) from None
        except ssl.SSLError as error:
            raise UnreachableError(
                f"{what}: no TLS connection: {error.reason or error}", sent=False
            ) from None
        except TimeoutError:
            raise _no_connection(what, request) from None
        except OSError as error:
            number = error.errno or 0
            problem = os.strerror(number) if number > 0 else error.strerror or error
            raise UnreachableError(f"{what}: {problem}", sent=False) from None

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()
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
                limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, socket_factory=self._sockets.create
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
            return self._untrusted_error(
                getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            )
        if isinstance(error, aiohttp.InvalidURL):
            return ConfigError(f"{self._base}: not a valid URL{self._where()}")
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
            return _no_connection(what, request)
        if isinstance(error, asyncio.TimeoutError):
            seconds = request.idle_timeout or request.timeout
            return UnreachableError(f"{what}: no response within {seconds:g} s", sent=True, reason="Timeout")
        return UnreachableError(f"{what}: the connection broke: {error or type(error).__name__}", sent=True)

    def _untrusted_error(self, problem: object) -> ConfigError:
        fix = "set the certificate-authority that signed it"
        if "mismatch" in str(problem):
            fix = "use an address that is in the certificate, or set tls-server-name to one"
        return ConfigError(
            f"{self._base}: the server's certificate is not trusted: {problem}; {fix}{self._where()}"
        )

    def _where(self) -> str:
        return f" ({self._config.origin})" if self._config.origin else ""


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


def _connect_seconds(request: Request) -> float:
    return min(_CONNECT_SECONDS, request.idle_timeout * _CONNECT_SHARE or _CONNECT_SECONDS)


def _no_connection(what: str, request: Request) -> UnreachableError:
    seconds = min(request.timeout, _connect_seconds(request))
    return UnreachableError(f"{what}: no connection within {seconds:g} s", sent=False, reason="Timeout")


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
