"""HTTP server: a thin layer around `Api.handle`.

Reads requests and bodies, streams responses, and enforces the limits that protect clients from each other:
body size, the time that a body or a slow reader may take, priority and fairness (`flowcontrol/`). Connections
and their limits are in `acceptor.py` and `connections.py`. Knows nothing of Kubernetes objects.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeGuard, cast

from aiohttp import HttpVersion11, web

from plimsoll.api import codec
from plimsoll.apiserver.acceptor import ConnectionAcceptor
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.authentication import SINGLE_HEADERS
from plimsoll.apiserver.auth.impersonation import IMPERSONATION, impersonate
from plimsoll.apiserver.connections import ServerConnection
from plimsoll.apiserver.direct_response import CACHE_CONTROL, encode_head, sent_response
from plimsoll.apiserver.flowcontrol.flow_controller import FlowController, HeldSeats
from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.apiserver.kubelet.tunnel import pass_on
from plimsoll.apiserver.limits import ServerLimits, WatchLimiter
from plimsoll.apiserver.log_websocket import LOG_TYPE, send_log, wants_websocket
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.status import bad_request, request_entity_too_large, to_status, unauthorized
from plimsoll.common.http_log import http_logger
from plimsoll.errors import ApiError

_log = logging.getLogger("plimsoll.server")
_http_log = http_logger("plimsoll.server.http")

#: Chunk size of a long response, so that a list of a hundred megabytes is not copied in memory.
_CHUNK_BYTES = 1 << 20
#: Smaller than the write buffer limit, so that a write of this size does not wait for the client.
_UNBUFFERED_BYTES = 32 << 10
#: DIFF: upstream decodes such a body as it is, which fails with 400 (test_encoded_bodies_are_refused).
_ENCODED_BODY = "the body has a Content-Encoding: send it without"
#: Time for requests in flight when the server stops.
_SHUTDOWN_SECONDS = 2.0


class HttpServer:
    """HTTP server of an API on one address."""

    def __init__(
        self,
        api: Api,
        *,
        limits: ServerLimits | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._api = api
        self._limits = limits or ServerLimits()
        self.flow_controller = FlowController(api.context.store, self._limits.in_flight)
        api.metrics.registry.register(self.flow_controller.metrics)
        self.watch_limiter = WatchLimiter(self._limits)
        self._host, self._port, self._tls = host, port, tls
        self.acceptor: ConnectionAcceptor | None = None
        self._streams: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        """Start listening; OSError if the address is in use."""
        self.acceptor = ConnectionAcceptor(
            self._handle,
            self._limits,
            self._tls,
            max_line_size=self._limits.url,
            max_field_size=self._limits.header_field,
            max_headers=self._limits.headers,
            keepalive_timeout=float(self._limits.idle_timeout),
            access_log=None,
            logger=_http_log,
        )
        await self.acceptor.listen(self._host, self._port)

    @property
    def port(self) -> int:
        """Return the port in use, which the system has chosen if the setting is 0."""
        assert self.acceptor is not None
        return int(self.acceptor.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        if host in ("0.0.0.0", "[::]"):
            host = "127.0.0.1"
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def stop(self) -> None:
        """Stop listening, end the watches, and let requests in flight finish."""
        for task in list(self._streams):
            task.cancel()
        if self.acceptor is not None:
            await self.acceptor.stop(_SHUTDOWN_SECONDS)
            self.acceptor = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(ServerConnection, request.protocol)
        connection.begin(request.content)
        try:
            return await self._respond(request, connection)
        finally:
            connection.end()

    async def _respond(self, request: web.BaseRequest, connection: ServerConnection) -> web.StreamResponse:
        try:
            api_request = await self._read_request(request, connection)
            self._api.resolve(api_request)
            seats = await self.flow_controller.acquire(api_request)
            api_request.initialized = seats.release
            try:
                api_response = await self._api.handle(api_request)
                if api_response.upgrade is not None:
                    seats.release()
                    with self.watch_limiter.acquire(api_request.user):
                        return await self._tunnel(request, connection, api_response.upgrade)
                if not isinstance(api_response.body, bytes) and api_response.length is None:
                    api_response.headers.update(seats.headers)
                    with self.watch_limiter.acquire(api_request.user):
                        if wants_websocket(request) and api_response.content_type == LOG_TYPE:
                            connection.begin_tunnel()
                            return await self._stream_log(request, api_response)
                        return await self._stream(request, api_response)
            finally:
                seats.release()
            return await self._send(request, api_response, seats)
        except ApiError as error:
            return _to_web_response(
                ApiResponse(error.code, codec.encode(to_status(error)), headers=dict(error.headers))
            )

    async def _read_request(self, request: web.BaseRequest, connection: ServerConnection) -> ApiRequest:
        headers = read_headers(request.headers.items())
        certificate = None
        if self._tls is not None and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert") or None
        user = self._api.context.authenticator.authenticate(headers, certificate)
        if not user.is_anonymous:
            connection.accept_credentials()
        if IMPERSONATION in "".join(headers):
            user = impersonate(user, request.headers.items(), self._api.context.authorizer)
        url = request.rel_url
        query = list(url.query.items()) if url.raw_query_string else []
        api_request = ApiRequest(request.method, request.path, user, query, headers)
        if request.can_read_body and not user.is_anonymous:  # anonymous users cannot write
            if headers.get("content-encoding", "identity").lower() != "identity":
                raise ApiError(415, "UnsupportedMediaType", _ENCODED_BODY)
            api_request.body = await self._read_body(request)
        return api_request

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        max_bytes = self._limits.body
        if request.content_length is not None and request.content_length > max_bytes:
            raise request_entity_too_large(f"Request entity too large: limit is {max_bytes}")
        chunks, size, content = list[bytes](), 0, request.content
        try:
            if content.is_eof():  # it has arrived with the headers
                chunks.append(content.read_nowait())
                size = len(chunks[0])
            else:
                async with asyncio.timeout(self._limits.body_timeout):
                    async for chunk in content.iter_any():
                        chunks.append(chunk)
                        size += len(chunk)
                        if size > max_bytes:
                            break
        except TimeoutError:
            raise ApiError(408, "Timeout", "the body of the request did not arrive in time") from None
        except web.RequestPayloadError as error:
            raise ApiError(400, "BadRequest", f"the body cannot be read: {error}") from None
        if size > max_bytes:
            raise request_entity_too_large(f"Request entity too large: limit is {max_bytes}")
        return b"".join(chunks)

    async def _send(
        self, request: web.BaseRequest, api_response: ApiResponse, seats: HeldSeats
    ) -> web.StreamResponse:
        """Send a response of known length, by way of aiohttp only if it is an unusual one."""
        body, transport = api_response.body, request.transport
        if not isinstance(body, bytes):
            return await self._send_chunked(request, api_response, seats)
        if len(body) <= _CHUNK_BYTES and _is_open(transport):
            head = encode_head(request, api_response, len(body), seats.header_lines)
            if head is not None:
                if len(body) > _UNBUFFERED_BYTES:
                    transport.writelines((head, body))  # a copy would cost more than a further TLS record
                else:
                    transport.write(head + body)
                if transport.get_write_buffer_size():
                    with _disconnection_logged(request):
                        await self._drain(request)
                return sent_response(request)
        if len(body) <= _UNBUFFERED_BYTES or request.method == "HEAD":
            api_response.headers.update(seats.headers)
            return _to_web_response(api_response)
        api_response.body, api_response.length = _split(body), len(body)
        return await self._send_chunked(request, api_response, seats)

    async def _send_chunked(
        self, request: web.BaseRequest, api_response: ApiResponse, seats: HeldSeats
    ) -> web.StreamResponse:
        """Send a long response; it ends when the client disconnects or does not read."""
        chunks, length = cast(AsyncGenerator[bytes, None], api_response.body), api_response.length
        assert length is not None
        head = encode_head(request, api_response, length, seats.header_lines)
        response = sent_response(request)
        try:
            with _disconnection_logged(request):
                if head is not None:
                    await self._write_chunks(request, head, chunks)
                else:
                    api_response.headers.update(seats.headers)
                    response = _to_stream_response(api_response)
                    response.content_length = length
                    await response.prepare(request)
                    if request.method != "HEAD":
                        async for chunk in chunks:
                            await self._write(request, response, chunk)
                    await response.write_eof()
        finally:
            await chunks.aclose()
        return response

    async def _write_chunks(
        self, request: web.BaseRequest, head: bytes, chunks: AsyncGenerator[bytes, None]
    ) -> None:
        transport = request.transport
        async for chunk in chunks:
            if not _is_open(transport):
                raise ConnectionResetError
            transport.writelines((head, chunk) if head else (chunk,))
            head = b""
            if transport.get_write_buffer_size():
                await self._drain(request)

    async def _stream(self, request: web.BaseRequest, api_response: ApiResponse) -> web.StreamResponse:
        frames = cast(AsyncGenerator[bytes, None], api_response.body)
        response = _to_stream_response(api_response)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        else:
            response.force_close()
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            with _disconnection_logged(request):
                await response.prepare(request)
                transport = request.transport if response.chunked else None
                async for frame in frames:
                    if transport is None or not _write_chunk(transport, frame):
                        await self._write(request, response, frame)
                await response.write_eof()
        finally:
            self._streams.discard(task)
            await frames.aclose()
        return response

    async def _stream_log(self, request: web.BaseRequest, api_response: ApiResponse) -> web.StreamResponse:
        chunks = cast(AsyncGenerator[bytes, None], api_response.body)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            return await send_log(request, chunks, self._limits.slow_watch_timeout)
        finally:
            self._streams.discard(task)
            await chunks.aclose()

    async def _tunnel(
        self, request: web.BaseRequest, connection: ServerConnection, location: KubeletLocation
    ) -> web.StreamResponse:
        """Pass an upgrade request on to a kubelet, then bytes in both directions until one side ends."""
        kubelets = self._api.pod_streams.kubelets
        assert kubelets is not None, "a location was found by way of them"
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            return await pass_on(request, kubelets, location, connection.begin_tunnel)
        finally:
            self._streams.discard(task)

    async def _write(
        self, request: web.BaseRequest, response: web.StreamResponse, chunk: bytes | memoryview
    ) -> None:
        """Write a chunk; a client that does not read within the timeout is disconnected."""
        transport = request.transport
        if transport is not None and len(chunk) < _UNBUFFERED_BYTES and not transport.get_write_buffer_size():
            await response.write(chunk)  # the buffer is empty: this does not wait
            return
        async with self._reading_client(request):
            await response.write(chunk)

    async def _drain(self, request: web.BaseRequest) -> None:
        """Wait until the client has read enough; it is disconnected if it does not within the timeout."""
        async with self._reading_client(request):
            await request.writer.drain()

    @asynccontextmanager
    async def _reading_client(self, request: web.BaseRequest) -> AsyncIterator[None]:
        """Disconnect a client that does not read within the timeout."""
        transport = request.transport
        try:
            async with asyncio.timeout(self._limits.slow_watch_timeout):
                yield
        except TimeoutError:
            if transport is not None:
                transport.abort()
            raise


def _is_open(transport: asyncio.Transport | None) -> TypeGuard[asyncio.Transport]:
    return transport is not None and not transport.is_closing()


def _write_chunk(transport: asyncio.Transport, chunk: bytes) -> bool:
    """Write a part of a chunked response if that does not wait; return whether it was written.

    This is all that `StreamResponse.write` does for an event of a watch, at half the cost.
    """
    size = len(chunk)
    if not 0 < size < _UNBUFFERED_BYTES or transport.is_closing() or transport.get_write_buffer_size():
        return False
    transport.write(b"%x\r\n%b\r\n" % (size, chunk))
    return True


@contextmanager
def _disconnection_logged(request: web.BaseRequest) -> Iterator[None]:
    """Suppress and log that a client disconnects, or does not read, while its response is sent."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        _log.debug("client disconnected: %s", request.path)


