"""Small HTTP server that sends exactly the bytes of a test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.streams import serving_streams


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

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire.connections += 1
        try:
            while not writer.is_closing():
                seen = await _read(reader)
                wire.requests.append(seen)
                await answer(seen, writer)
                await writer.drain()
        finally:
            wire.ended += 1

    async with serving_streams(accept, tls) as server:
        wire.port, wire.url = server.port, server.url
        yield wire


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
