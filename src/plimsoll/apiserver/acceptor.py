"""Connection acceptor: listening sockets, TLS handshakes and the limits on unauthenticated clients.

asyncio allocates a read buffer for each TLS connection as soon as it is accepted, and limits neither their
number nor the time until the first request. Sockets are therefore accepted here, and TLS starts only when the
first byte has arrived and `UnauthenticatedConnections` has a free slot.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from aiohttp import web

from plimsoll.apiserver.connections import ServerConnection
from plimsoll.apiserver.heap import HeapTrimmer
from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.unauthenticated import UnauthenticatedConnections, address_group

_log = logging.getLogger("plimsoll.server")

_BACKLOG = 1024
#: accept() errors that concern one client only; others, such as too many open files, concern the server.
_CLIENT_ERRORS = {errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO}
_ACCEPT_RETRY_SECONDS = 1.0
#: Time for the TLS shutdown of all connections when the server stops.
_TLS_SHUTDOWN_SECONDS = 0.25
#: asyncio's read buffer of a TLS connection: 256 KiB by default, most of what a watch costs. A TLS record has
#: at most 16 KiB.
SSLProtocol.max_size = 16 << 10
#: Memory of a TLS connection: the read buffer and OpenSSL's state.
_TLS_BYTES = 60 << 10
#: Response to a client that does not use TLS, in the words of Go's servers.
_PLAIN_HTTP_RESPONSE = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
_REQUEST_BYTES = 16 << 10


class _AcceptedConnection:
    """Accepted connection, from the accepted socket over the TLS handshake to HTTP."""

    def __init__(self, acceptor: ConnectionAcceptor, client: socket.socket, address: object) -> None:
        self.loop = acceptor.loop
        self.deadline = self.loop.time() + acceptor.limits.header_timeout
        self.source = address_group(address)
        self.ended = False
        self._acceptor = acceptor
        self._socket = client
        self._serving: asyncio.Task[None] | None = None
        self._connection: ServerConnection | None = None
        self._owned_by_transport = False  # the socket belongs to a transport
        self._expiry = self.loop.call_at(self.deadline, self.abort)
        self.loop.add_reader(client, self._on_first_byte)
        acceptor.peers.connect(self)

    def _on_first_byte(self) -> None:
        self.loop.remove_reader(self._socket)
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if first.isalpha() and self._acceptor.tls is not None:  # a TLS handshake starts with 0x16
            self._refuse_plain_http()
        elif first:
            self._acceptor.peers.arrive(self)
            self._acceptor.schedule_tick()
        else:
            self.abort()

    def _refuse_plain_http(self) -> None:
        with suppress(OSError):
            self._socket.recv(_REQUEST_BYTES)  # closing with unread data would discard the response
            self._socket.send(_PLAIN_HTTP_RESPONSE)
        self.abort()

    def serve(self) -> None:
        self._connection = self._acceptor.connect(self)
        self._serving = self.loop.create_task(self._serve(self._connection))

    async def _serve(self, connection: ServerConnection) -> None:
        tls = self._acceptor.tls
        self._owned_by_transport = True
        try:
            if tls is None:
                await self.loop.connect_accepted_socket(lambda: connection, self._socket)
            else:
                left = max(self.deadline - self.loop.time(), 0.001)
                await self.loop.connect_accepted_socket(
                    lambda: connection, self._socket, ssl=tls, ssl_handshake_timeout=left
                )
        except OSError as error:  # failed, timed out, or reset by the client
            # asyncio's frames hold the error and, through it, themselves and the TLS buffers.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            self.end()
        except asyncio.CancelledError:  # dropped
            self.end()
        else:
            if connection.raw_transport is None:  # the client disconnected during the handshake
                self.end()
        finally:
            self._serving = None

    def abort(self) -> None:
        """Close the connection at once, in any state."""
        if self.ended:
            return
        if not self._owned_by_transport:
            self.loop.remove_reader(self._socket)
            self._socket.close()
        if self._serving is not None:
            self._serving.cancel()
        if self._connection is not None and self._connection.raw_transport is not None:
            self._connection.raw_transport.abort()
        self.end()

    def record_buffered(self, size: int) -> None:
        self._acceptor.peers.record_buffered(self, size)

    def on_connected(self) -> None:
        """Cancel the accept deadline: the handshake is done, and the HTTP connection has its own deadline."""
        self._expiry.cancel()

    def leave(self) -> None:
        """Stop counting the client as unauthenticated."""
        self._acceptor.peers.leave(self)
        self._acceptor.schedule_tick()

    def end(self) -> None:
        """Release the connection's resources; it is closed or about to be."""
        if self.ended:
            return
        self.ended = True
        self._expiry.cancel()
        if self._connection is not None:
            self._acceptor.heap.record_freed(_TLS_BYTES + 2 * self._connection.buffered)
            self._connection = None  # no cycle: the buffers must not wait for the garbage collector
        self.leave()


