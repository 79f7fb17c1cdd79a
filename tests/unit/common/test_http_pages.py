"""Pages over HTTP: what is not a request gets an answer too."""

from __future__ import annotations

import asyncio
import gc
import socket
from http import HTTPStatus

import pytest

from plimsoll.common.http_pages import PageRequest, PageResponse, PageServer

LONG = b"x" * (17 << 10)


async def echo(request: PageRequest) -> PageResponse:
    return PageResponse(f"{request.method} {request.body.decode()}")


async def exchange(sent: bytes) -> bytes:
    """Send bytes to a server with one page, close the sending half and return all that comes back."""
    server = PageServer({("GET", "/echo"): echo, ("POST", "/echo"): echo}, max_body=64)
    port = await server.listen("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        return received
    finally:
        await server.stop()


def status_of(response: bytes) -> bytes:
    return response.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", b"400 Bad Request"),
        (b"hello", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400 Bad Request"),  # a client that speaks TLS
        (b"GET /echo\r\n\r\n", b"400 Bad Request"),
        (b"GET /echo HTTP/2.0\r\n\r\n", b"400 Bad Request"),
        (b"POST /echo HTTP/1.1\r\nContent-Length: ten\r\n\r\n", b"400 Bad Request"),
        (b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400 Bad Request"),
        (b"POST /echo HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400 Bad Request"),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400 Bad Request"),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 65\r\n\r\n", f"413 {HTTPStatus(413).phrase}".encode()),
        (
            b"GET /echo HTTP/1.1\r\nA: " + b"x" * (17 << 10) + b"\r\n\r\n",
            b"431 Request Header Fields Too Large",
        ),
    ],
)
def test_what_is_not_a_request_is_refused(sent: bytes, status: bytes) -> None:
    received = asyncio.run(exchange(sent))
    assert status_of(received) == b"HTTP/1.1 " + status
    assert b"Connection: close" in received


def test_requests_on_one_connection_are_served_in_turn() -> None:
    first = b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    received = asyncio.run(exchange(first + b"GET /echo HTTP/1.1\r\n\r\n"))
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert b"POST abc" in received
    assert received.endswith(b"GET ")


def test_a_bad_request_ends_its_connection() -> None:
    received = asyncio.run(exchange(b"nonsense\r\n\r\nGET /echo HTTP/1.1\r\n\r\n"))
    assert received.count(b"HTTP/1.1") == 1


def test_a_connection_without_a_request_is_closed_silently() -> None:
    assert asyncio.run(exchange(b"")) == b""


@pytest.mark.parametrize("turns", range(3, 8))
def test_a_connection_is_closed_whenever_the_server_stops(turns: int) -> None:
    """asyncio accepts it in three turns of the loop. An unclosed one is reported by the garbage collector."""

    async def scenario() -> None:
        server = PageServer({("GET", "/echo"): echo})
        port = await server.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            client.setblocking(False)
            received = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 60)
            assert received == b""

    asyncio.run(scenario())
    gc.collect()
