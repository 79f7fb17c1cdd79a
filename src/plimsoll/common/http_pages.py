"""Minimal HTTP/1.1 server of a few pages, for processes that serve nothing else.

Health pages and control sockets need neither routing nor uploads; a web framework would be a tenth of the
memory of a driver. Guarantees: the head and the body of a request are limited in size and time, a request
that is not understood gets status 400, 413 or 431 and ends its connection, and an exception in a page is a
response with status 500.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from plimsoll.common.tasks import cancel_tasks, close_listener

_log = logging.getLogger("plimsoll.http")

_MAX_HEAD = 16 << 10
_MAX_LENGTH_DIGITS = 18
#: Seconds for a request after its connection was opened or used, and to write a response.
_READ_SECONDS = 75.0
_WRITE_SECONDS = 30.0
_HANDSHAKE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Request for a page; `remote` is the address of the caller, None on a Unix socket."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    body: bytes
    remote: str | None
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class PageResponse:
    """Response: its text, or parts that are sent as they are produced."""

    text: str = ""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    parts: AsyncIterator[bytes] | None = None
    allow: str = ""


Page = Callable[[PageRequest], Awaitable[PageResponse]]


@dataclass(slots=True)
class PageServer:
    """Server of pages by method and path; HEAD is a GET without the body."""

    pages: Mapping[tuple[str, str], Page]
    max_body: int = 1 << 20
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stopped: bool = False

    async def listen(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a TCP address, without a host on every one; return the port. Raises OSError."""
        wait = None if tls is None else _HANDSHAKE_SECONDS
        server = await asyncio.start_server(
            self._accept, host, port, limit=_MAX_HEAD, ssl=tls, ssl_handshake_timeout=wait
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path) -> None:
        """Listen on a Unix socket that only its owner can use. Raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        self._servers.append(await asyncio.start_unix_server(self._accept, sock=listening, limit=_MAX_HEAD))

    async def stop(self) -> None:
        self._stopped = True
        servers, self._servers = self._servers, []
        for server in servers:
            await close_listener(server)
        await cancel_tasks(list(self._tasks))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopped:
            writer.close()  # accepted while the server was being stopped
            return
        task = asyncio.get_running_loop().create_task(self._serve_all(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is canceled before it has started does not run its `finally`.
        task.add_done_callback(lambda _: writer.close())

    async def _serve_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, EOFError, asyncio.CancelledError):
            while await self._serve(reader, writer):
                pass

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether another may follow."""
        async with asyncio.timeout(_READ_SECONDS):
            found = await _read_head(reader)
            if isinstance(found, _RequestHead) and found.length > self.max_body:
                found = _refuse(413)
            if isinstance(found, PageResponse):
                await _write(writer, found, False, False, False)
                return False
            body = await reader.readexactly(found.length)
        remote = writer.get_extra_info("peername")
        path, _, query = found.target.partition("?")
        request = PageRequest(
            found.method,
            path,
            parse_qs(query, True),
            body,
            remote[0] if isinstance(remote, tuple) else None,
            found.authorization,
        )
        response = await self._find_response(request)
        async with asyncio.timeout(_WRITE_SECONDS):
            await _write(writer, response, found.keeps, found.is_current, found.method == "HEAD")
        return found.keeps and response.parts is None

    async def _find_response(self, request: PageRequest) -> PageResponse:
        method = "GET" if request.method == "HEAD" else request.method
        page = self.pages.get((method, request.path))
        if page is None:
            allowed = sorted(known for known, path in self.pages if path == request.path)
            if allowed:
                return PageResponse("405: Method Not Allowed", 405, allow=", ".join(allowed))
            return PageResponse("404: Not Found", 404)
        try:
            return await page(request)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return PageResponse("500: Internal Server Error", 500)


@dataclass(frozen=True, slots=True)
class _RequestHead:
    method: str
    target: str
    length: int
    authorization: str
    is_current: bool  #: HTTP/1.1, which knows chunks
    keeps: bool  #: the connection may be used again


async def _read_head(reader: asyncio.StreamReader) -> _RequestHead | PageResponse:
    """Read the request line and the headers; a response if they are not HTTP/1 or too long."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return _refuse(431)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise  # the client has closed the connection between two requests
        return _refuse(400)
    lines = text.split("\r\n")
    words = lines[0].split(" ")
    fields = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    length = headers.get("content-length", "0")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or "transfer-encoding" in headers:
        return _refuse(400)
    if not (length.isascii() and length.isdigit()) or len(length) > _MAX_LENGTH_DIGITS:
        return _refuse(400)
    is_current = words[2] == "HTTP/1.1"
    keeps = is_current and headers.get("connection", "").lower() != "close"
    authorization = headers.get("authorization", "")
    return _RequestHead(words[0], words[1], int(length), authorization, is_current, keeps)


def _refuse(status: int) -> PageResponse:
    return PageResponse(f"{status}: {HTTPStatus(status).phrase}", status)


async def _write(
    writer: asyncio.StreamWriter, response: PageResponse, kept: bool, chunked: bool, head_only: bool
) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
    ]
    if response.allow:
        lines.append(f"Allow: {response.allow}")
    body = response.text.encode()
    if response.parts is None:
        lines.append(f"Content-Length: {len(body)}")
    elif chunked:
        lines.append("Transfer-Encoding: chunked")
    if not kept or response.parts is not None:
        lines.append("Connection: close")
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    if response.parts is not None and not head_only:
        async for part in response.parts:
            if part:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
    elif not head_only:
        writer.write(body)
    await writer.drain()