def read_headers(pairs: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request by lower-case name; of repeated headers the first counts.

    ApiError 400 if a value is not UTF-8 or an identity header is repeated, ApiError 401 if the credentials
    are not UTF-8.

    DIFF: upstream takes the first Authorization header and ignores the others; see
    test_duplicate_authorization_headers_are_refused.
    """
    headers = {name.lower(): value for name, value in pairs}
    if len(headers) == len(pairs) and "".join(headers.values()).isascii():
        return headers
    headers = {}
    for name, value in pairs:
        key = name.lower()
        if not value.isascii() and not _is_utf8(value):
            if key == "authorization":
                raise unauthorized()
            raise bad_request(f"the header {name} is not UTF-8")
        if key in headers and key in SINGLE_HEADERS:
            raise bad_request(f"the request has more than one {name} header: send exactly one")
        headers.setdefault(key, value)
    return headers


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 are surrogates
        return False
    return True


def _response_headers(api_response: ApiResponse) -> dict[str, str] | list[tuple[str, str]]:
    headers = {
        "Content-Type": api_response.content_type,
        "Cache-Control": CACHE_CONTROL,
        **api_response.headers,
    }
    return [*headers.items(), *api_response.more_headers] if api_response.more_headers else headers


def _to_web_response(api_response: ApiResponse) -> web.Response:
    return web.Response(
        status=api_response.status,
        body=cast(bytes, api_response.body),
        headers=_response_headers(api_response),
    )


def _to_stream_response(api_response: ApiResponse) -> web.StreamResponse:
    return web.StreamResponse(status=api_response.status, headers=_response_headers(api_response))


async def _split(body: bytes) -> AsyncGenerator[bytes, None]:
    """Yield a long body in chunks."""
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]
