"""HTTP/1.1 connection pool for the many small calls of an API client.

Implements the part of HTTP/1.1 that an API server uses: responses with a length, in chunks, or up to the end
of the connection, plain or in gzip; no redirects, and no proxies (`proxied_session`).
The scheduler makes four such calls per pod, which take a quarter of the time that aiohttp needs. Guarantees:
a connection serves one exchange at a time and none after a protocol error; a failure to connect (including
TLS and timeouts) is an OSError, any later failure an UnreachableError.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, cast

from plimsoll.client.transport import Reply
from plimsoll.errors import UnreachableError

#: Longest head of a response.
_HEAD_MAX = 256 << 10
_NO_BODY = frozenset({204, 304})
#: Window bits of zlib for data with a gzip header.
_GZIP = 31
#: Bytes of a stream that are kept for its reader; the connection is not read while there are more.
_BUFFERED = 1 << 20


class Connection(asyncio.Protocol):
    """Connection to a server."""

    __slots__ = (
        "_body", "_chunks", "_data", "_head", "_length", "_transport", "_waiter", "_what", "_zipped",
        "idle_since", "last_received", "open",
    )  # fmt: skip

    def __init__(self) -> None:
        self.open = False
        self.idle_since = 0.0
        self.last_received = 0.0  #: time of the last received bytes
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._what = ""
        self._reset()

    def _reset(self) -> None:
        self._data = bytearray()
        self._head: tuple[int, dict[str, str]] | None = None
        self._length: int | None = None
        self._chunks = False
        self._zipped = "identity"
        self._body: list[bytes] = []

    # -- for the caller

    def ask(self, request: bytes, waiter: asyncio.Future[Reply], what: str) -> None:
        assert self._transport is not None
        self._waiter, self._what = waiter, what
        self._transport.write(request)

    def abort(self) -> None:
        """Close immediately: a TLS shutdown would outlive the session."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: transports of other event loops do not inherit from it.
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._head is not None and self._length is None and not self._chunks and error is None:
            self._body, self._data = [bytes(self._data)], bytearray()
            self._finish()  # the response ends with the connection
        self._fail(str(error) if error is not None else "it was closed")

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # no request is in flight
            return
        self._data += data
        self.last_received = time.monotonic()  # the event loop's clock
        try:
            self._read()
        except (ValueError, IndexError, UnicodeError):
            self._fail("the response is not HTTP")
            self.abort()

    # -- reading

    def _find_head(self) -> bool:
        """Return whether the head of the response has been received."""
        while self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if len(self._data) > _HEAD_MAX or not b"HTTP/1.".startswith(self._data[:7]):
                    raise ValueError
                return False
            head = self._data[:end].decode("latin-1")
            del self._data[: end + 4]
            self._read_head(head)
        return True

    def _read(self) -> None:
        if not self._find_head():
            return
        if self._chunks:
            self._read_chunks()
        elif self._length is not None and len(self._data) >= self._length:
            self._body.append(bytes(self._data[: self._length]))
            del self._data[: self._length]
            self._finish()

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        if not first.startswith("HTTP/1."):
            raise ValueError
        status = int(first[9:12])
        if 100 <= status < 200:
            return  # the response itself follows
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        self._zipped = headers.get("content-encoding", "identity")
        if self._zipped not in ("identity", "gzip"):
            raise ValueError
        if first[7] == "0" or headers.get("connection", "").lower() == "close":
            self.open = False
        self._head = status, headers
        coding = headers.get("transfer-encoding", "").lower()
        if coding:
            self._chunks = coding == "chunked"
            if not self._chunks:
                raise ValueError
        elif status in _NO_BODY:
            self._length = 0
        elif "content-length" in headers:
            self._length = int(headers["content-length"])
            if self._length < 0:
                raise ValueError
        else:
            self.open = False

    def _read_chunks(self) -> None:
        while True:
            end = self._data.find(b"\r\n")
            if end < 0:
                return
            size = int(self._data[:end].partition(b";")[0], 16)
            if size < 0:
                raise ValueError
            if not size:
                self._read_trailer(end)
                return
            start, stop = end + 2, end + 2 + size
            if len(self._data) < stop + 2:
                return
            if self._data[stop : stop + 2] != b"\r\n":
                raise ValueError
            self._body.append(bytes(self._data[start:stop]))
            del self._data[: stop + 2]

    def _read_trailer(self, end: int) -> None:
        """Read the trailer after the last chunk: an empty line, or fields and then an empty line."""
        stop = self._data.find(b"\r\n\r\n", end)
        if stop >= 0:
            del self._data[: stop + 4]
            self._finish()

    def _finish(self) -> None:
        assert self._head is not None
        status, headers = self._head
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._zipped == "gzip":
            try:
                body = zlib.decompress(body, _GZIP)
            except zlib.error as error:
                raise ValueError from error
        waiter, self._waiter = self._waiter, None
        if self._data:
            self.open = False  # more data than one response
        self._reset()
        if waiter is not None and not waiter.done():
            waiter.set_result(Reply(status, headers, body))

    def _fail(self, why: str) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(UnreachableError(f"{self._what}: the connection broke: {why}", sent=True))