class ConnectionAcceptor:
    """Acceptor of connections on one address, which passes them to an aiohttp server within the limits."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Any],
        limits: ServerLimits,
        tls: ssl.SSLContext | None,
        **settings: Any,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = _cap_to_open_files(limits)
        self.tls = tls
        self.heap = HeapTrimmer()
        self.peers = UnauthenticatedConnections(limits, self.loop.time)
        self.server = web.Server(handler, handler_cancellation=True)
        self._settings = settings
        self._accepting: list[asyncio.Task[None]] = []
        self._tick: asyncio.TimerHandle | None = None
        self.sockets: list[socket.socket] = []

    async def listen(self, host: str, port: int) -> None:
        """Listen; raises OSError if the address is taken."""
        self.sockets = await open_sockets(host, port)
        self._accepting = [self.loop.create_task(self._accept(listener)) for listener in self.sockets]

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, address = await self.loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _CLIENT_ERRORS:
                    continue
                _log.error("cannot accept connections: %s; retrying", error)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            _AcceptedConnection(self, client, address)
            await asyncio.sleep(0)  # yield: a flood of connections must not delay requests

    async def stop(self, seconds: float) -> None:
        """Stop listening, close unauthenticated connections, and let requests in flight finish within
        `seconds`.
        """
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self.sockets:
            listener.close()
        await asyncio.sleep(0)  # requests that have arrived are handled
        if self._tick is not None:
            self._tick.cancel()
        self.peers.drop_all()
        self.server.pre_shutdown()
        connections = [each for each in self.server.connections if isinstance(each, ServerConnection)]
        await self.server.shutdown(seconds)
        await self._close_transports(connections)
        self.heap.close()

    async def _close_transports(self, connections: list[ServerConnection]) -> None:
        """Abort connections whose client does not take part in the TLS shutdown: asyncio waits 30 seconds."""
        deadline = self.loop.time() + _TLS_SHUTDOWN_SECONDS
        while any(each.raw_transport for each in connections) and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for each in connections:
            if each.raw_transport is not None:
                each.raw_transport.abort()
        for _ in range(2):  # the loop closes the sockets, then reports the connections as lost
            await asyncio.sleep(0)

    def connect(self, owner: _AcceptedConnection) -> ServerConnection:
        return ServerConnection(self.server, owner, self.limits, **self._settings)

    def schedule_tick(self, lag: float = 0.0) -> None:
        """Schedule the next `tick`, when a waiting connection can take the slot of another."""
        if self._tick is None and (when := self.peers.wake_at(lag)) is not None:
            self._tick = self.loop.call_at(when, self._on_tick, when)

    def _on_tick(self, planned: float) -> None:
        self._tick = None
        lag = max(self.loop.time() - planned, 0.0)
        self.peers.tick(lag)
        self.schedule_tick(lag)


def _cap_to_open_files(limits: ServerLimits) -> ServerLimits:
    """Lower the limits so that unauthenticated clients leave file descriptors for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.unauthenticated_waiting if soft == resource.RLIM_INFINITY else max(soft // 4, 1)
    return replace(limits, unauthenticated_waiting=min(limits.unauthenticated_waiting, most))


async def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket for each address of a host; OSError if one of them fails."""
    flags = socket.AI_PASSIVE
    try:  # an address needs no resolver and no thread
        numeric = flags | socket.AI_NUMERICHOST
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    return sockets
