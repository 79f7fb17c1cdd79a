"""Small HTTP server that sends exactly the bytes of a test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class ReceivedRequest:
    """One request as received."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)


@dataclass
class RecordingServer:
    """HTTP server that records its requests; `url` is its address."""

    url: str = ""
    port: int = 0
    connections: int = 0
    ended: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)


Answer = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RecordingServer]:
    """Answer every request of every connection with `answer`, until it closes the connection."""
    wire = RecordingServer()
    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        wire.connections += 1
        writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                seen = await _read(reader)
                wire.requests.append(seen)
                await answer(seen, writer)
                await writer.drain()
        wire.ended += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    wire.port = server.sockets[0].getsockname()[1]
    wire.url = f"{'https' if tls else 'http'}://127.0.0.1:{wire.port}"
    try:
        yield wire
    finally:
        server.close()
        while tasks:
            abort(writers)
            await asyncio.wait(tasks, timeout=0.1)
        abort(writers)  # a TLS shutdown waits for the client, and the loop is about to end
        await asyncio.sleep(0)


def abort(writers: set[asyncio.StreamWriter]) -> None:
    for writer in list(writers):
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = [
        (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)
    ]
    length = int(dict(headers).get("content-length", "0"))
    return ReceivedRequest(method, target, headers, await reader.readexactly(length))


def http_response(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """Return a complete response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")
