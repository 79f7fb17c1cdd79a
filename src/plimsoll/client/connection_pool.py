"""HTTP/1.1 connection pool for the many small calls of an API client.

Implements the part of HTTP/1.1 that an API server uses: responses with a length, in chunks, or up to the end
of the connection; no compression, no proxies, no redirects (requests that need these are sent with aiohttp).
The scheduler makes four such calls per pod, which take a quarter of the time that aiohttp needs. Guarantees:
a connection serves one exchange at a time and none after a protocol error; a failure to connect (including
TLS and timeouts) is an OSError, any later failure an UnreachableError.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable

from plimsoll.client.transport import Reply
from plimsoll.errors import UnreachableError

#: Longest head of a response.
_HEAD_MAX = 256 << 10
_NO_BODY = frozenset({204, 304})


class Connection(asyncio.Protocol):
    """Connection to a server."""

    __slots__ = (
        "_body", "_chunks", "_data", "_head", "_length", "_transport", "_waiter", "_what",
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
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
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

    def _read(self) -> None:
        while self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if len(self._data) > _HEAD_MAX or not b"HTTP/1.".startswith(self._data[:7]):
                    raise ValueError
                return
            head = self._data[:end].decode("latin-1")
            del self._data[: end + 4]
            self._read_head(head)
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
        if headers.get("content-encoding", "identity") != "identity":
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
            connection = await self._connect(min(timeout, connecting), context)
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

    async def _connect(self, seconds: float, context: ssl.SSLContext | None) -> Connection:
        name = None if context is None else self._name or self._host
        connection = Connection()
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
        text = f"{self._what}: no response within {seconds:g} s"
        self._waiter.set_exception(UnreachableError(text, sent=True, reason="Timeout"))


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