class StreamingConnection(Connection):
    """Connection that hands on the body of its response while it is received."""

    __slots__ = ("_arrived", "_ended", "_error", "_idle_timeout", "_left", "_paused", "headers", "status")

    def __init__(self, idle_timeout: float) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self._idle_timeout = idle_timeout
        self._arrived = asyncio.Event()
        self._ended = False
        self._error = ""
        self._left = 0  #: bytes of the current chunk that are missing, with its line break
        self._paused = False

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._head is not None and self._length is None and not self._chunks and error is None:
            self._ended = True
        self._error = str(error) if error is not None else "it was closed"
        self._arrived.set()
        self._fail(self._error)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self.last_received = time.monotonic()
        try:
            if self._find_head():
                self._begin()
                self._read_parts()
        except (ValueError, IndexError, UnicodeError):
            self._error = "the response is not HTTP"
            self._fail(self._error)
            self.abort()
        if self._body or self._ended or self._error:
            self._arrived.set()

    def _begin(self) -> None:
        assert self._head is not None
        self.status, self.headers = self._head
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            if self._zipped != "identity":
                raise ValueError
            waiter.set_result(Reply(self.status, self.headers, b""))

    def _read_parts(self) -> None:
        if self._chunks:
            while self._data and not self._ended and self._read_chunk():
                pass
        elif self._data or self._length == 0:
            part = bytes(self._data if self._length is None else self._data[: self._length])
            del self._data[: len(part)]
            if part:
                self._body.append(part)
            if self._length is not None:
                self._length -= len(part)
                self._ended = self._length == 0
        if not self._paused and self._transport is not None and sum(map(len, self._body)) > _BUFFERED:
            self._paused = True
            self._transport.pause_reading()

    def _read_chunk(self) -> bool:
        """Read a part of a chunk; return whether there may be more."""
        if not self._left:
            end = self._data.find(b"\r\n")
            if end < 0:
                return False
            size = int(self._data[:end].partition(b";")[0], 16)
            if size < 0:
                raise ValueError
            if not size:
                self._ended = True
                return False
            self._left = size + 2
            del self._data[: end + 2]
        part = bytes(self._data[: self._left])
        del self._data[: len(part)]
        before, self._left = self._left, self._left - len(part)
        if content := part[: max(0, before - 2)]:
            self._body.append(content)
        if not self._left and len(part) >= 2 and not part.endswith(b"\r\n"):
            raise ValueError
        return bool(self._data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        while True:
            if self._body:
                body, self._body = self._body, []
                if self._paused and self._transport is not None and not self._error:
                    self._paused = False
                    self._transport.resume_reading()
                yield body[0] if len(body) == 1 else b"".join(body)
            elif self._ended:
                return
            elif self._error:
                raise UnreachableError(f"{self._what}: the connection broke: {self._error}", sent=True)
            else:
                self._arrived.clear()
                try:
                    async with asyncio.timeout(self._idle_timeout):
                        await self._arrived.wait()
                except TimeoutError:
                    raise _no_response(self._what, self._idle_timeout) from None


C = TypeVar("C", bound=Connection)


class Connections:
    """Connections to one server, on one event loop."""

    def __init__(self, host: str, port: int, *, keep: float, server_name: str = "") -> None:
        self._host, self._port = host, port
        self._keep = keep
        self._name = server_name
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._context: ssl.SSLContext | None = None

    async def send(
        self,
        request: bytes,
        timeout: float,
        connecting: float,
        context: ssl.SSLContext | None,
        what: str,
        idle_timeout: float = 0.0,
        guard: Callable[[], None] | None = None,
    ) -> Reply:
        """Send a request once and wait for its response; `what` names it in errors.

        The response must be complete within `timeout` seconds. With `idle_timeout` the request also fails if
        nothing is received for that long, including the time to connect. `guard` is called when there is a
        connection, right before the request is written to it.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        if context is not self._context:
            self._context = context  # other certificates or credentials: old connections are not reused
            self._abort_idle()
        connection = self._take(loop.time())
        if connection is None:
            connection = await self._connect(Connection(), min(timeout, connecting), context)
        waiter: asyncio.Future[Reply] = loop.create_future()
        timer = _Timer(loop, started, connection, waiter, what, timeout, idle_timeout)
        self._busy.add(connection)
        try:
            if guard is not None:
                guard()
            connection.ask(request, waiter, what)
            reply = await waiter
        except BaseException:
            connection.abort()
            raise
        finally:
            timer.cancel()
            self._busy.discard(connection)
        if connection.open and context is self._context:
            connection.idle_since = loop.time()
            self._idle.append(connection)
        else:
            connection.abort()
        return reply

    async def stream(
        self,
        request: bytes,
        idle_timeout: float,
        connecting: float,
        context: ssl.SSLContext | None,
        what: str,
        guard: Callable[[], None] | None = None,
    ) -> StreamingConnection:
        """Send a request on a connection of its own; return when the response has begun.

        It fails if nothing is received for `idle_timeout` seconds. `end` the connection in any case.
        """
        loop = asyncio.get_running_loop()
        connection = await self._connect(StreamingConnection(idle_timeout), connecting, context)
        self._busy.add(connection)
        waiter: asyncio.Future[Reply] = loop.create_future()
        timer = _Timer(loop, loop.time(), connection, waiter, what, idle_timeout, 0.0)
        try:
            if guard is not None:
                guard()
            connection.ask(request, waiter, what)
            await waiter
        except BaseException:
            self.end(connection)
            raise
        finally:
            timer.cancel()
        return connection

    def end(self, connection: Connection) -> None:
        """Close a connection immediately: a TLS shutdown would outlive the session."""
        self._busy.discard(connection)
        connection.abort()

    async def close(self) -> None:
        self._abort_idle()
        for connection in self._busy:
            connection.abort()
        await asyncio.sleep(0)  # the event loop closes them

    def _take(self, now: float) -> Connection | None:
        """Return the most recently used connection; those idle for too long are closed."""
        idle = self._idle
        while idle and now - idle[0].idle_since > self._keep:
            idle.popleft().abort()
        while idle:
            connection = idle.pop()
            if connection.open:
                return connection
            connection.abort()
        return None

    async def _connect(self, connection: C, seconds: float, context: ssl.SSLContext | None) -> C:
        name = None if context is None else self._name or self._host
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, self._host, self._port, ssl=context, server_hostname=name
                )
        except BaseException:
            connection.abort()  # cancelled right after the handshake: asyncio only starts a TLS shutdown
            raise
        return connection

    def _abort_idle(self) -> None:
        while self._idle:
            self._idle.popleft().abort()


class _Timer:
    """Timeout of one response: overall, and without any data."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        started: float,
        connection: Connection,
        waiter: asyncio.Future[Reply],
        what: str,
        timeout: float,
        idle_timeout: float,
    ) -> None:
        self._loop, self._connection, self._waiter, self._what = loop, connection, waiter, what
        self._timeout, self._idle_timeout = timeout, idle_timeout
        self._deadline = started + timeout
        self._started = started
        self._set(self._next())

    def _set(self, then: float) -> None:
        self._set_for = then
        self._handle = self._loop.call_at(then, self._on_timer)

    def cancel(self) -> None:
        self._handle.cancel()

    def _next(self) -> float:
        if not self._idle_timeout:
            return self._deadline
        return min(self._deadline, max(self._started, self._connection.last_received) + self._idle_timeout)

    def _on_timer(self) -> None:
        """Give up, or check again if data has arrived since the timer was set."""
        if self._waiter.done():
            return
        then = self._next()
        if then > self._set_for:
            self._set(then)
            return
        seconds = self._timeout if then == self._deadline else self._idle_timeout
        self._waiter.set_exception(_no_response(self._what, seconds))


def _no_response(what: str, seconds: float) -> UnreachableError:
    return UnreachableError(f"{what}: no response within {seconds:g} s", sent=True, reason="Timeout")


def write_request(method: str, target: str, headers: list[tuple[str, str]], body: bytes | None) -> bytes:
    """Encode a request; raises ValueError if a header contains a line break."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method not in ("GET", "HEAD", "DELETE"):
        lines.append("Content-Length: 0")
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1 or "\0" in head:
        raise ValueError
    return head.encode() + b"\r\n\r\n" + (body or b"")
