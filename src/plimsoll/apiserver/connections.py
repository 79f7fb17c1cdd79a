"""HTTP connections of the API server, with limits on what a client can make the server hold.

aiohttp limits the size of one header field and the number of fields, but not their total, nor the time they
may take, nor trailers and pipelined requests. `ServerConnection` counts the bytes it passes to aiohttp's
parser and closes the connection when a limit is exceeded. Once a client has presented valid credentials, only
the limits on single requests apply: idle connections and long watches stay open.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from aiohttp import StreamReader, web

from plimsoll.apiserver.auth.authentication import certificate_user
from plimsoll.apiserver.limits import ServerLimits

#: Seconds in which a rejected client can read the response; closing at once would reset the connection.
_LINGER_SECONDS = 0.5
#: Unread response bytes after which an unauthenticated connection is closed.
_MAX_UNREAD_BYTES = 64 << 10
#: Framing bytes allowed per byte of a chunked body; `1\r\nx\r\n` has five.
_MAX_FRAMING_RATIO = 8
_HEADERS_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 35\r\nConnection: close\r\n\r\n"
    b"431 Request Header Fields Too Large"
)


class ConnectionOwner(Protocol):
    """Interface to the acceptor of a connection, which accounts for it."""

    loop: asyncio.AbstractEventLoop
    deadline: float  #: for the headers of the first request
    ended: bool

    def on_connected(self) -> None:
        """Hand the header deadline over to the HTTP connection."""

    def record_buffered(self, size: int) -> None:
        """Record activity of the client and the number of header bytes that the connection holds."""

    def leave(self) -> None:
        """Stop counting the client as unauthenticated."""

    def abort(self) -> None:
        """Close the connection at once."""

    def end(self) -> None:
        """Record that the connection is closed."""


class ServerConnection(web.RequestHandler):
    """HTTP connection with limits on what its client can make the server hold."""

    def __init__(
        self, server: web.Server, owner: ConnectionOwner, limits: ServerLimits, **settings: Any
    ) -> None:
        # Encoded bodies are refused (http.py); aiohttp would inflate them first.
        super().__init__(server, loop=owner.loop, auto_decompress=False, **settings)
        self._owner = owner
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        #: The transport, also after aiohttp has dropped it to close it.
        self.raw_transport: asyncio.Transport | None = None
        self._refused = False
        self._upgraded_to_tunnel = False
        self._handling = False
        self.authenticated = False
        #: Bytes received that belong to no request being handled: headers, and pipelined requests.
        self.buffered = 0
        #: The bodies of the request being handled and of the last one whose headers are complete.
        self._body: StreamReader | None = None
        self._last_body: StreamReader | None = None
        self._body_received = 0

    # -- called by the request handler

    def begin(self, body: StreamReader) -> None:
        """Record that a request is being handled; its headers are complete."""
        self._handling = True
        self._stop_timer()
        self._body = body
        if not self._messages:
            self._record_buffered(0)

    def end(self) -> None:
        """Record that the request has been handled."""
        self._handling = False

    def accept_credentials(self) -> None:
        """Record that the client has presented valid credentials."""
        if not self.authenticated:
            self.authenticated = True
            if self.transport is not None:
                self.transport.set_write_buffer_limits()
            self._owner.leave()

    def begin_tunnel(self) -> None:
        """Record that the connection was upgraded: what is received from now on is no HTTP request."""
        self._upgraded_to_tunnel = True

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._owner.ended:  # dropped during the handshake
            transport.abort()
            return
        self.raw_transport = transport
        super().connection_made(transport)
        self._owner.on_connected()
        self._start_timer(self._owner.deadline)
        certificate = transport.get_extra_info("peercert")
        if certificate and certificate_user(certificate) is not None:
            self.accept_credentials()
        else:
            transport.set_write_buffer_limits(high=_MAX_UNREAD_BYTES)
            self._record_buffered(0)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        self.raw_transport = None
        self._owner.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        if not self.authenticated:  # responses to such clients are small: it is not reading
            self._owner.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused or self._owner.ended:
            return
        if self._upgraded_to_tunnel:
            super().data_received(data)
            return
        body = self._last_body
        if body is not None and not body.is_eof() and (body is self._body or not self._handling):
            self._receive_body(body, data)
            return
        requests = self._request_count
        super().data_received(data)
        self._record_buffered(self.buffered + len(data))
        if self._request_count != requests:
            if self._messages:
                self._last_body, self._body_received = self._messages[-1][1], 0
        elif data and not self._handling and self._deadline is None and not self._owner.ended:
            self._start_timer(self._loop.time() + self._limits.header_timeout)
        incomplete = self._request_count == requests or len(self._messages) > 1
        if incomplete and self.buffered > self._limits.header_bytes:
            self._refuse()

    # -- limits

    def _receive_body(self, body: StreamReader, data: bytes) -> None:
        """Pass on a part of a body, within the limits on its trailers and framing."""
        self._body_received += len(data)
        super().data_received(data)
        extra, max_extra = max(self._body_received - body.total_bytes, 0), self._limits.header_bytes
        if self.authenticated:
            max_extra += _MAX_FRAMING_RATIO * body.total_bytes
        else:  # an unread body: aiohttp discards it, so that the client gets to the response
            self._record_buffered(extra)
        # Until the request handler has run, a client with valid credentials is not known as such either.
        unauthenticated = not self.authenticated and body is self._body
        if extra > max_extra or (unauthenticated and body.total_bytes > self._limits.body):
            self._owner.abort()

    def _record_buffered(self, size: int) -> None:
        self.buffered = size
        if not self.authenticated:
            self._owner.record_buffered(size)

    def _refuse(self) -> None:
        """Respond with 431 and close; if an earlier request has no response yet, only close."""
        self._refused = True
        if self.transport is None or self._handling or self._messages:
            self._owner.abort()
            return
        self.transport.write(_HEADERS_TOO_LARGE)
        self._stop_timer()
        self._start_timer(self._loop.time() + _LINGER_SECONDS)

    def _start_timer(self, when: float) -> None:
        self._deadline = self._loop.call_at(when, self._owner.abort)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
