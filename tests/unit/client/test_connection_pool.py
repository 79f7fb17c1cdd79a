"""HTTP connection pool: response formats, chunking, and invalid responses."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.config import ClientConfig
from plimsoll.client.connection_pool import Connection, Connections, write_request
from plimsoll.client.http import HttpTransport
from plimsoll.client.transport import Reply, Request
from plimsoll.errors import InputError, UnreachableError
from tests.unit.client.wire import ReceivedRequest, chunked, http_response, serving
from tests.waiting import until

BODY = b'{"kind":"Pod"}'


class Pipe(asyncio.Transport):
    """Peer of a connection: records what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False

    def write(self, data: Any) -> None:
        assert data

    def abort(self) -> None:
        self.dropped = True


def feed(*pieces: bytes, end: bool = False) -> tuple[Reply | UnreachableError | None, Connection, Pipe]:
    """Return the response parsed from these pieces; None if it is incomplete."""

    async def run() -> tuple[Reply | UnreachableError | None, Connection, Pipe]:
        connection, pipe = Connection(), Pipe()
        connection.connection_made(pipe)
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", waiter, "GET /")
        for piece in pieces:
            connection.data_received(piece)
        if end:
            connection.connection_lost(None)
        if not waiter.done():
            return None, connection, pipe
        error = waiter.exception()
        assert error is None or isinstance(error, UnreachableError)
        return (waiter.result() if error is None else error), connection, pipe

    return asyncio.run(run())


ANSWERS = {
    "length": (http_response(BODY), 200, BODY, True),
    "empty": (http_response(b"", "201 Created"), 201, b"", True),
    "chunks": (chunked(BODY[:3], BODY[3:]), 200, BODY, True),
    "no chunk": (chunked(), 200, b"", True),
    "extensions": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\nE;x=1\r\n" + BODY + b"\r\n0\r\nA: b\r\n\r\n",
        200, BODY, True,
    ),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + http_response(BODY), 200, BODY, True),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "last": (http_response(BODY, Connection="close"), 200, BODY, False),
    "old": (http_response(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"), 200, BODY, False),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_response_formats(name: str) -> None:
    raw, status, body, stays = ANSWERS[name]
    for pieces in ([raw], [raw[n : n + 1] for n in range(len(raw))]):
        reply, connection, _ = feed(*pieces)
        assert isinstance(reply, Reply)
        assert (reply.status, reply.body) == (status, body)
        assert connection.open is stays


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 200), max_size=8))
def test_responses_are_parsed_however_they_are_chunked(name: str, cuts: list[int]) -> None:
    raw, status, body, _ = ANSWERS[name]
    marks = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    reply, _, _ = feed(*(raw[a:b] for a, b in itertools.pairwise(marks)))
    assert isinstance(reply, Reply)
    assert (reply.status, reply.body) == (status, body)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_truncated_response_is_an_error(name: str) -> None:
    raw, _, _, _ = ANSWERS[name]
    for stop in range(len(raw)):
        reply, connection, _ = feed(raw[:stop], end=True)
        assert isinstance(reply, UnreachableError)
        assert reply.sent
        assert "GET /: the connection broke" in str(reply)
        assert not connection.open


def test_a_response_without_length_ends_with_its_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    assert feed(head, b"one", b"two")[0] is None
    reply, connection, _ = feed(head, b"one", b"two", end=True)
    assert isinstance(reply, Reply)
    assert reply.body == b"onetwo"
    assert not connection.open


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"SSH-2.0",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (300 << 10),
    ],
)
def test_an_invalid_response_closes_the_connection(raw: bytes) -> None:
    reply, connection, pipe = feed(raw)
    assert isinstance(reply, UnreachableError)
    assert reply.sent
    assert not connection.open
    assert pipe.dropped


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(noise: bytes) -> None:
    for raw in (noise, b"HTTP/1.1 " + noise, http_response(BODY)[:30] + noise, chunked()[:-5] + noise):
        feed(raw, end=True)


