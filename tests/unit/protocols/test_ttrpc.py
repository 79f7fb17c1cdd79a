"""ttrpc calls, with well-behaved and hostile peers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.protocols import ttrpc
from plimsoll.protocols.messages import nri
from plimsoll.protocols.messages import ttrpc as envelopes
from plimsoll.protocols.nri.events import RUNTIME
from plimsoll.protocols.ttrpc import FrameHeader, TtrpcClient, TtrpcFault, TtrpcServer
from tests.sizes import examples
from tests.waiting import DEADLINE

REGISTER = RUNTIME.methods_by_name["RegisterPlugin"]
UPDATE = RUNTIME.methods_by_name["UpdateContainers"]

#: RegisterPlugin of a plugin `x` with the index 10, as the first call of a connection that lasts 5 s.
GOLDEN_REQUEST = (
    bytes.fromhex("0000003d 00000001 01 00".replace(" ", ""))
    + b"\x0a\x1cnri.pkg.api.v1alpha1.Runtime"
    + b"\x12\x0eRegisterPlugin"
    + b"\x1a\x07\x0a\x01x\x12\x0210"
    + b"\x20\x80\xe4\x97\xd0\x12"
)
#: An empty answer to it, and one that says no.
GOLDEN_EMPTY = bytes.fromhex("00000000000000010200")
GOLDEN_REFUSED = bytes.fromhex("00000008000000010200") + b"\x0a\x06\x08\x02\x12\x02no"


class SocketStream:
    """Stream over a socket's reader and writer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, length: int) -> bytes:
        try:
            return await self._reader.read(length)
        except OSError:
            return b""

    async def write(self, *parts: bytes) -> bool:
        if self._writer.is_closing():
            return False
        self._writer.writelines(parts)
        try:
            await self._writer.drain()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._writer.close()


async def _pair() -> tuple[SocketStream, SocketStream]:
    here, reader, writer = await _raw_pair()
    return here, SocketStream(reader, writer)


async def _raw_pair() -> tuple[SocketStream, asyncio.StreamReader, asyncio.StreamWriter]:
    left, right = socket.socketpair()
    here = SocketStream(*await asyncio.open_unix_connection(sock=left))
    return here, *await asyncio.open_unix_connection(sock=right)


async def _fill(stream: SocketStream, data: bytes) -> None:
    assert await stream.write(data)


async def _exactly(stream: SocketStream, length: int) -> bytes:
    data = b""
    while len(data) < length:
        some = await stream.read(length - len(data))
        assert some
        data += some
    return data


def _ask(**fields: Any) -> nri.RegisterPluginRequest:
    return nri.RegisterPluginRequest(plugin_name="x", plugin_idx="10", **fields)


async def test_request_bytes_equal_those_of_containerd() -> None:
    here, there = await _pair()
    client = TtrpcClient(here)
    call = asyncio.create_task(client.call(REGISTER, _ask(), timeout=5))
    assert await _exactly(there, len(GOLDEN_REQUEST)) == GOLDEN_REQUEST
    await _fill(there, GOLDEN_EMPTY)
    assert await call == nri.Empty()
    await client.close()
    there.close()


def test_response_bytes_equal_those_of_containerd() -> None:
    async def scenario(answer: TtrpcFault | None, want: bytes) -> None:
        async def handler(request: nri.RegisterPluginRequest) -> TtrpcFault | None:
            assert (request.plugin_name, request.plugin_idx) == ("x", "10")
            return answer

        here, there = await _pair()
        server = TtrpcServer(here, RUNTIME, {"RegisterPlugin": handler})
        await _fill(there, GOLDEN_REQUEST)
        assert await _exactly(there, len(want)) == want
        await server.close()
        there.close()

    asyncio.run(scenario(None, GOLDEN_EMPTY))
    asyncio.run(scenario(TtrpcFault(2, "no"), GOLDEN_REFUSED))


async def _both(handlers: Any, **options: Any) -> tuple[TtrpcClient, TtrpcServer]:
    here, there = await _pair()
    return TtrpcClient(here), TtrpcServer(there, RUNTIME, handlers, **options)


async def test_many_calls_are_answered_in_any_order() -> None:
    gates = [asyncio.Event() for _ in range(20)]

    async def handler(request: nri.RegisterPluginRequest) -> TtrpcFault:
        await gates[int(request.plugin_idx)].wait()
        return TtrpcFault(9, request.plugin_idx)

    client, server = await _both({"RegisterPlugin": handler})
    calls = [
        asyncio.create_task(
            client.call(REGISTER, nri.RegisterPluginRequest(plugin_idx=str(number)), timeout=DEADLINE)
        )
        for number in range(20)
    ]
    for number in reversed(range(20)):
        gates[number].set()
        assert await calls[number] == TtrpcFault(9, str(number))
    await client.close()
    await server.close()


