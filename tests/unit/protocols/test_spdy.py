"""SPDY/3.1: frames in any pieces, limits, and streams of a session."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import SpdyProtocolError
from plimsoll.protocols.spdy import SpdySession, SpdyStream
from plimsoll.protocols.spdy.frames import (
    INVALID_STREAM,
    MAX_CONTROL_BYTES,
    MAX_HEADER_BYTES,
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    GoAway,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)

IDS = st.integers(1, 2**31 - 1)
TEXTS = st.text(st.characters(codec="latin-1", exclude_characters="\0"), max_size=20)
HEADERS = st.dictionaries(st.text("abcdefghij-", min_size=1, max_size=10), TEXTS, max_size=5)
FRAMES = st.one_of(
    st.builds(SynStream, IDS, HEADERS, st.booleans()),
    st.builds(SynReply, IDS, HEADERS, st.booleans()),
    st.builds(RstStream, IDS, st.integers(0, 11)),
    st.builds(Ping, st.integers(0, 2**32 - 1)),
    st.builds(GoAway, IDS, st.integers(0, 2)),
    st.builds(Data, IDS, st.binary(max_size=50), st.booleans()),
)


def join_data(frames: list[Frame]) -> list[Frame]:
    """Join the pieces of data frames, which arrive as they are cut."""
    found: list[Frame] = []
    for frame in frames:
        last = found[-1] if found else None
        if (
            isinstance(frame, Data)
            and isinstance(last, Data)
            and not last.fin
            and last.stream == frame.stream
        ):
            found[-1] = Data(frame.stream, last.data + frame.data, frame.fin)
        elif not (isinstance(frame, Data) and not frame.data and not frame.fin):
            found.append(frame)
    return found


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 30), max_size=60))
def test_frames_survive_any_cut(frames: list[Frame], cuts: list[int]) -> None:
    encoder, decoder = FrameEncoder(), FrameDecoder()
    wire = b"".join(encoder.encode(frame) for frame in frames)
    found: list[Frame] = []
    for size in (*cuts, len(wire)):
        piece, wire = wire[:size], wire[size:]
        found += decoder.feed(piece)
    assert join_data(found) == join_data(frames)


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    with suppress(SpdyProtocolError):
        for frame in FrameDecoder().feed(data):
            assert frame


def test_limits() -> None:
    encoder = FrameEncoder()
    bomb = encoder.encode(SynStream(1, {"a": "x" * (MAX_HEADER_BYTES + 1)}))
    with pytest.raises(SpdyProtocolError, match="header block of more than"):
        list(FrameDecoder().feed(bomb))
    long = (0x80030004).to_bytes(4, "big") + (MAX_CONTROL_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(SpdyProtocolError, match="control frame of"):
        list(FrameDecoder().feed(long))
    with pytest.raises(SpdyProtocolError, match="version 2"):
        list(FrameDecoder().feed((0x80020001).to_bytes(4, "big") + bytes(4)))


class Pipe:
    """Byte channel of a session under test."""

    def __init__(self, *sent: bytes) -> None:
        self.sent = list(sent)
        self.received = b""
        self.more = asyncio.Event()

    async def read(self) -> bytes:
        while not self.sent:
            self.more.clear()
            await self.more.wait()
        return self.sent.pop(0)

    async def write(self, data: bytes) -> None:
        self.received += data


async def test_streams_are_accepted_read_and_answered() -> None:
    encoder = FrameEncoder()
    pipe = Pipe(
        encoder.encode(SynStream(1, {"streamType": "data", "port": "80"})),
        encoder.encode(Data(1, b"abc")) + encoder.encode(Data(1, b"", fin=True)),
        encoder.encode(Ping(1)),
        encoder.encode(SynStream(2)),
        b"",
    )
    opened: list[SpdyStream] = []
    session = SpdySession(pipe, opened.append)
    await session.run()
    assert [stream.headers for stream in opened] == [{"streamtype": "data", "port": "80"}]
    assert [await opened[0].read(), await opened[0].read()] == [b"abc", b""]
    with pytest.raises(ConnectionError):
        await opened[0].write(b"late")
    answers = list(FrameDecoder().feed(pipe.received))
    assert answers == [SynReply(1, {}), Ping(1), RstStream(2, INVALID_STREAM)]


async def test_a_stream_that_is_not_read_stops_the_connection() -> None:
    encoder = FrameEncoder()
    pipe = Pipe(encoder.encode(SynStream(1)), *(encoder.encode(Data(1, b"x" * 65536)) for _ in range(20)))
    opened: list[SpdyStream] = []
    task = asyncio.create_task(SpdySession(pipe, opened.append).run())
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(pipe.sent) >= 14, "it read more than it may hold"
    for _ in range(20):
        await opened[0].read()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pipe.sent
    task.cancel()
