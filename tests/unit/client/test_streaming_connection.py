"""Bodies of responses, however they are split: streams, and compressed ones."""

from __future__ import annotations

import asyncio
import gzip
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.connection_pool import Connection, StreamingConnection
from plimsoll.errors import UnreachableError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Wire(asyncio.Transport):
    """Transport that only remembers what was done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = self.aborted = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def receive(pieces: list[bytes], *, lost: bool = False) -> tuple[int, bytes]:
    connection, wire = StreamingConnection(5.0), Wire()
    connection.connection_made(wire)
    waiter = asyncio.get_running_loop().create_future()
    connection.ask(b"", waiter, "GET x")
    for piece in pieces:
        connection.data_received(piece)
    if lost:
        connection.connection_lost(None)
    body = b"".join([part async for part in connection.chunks()])
    assert (await waiter).status == connection.status
    return connection.status, body


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 1000), max_size=12))
def test_a_stream_in_chunks_is_the_same_wherever_it_is_split(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body
    assert asyncio.run(receive(split(data, cuts))) == (200, b"".join(parts))


@given(st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=8), st.booleans())
def test_a_stream_with_a_length_or_up_to_the_end(body: bytes, cuts: list[int], length: bool) -> None:
    head = HEAD + (b"Content-Length: %d\r\n\r\n" % len(body) if length else b"\r\n")
    assert asyncio.run(receive(split(head + body, cuts), lost=not length)) == (200, body)


@pytest.mark.parametrize(
    "body", [b"5\r\nab", b"zz\r\nab\r\n", b"2\r\nabXX", b"-2\r\nab\r\n", b"2\r\nab\r\n"], ids=repr
)
def test_a_stream_that_breaks_is_an_error(body: bytes) -> None:
    with pytest.raises(UnreachableError):
        asyncio.run(receive([HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body], lost=True))


async def test_a_reader_that_is_slow_stops_the_connection_and_starts_it_again() -> None:
    connection, wire = StreamingConnection(5.0), Wire()
    connection.connection_made(wire)
    connection.ask(b"", asyncio.get_running_loop().create_future(), "GET x")
    connection.data_received(HEAD + b"\r\n" + b"x" * (2 << 20))
    assert wire.paused
    assert len(await anext(aiter(connection.chunks()))) == 2 << 20
    assert not wire.paused


@pytest.mark.parametrize("damaged", [False, True])
async def test_compressed_responses(damaged: bool) -> None:
    packed = gzip.compress(b"text" * 1000)
    if damaged:
        packed = packed[:-9]
    connection = Connection()
    connection.connection_made(Wire())
    waiter = asyncio.get_running_loop().create_future()
    connection.ask(b"", waiter, "GET x")
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    connection.data_received(head + packed)
    if damaged:
        with pytest.raises(UnreachableError, match="not HTTP"):
            await waiter
    else:
        assert (await waiter).body == b"text" * 1000