def test_extra_bytes_close_the_connection() -> None:
    reply, connection, _ = feed(http_response(BODY) + http_response(b"more"))
    assert isinstance(reply, Reply)
    assert reply.body == BODY
    assert not connection.open


def test_an_unsolicited_response_closes_the_connection() -> None:
    connection, pipe = Connection(), Pipe()
    connection.connection_made(pipe)
    connection.data_received(http_response(b"", "408 Request Timeout"))
    assert not connection.open
    assert pipe.dropped


def test_long_responses_take_linear_time() -> None:
    """16 MiB in pieces as they come from a socket."""
    piece = b"x" * (64 << 10)
    begin = time.process_time()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(piece) * 256}\r\n\r\n".encode()
    reply, _, _ = feed(head, *[piece] * 256)
    assert isinstance(reply, Reply)
    assert len(reply.body) == 16 << 20
    whole = b"1000000\r\n"
    reply, _, _ = feed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + whole, *[piece] * 256, b"\r\n0\r\n\r\n"
    )
    assert isinstance(reply, Reply)
    assert time.process_time() - begin < 30


# -- requests


def test_a_request_on_the_wire() -> None:
    wire = write_request("PATCH", "/a?b=c", [("Host", "h"), ("X", "ä")], b"{}")
    assert wire == "PATCH /a?b=c HTTP/1.1\r\nHost: h\r\nX: ä\r\nContent-Length: 2\r\n\r\n{}".encode()
    assert b"Content-Length: 0" in write_request("POST", "/", [], None)
    assert b"Content-Length" not in write_request("GET", "/", [], None)


@pytest.mark.parametrize("text", ["a\r\nX: y", "a\nb", "a\rb", "a\0b"])
def test_header_injection_is_refused(text: str) -> None:
    for method, target, value in ((text, "/", "v"), ("GET", text, "v"), ("GET", "/", text)):
        with pytest.raises(ValueError):  # noqa: PT011 - there is nothing to say
            write_request(method, target, [("H", value)], None)

    async def run() -> None:
        transport = HttpTransport(ClientConfig("http://127.0.0.1:1"))
        with pytest.raises(InputError, match="not a request"):
            await transport.send(Request("GET", "/" + text))
        await transport.close()

    asyncio.run(run())


# -- connections


async def answer_body(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(http_response(BODY))


async def test_idle_connections_expire() -> None:
    async with serving(answer_body) as wire:
        for keep, wanted in ((60.0, 1), (-1.0, 3)):
            before = wire.connections
            connections = Connections("127.0.0.1", wire.port, keep=keep)
            for _ in range(3):
                await connections.send(b"GET / HTTP/1.1\r\n\r\n", 5, 5, None, "it")
            assert wire.connections - before == wanted
            await connections.close()


async def test_a_cancelled_call_closes_its_connection() -> None:
    async def never(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        return

    async with serving(never) as wire:
        connections = Connections("127.0.0.1", wire.port, keep=60)
        task = asyncio.create_task(connections.send(b"GET / HTTP/1.1\r\n\r\n", 5, 5, None, "it"))
        await until(lambda: wire.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: wire.ended)
        await connections.close()


async def test_closing_the_pool_ends_pending_calls() -> None:
    async def never(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        return

    async with serving(never) as wire:
        transport = HttpTransport(ClientConfig(wire.url))
        task = asyncio.create_task(transport.send(Request("POST", "/a", body=b"{}")))
        await until(lambda: wire.requests)
        await transport.close()
        with pytest.raises(UnreachableError) as caught:
            await task
        assert caught.value.sent


async def test_long_reads_are_compressed_and_writes_are_not() -> None:
    async with serving(answer_body) as wire:
        transport = HttpTransport(ClientConfig(wire.url, compression=True))
        await transport.send(Request("GET", "/a"))
        await transport.send(Request("PATCH", "/a", body=b"{}"))
        assert [seen.header("accept-encoding") for seen in wire.requests] == ["gzip", "identity"]
        await transport.close()