async def test_a_timed_out_call_does_not_break_the_connection() -> None:
    late = asyncio.Event()

    async def handler(request: nri.RegisterPluginRequest) -> None:
        if not request.plugin_name:
            await late.wait()

    client, server = await _both({"RegisterPlugin": handler})
    fault = await client.call(REGISTER, nri.RegisterPluginRequest(), timeout=0.05)
    assert fault in (ttrpc.TIMED_OUT, TtrpcFault(ttrpc.DEADLINE_EXCEEDED, "context deadline exceeded"))
    late.set()
    assert await client.call(REGISTER, _ask(), timeout=DEADLINE) == nri.Empty()
    await client.close()
    await server.close()


async def test_a_handler_is_cancelled_with_its_call() -> None:
    stopped = asyncio.Event()

    async def handler(request: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    here, there = await _pair()
    server = TtrpcServer(here, RUNTIME, {"RegisterPlugin": handler})
    data = envelopes.Request(
        service=RUNTIME.full_name, method="RegisterPlugin", timeout_nano=20_000_000
    ).SerializeToString()
    await _fill(there, FrameHeader(len(data), 1, ttrpc.REQUEST).encode() + data)
    frame = await ttrpc.read_frame(there)
    assert frame is not None
    assert frame.data is not None
    assert envelopes.Response.FromString(frame.data).status.code == ttrpc.DEADLINE_EXCEEDED
    assert stopped.is_set()
    await server.close()
    there.close()


async def test_status_codes(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Any) -> None:
        raise RuntimeError("boom")

    client, server = await _both({"UpdateContainers": broken})
    assert await client.call(REGISTER, _ask(), timeout=DEADLINE) == TtrpcFault(12, "method RegisterPlugin")
    refused = await client.call(UPDATE, nri.UpdateContainersRequest(), timeout=DEADLINE)
    assert refused == TtrpcFault(2, "RuntimeError: boom")
    await server.close()
    await client.wait_closed()
    assert await client.call(REGISTER, _ask(), timeout=DEADLINE) == ttrpc.CLOSED
    assert ttrpc.CLOSED.fatal
    assert ttrpc.TIMED_OUT.fatal
    assert not refused.fatal
    await client.close()


async def test_stream_ids_are_unique() -> None:
    client, server = await _both({"RegisterPlugin": _nothing})
    client.next = 2**32 - 1
    assert await client.call(REGISTER, _ask(), timeout=DEADLINE) == nri.Empty()
    assert await client.call(REGISTER, _ask(), timeout=DEADLINE) == ttrpc.CLOSED
    assert client.closed
    await client.close()
    await server.close()


async def test_calls_under_way_end_with_the_connection() -> None:
    here, there = await _pair()
    client = TtrpcClient(here)
    calls = [asyncio.create_task(client.call(REGISTER, _ask(), timeout=30)) for _ in range(3)]
    await _exactly(there, len(GOLDEN_REQUEST))
    there.close()
    assert await asyncio.gather(*calls) == [ttrpc.CLOSED] * 3
    await client.close()


async def test_oversized_messages_are_refused_and_the_connection_continues() -> None:
    async def handler(request: nri.UpdateContainersRequest) -> nri.UpdateContainersResponse:
        text = "x" * int(request.update[0].container_id)
        return nri.UpdateContainersResponse(failed=[nri.ContainerUpdate(container_id=text)])

    def ask(length: int) -> nri.UpdateContainersRequest:
        return nri.UpdateContainersRequest(update=[nri.ContainerUpdate(container_id=str(length))])

    client, server = await _both({"UpdateContainers": handler})
    long = nri.UpdateContainersRequest(update=[nri.ContainerUpdate(container_id="x" * (5 << 20))])
    fault = await client.call(UPDATE, long, timeout=DEADLINE)
    assert (fault.code, fault.kind) == (8, "oversized")
    fault = await client.call(UPDATE, ask(5 << 20), timeout=DEADLINE)
    assert fault.code == 8
    assert "exceed maximum message size of 4194304" in fault.message
    answer = await client.call(UPDATE, ask(4_000_000), timeout=DEADLINE)
    assert not isinstance(answer, TtrpcFault)
    assert len(answer.failed[0].container_id) == 4_000_000
    await client.close()
    await server.close()


@pytest.mark.parametrize("length", [ttrpc.MAX_MESSAGE_SIZE + 1, 6 << 20])
async def test_an_oversized_message_gets_an_error_and_the_connection_continues(length: int) -> None:
    async def handler(request: Any) -> None:
        return None

    here, there = await _pair()
    server = TtrpcServer(here, RUNTIME, {"RegisterPlugin": handler})
    sending = asyncio.create_task(
        _fill(there, FrameHeader(length, 1, ttrpc.REQUEST).encode() + bytes(length))
    )
    frame = await ttrpc.read_frame(there)
    assert frame is not None
    assert frame.data is not None
    assert envelopes.Response.FromString(frame.data).status.code == ttrpc.RESOURCE_EXHAUSTED
    await sending
    await _fill(there, GOLDEN_REQUEST.replace(b"\x00\x00\x00\x01\x01", b"\x00\x00\x00\x03\x01", 1))
    assert await _exactly(there, 10) == bytes.fromhex("00000000000000030200")
    # The same for answers.
    client = TtrpcClient(there)
    call = asyncio.create_task(client.call(REGISTER, _ask(), timeout=DEADLINE))
    await asyncio.sleep(0)
    await server.close()
    await call
    await client.close()


async def test_an_oversized_response_fails_its_call() -> None:
    here, there = await _pair()
    client = TtrpcClient(here)
    call = asyncio.create_task(client.call(REGISTER, _ask(), timeout=DEADLINE))
    await _exactly(there, len(GOLDEN_REQUEST))
    length = ttrpc.MAX_MESSAGE_SIZE + 1
    await _fill(there, FrameHeader(length, 1, ttrpc.RESPONSE).encode() + bytes(length))
    assert await call == ttrpc.oversized(length)
    assert not client.closed
    await client.close()
    there.close()


async def test_an_unreadable_response_fails_its_call() -> None:
    here, there = await _pair()
    client = TtrpcClient(here)
    for number, data in ((1, b"\xff\xff"), (3, b"\x12\x02\x0a\xff")):
        call = asyncio.create_task(client.call(REGISTER, _ask(), timeout=DEADLINE))
        await _exactly(there, len(GOLDEN_REQUEST))
        await _fill(there, FrameHeader(len(data), number, ttrpc.RESPONSE).encode() + data)
        fault = await call
        assert (fault.code, fault.kind) == (ttrpc.INTERNAL, "malformed")
    await client.close()
    there.close()


async def test_requests_past_the_limit_are_refused() -> None:
    gate = asyncio.Event()

    async def handler(request: Any) -> None:
        await gate.wait()

    client, server = await _both({"RegisterPlugin": handler}, max_calls=2)
    first = [asyncio.create_task(client.call(REGISTER, _ask(), timeout=DEADLINE)) for _ in range(2)]
    await asyncio.sleep(0)
    fault = await client.call(REGISTER, _ask(), timeout=DEADLINE)
    assert fault == TtrpcFault(8, "more than 2 requests are in progress")
    gate.set()
    assert await asyncio.gather(*first) == [nri.Empty(), nri.Empty()]
    await client.close()
    await server.close()


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (FrameHeader(0, 2, ttrpc.REQUEST), 3),
        (FrameHeader(0, 1, ttrpc.DATA), 3),
        (FrameHeader(0, 1, ttrpc.RESPONSE), 3),
        (FrameHeader(0, 1, 77), 3),
        (FrameHeader(0, 1, ttrpc.REQUEST), 12),
    ],
)
async def test_invalid_frames_get_an_error_response(header: FrameHeader, code: int) -> None:
    here, there = await _pair()
    server = TtrpcServer(here, RUNTIME, {})
    await _fill(there, header.encode())
    frame = await ttrpc.read_frame(there)
    assert frame is not None
    assert frame.data is not None
    assert frame.header.stream == header.stream
    assert envelopes.Response.FromString(frame.data).status.code == code
    await server.close()
    there.close()


