"""Several streams over one connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.protocols import mux as muxes
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux, encode_frame
from plimsoll.protocols.nri.events import RUNTIME
from plimsoll.protocols.ttrpc import TtrpcClient, TtrpcServer
from tests.sizes import examples
from tests.waiting import DEADLINE


async def _ends() -> tuple[Mux, asyncio.StreamReader, asyncio.StreamWriter]:
    left, right = socket.socketpair()
    mux = Mux(*await asyncio.open_unix_connection(sock=left))
    return mux, *await asyncio.open_unix_connection(sock=right)


async def test_frame_bytes() -> None:
    assert encode_frame(2, b"abc") == b"\0\0\0\x02\0\0\0\x03abc"
    mux, reader, writer = await _ends()
    assert await mux.open(2).write(b"abc", b"d")
    assert await reader.readexactly(20) == b"\0\0\0\x02\0\0\0\x03abc" + b"\0\0\0\x02\0\0\0\x01d"
    await mux.close()
    writer.close()


async def test_header_and_data_of_a_call_are_separate_frames() -> None:
    """The Go reader has 4096 bytes of room and takes no larger frame with the header in it."""
    mux, reader, writer = await _ends()
    client = TtrpcClient(mux.open(RUNTIME_SERVICE))
    request = nri.RegisterPluginRequest(plugin_name="x" * 10_000)
    call = asyncio.create_task(
        client.call(RUNTIME.methods_by_name["RegisterPlugin"], request, timeout=DEADLINE)
    )
    assert await reader.readexactly(8) == struct.pack(">II", 2, 10)
    header = await reader.readexactly(10)
    length = int.from_bytes(header[:4], "big")
    assert length > 10_000
    assert await reader.readexactly(8) == struct.pack(">II", 2, length)
    await reader.readexactly(length)
    await client.close()
    await call
    await mux.close()
    writer.close()


pieces = st.lists(st.tuples(st.sampled_from([1, 2, 7]), st.binary(max_size=300)), max_size=12)


@settings(max_examples=examples(50), deadline=None)
@given(pieces, st.integers(1, 40))
def test_streams_are_reassembled_however_they_are_chunked(sent: list[tuple[int, bytes]], step: int) -> None:
    """The bytes read equal those written, however they are interleaved; stream 7 has no listener."""

    async def scenario() -> None:
        mux, _, writer = await _ends()
        channels = {number: mux.open(number) for number in (1, 2)}
        wire = b"".join(encode_frame(number, data) for number, data in sent)
        for start in range(0, len(wire), step):
            writer.write(wire[start : start + step])
        writer.write_eof()
        for number, channel in channels.items():
            found = b""
            while some := await channel.read(17):
                found += some
            assert found == b"".join(data for owner, data in sent if owner == number)
        await mux.close()
        writer.close()

    asyncio.run(scenario())


async def test_a_frame_longer_than_any_message_ends_the_connection() -> None:
    mux, reader, writer = await _ends()
    channel = mux.open(1)
    writer.write(struct.pack(">II", 1, muxes.MAX_FRAME_SIZE + 1))
    assert await channel.read(1) == b""
    assert mux.closed
    assert "longer than any message" in mux.reason
    assert await reader.read() == b""
    assert not await channel.write(b"x")
    assert await mux.open(5).read(1) == b""
    await mux.close()
    writer.close()


async def test_a_slow_reader_has_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muxes, "MAX_BUFFERED", 10_000)
    mux, _, writer = await _ends()
    channel = mux.open(1)
    total = 4_000_000

    async def send() -> None:
        for _ in range(total // 1000):
            writer.write(encode_frame(1, bytes(1000)))
            await writer.drain()

    sending = asyncio.create_task(send())
    await asyncio.wait([sending], timeout=0.1)
    assert not sending.done()
    assert len(channel.buffer) <= 10_000 + muxes.CHUNK_SIZE
    received = 0
    while received < total:
        received += len(await channel.read(65536))
    await sending
    await mux.close()
    writer.close()


async def test_both_sides_call_each_other_over_one_connection() -> None:
    left, right = socket.socketpair()
    ends = [Mux(*await asyncio.open_unix_connection(sock=end)) for end in (left, right)]

    async def answer(request: nri.UpdateContainersRequest) -> nri.UpdateContainersResponse:
        return nri.UpdateContainersResponse(failed=request.update)

    servers = [
        TtrpcServer(ends[0].open(PLUGIN_SERVICE), RUNTIME, {"UpdateContainers": answer}),
        TtrpcServer(ends[1].open(RUNTIME_SERVICE), RUNTIME, {"UpdateContainers": answer}),
    ]
    clients = [TtrpcClient(ends[1].open(PLUGIN_SERVICE)), TtrpcClient(ends[0].open(RUNTIME_SERVICE))]
    method = RUNTIME.methods_by_name["UpdateContainers"]
    requests = [
        nri.UpdateContainersRequest(update=[nri.ContainerUpdate(container_id="x" * size)])
        for size in (0, 10, 4096, 100_000, 3_000_000)
    ]
    replies: list[Any] = await asyncio.gather(
        *(client.call(method, request, timeout=DEADLINE) for request in requests for client in clients)
    )
    assert [reply.failed[0] for reply in replies[::2]] == [request.update[0] for request in requests]
    parts: list[TtrpcClient | TtrpcServer | Mux] = [*clients, *servers, *ends]
    for part in parts:
        await part.close()