async def test_streams_are_not_used_twice() -> None:
    here, there = await _pair()
    server = TtrpcServer(here, RUNTIME, {"RegisterPlugin": _nothing})
    await _fill(there, GOLDEN_REQUEST)
    assert await _exactly(there, 10) == GOLDEN_EMPTY
    await _fill(there, GOLDEN_REQUEST)
    frame = await ttrpc.read_frame(there)
    assert frame is not None
    assert frame.data is not None
    status = envelopes.Response.FromString(frame.data).status
    assert (status.code, status.message) == (3, "StreamID cannot be re-used and must increment")
    await server.close()
    there.close()


async def _nothing(request: Any) -> None:
    return None


frames = st.builds(
    lambda length, stream, kind, flags, data: (
        FrameHeader(length or len(data), stream, kind, flags).encode() + data
    ),
    st.sampled_from([0, 0, 0, 1, 5, 1000, (1 << 32) - 1]),
    st.integers(0, 9),
    st.integers(0, 4),
    st.integers(0, 255),
    st.binary(max_size=40)
    | st.builds(
        lambda service, method, payload: envelopes.Request(
            service=service, method=method, payload=payload
        ).SerializeToString(),
        st.sampled_from(["", "other", RUNTIME.full_name]),
        st.sampled_from(["", "RegisterPlugin", "Nothing"]),
        st.binary(max_size=20),
    ),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(frames | st.binary(max_size=30), max_size=6))
def test_any_bytes_end_at_most_the_connection(noise: list[bytes]) -> None:
    async def scenario() -> None:
        here, reader, writer = await _raw_pair()
        server = TtrpcServer(here, RUNTIME, {"RegisterPlugin": _nothing})
        writer.write(b"".join(noise))
        writer.write_eof()
        async with asyncio.timeout(DEADLINE):
            while await reader.read(65536):
                pass
            await server.wait_closed()
        await server.close()
        writer.close()

        here, reader, writer = await _raw_pair()
        client = TtrpcClient(here)
        call = asyncio.create_task(client.call(REGISTER, _ask(), timeout=DEADLINE))
        writer.write(b"".join(noise))
        writer.write_eof()
        answer = await call
        assert isinstance(answer, TtrpcFault | nri.Empty)
        await client.close()
        writer.close()

    asyncio.run(scenario())
