"""Suite `nri`: a recorded conversation between a runtime and a plugin, message by message.

Each row's frames go through our multiplexer and come out as the message that the row shows. What the plugin
said is said again by our own half: its frames must keep to the framing rule and decode to the same.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from plimsoll.protocols import ttrpc
from plimsoll.protocols.messages import ttrpc as envelopes
from plimsoll.protocols.mux import RUNTIME_SERVICE, Mux, encode_frame
from plimsoll.protocols.nri.events import PLUGIN, RUNTIME

#: The streams of the connection: who serves on them.
SERVICES = {1: PLUGIN, RUNTIME_SERVICE: RUNTIME}


def check(row: dict[str, Any]) -> str | None:
    return asyncio.run(_check(row))


async def _check(row: dict[str, Any]) -> str | None:
    method = SERVICES[row["conn"]].methods_by_name[row["method"]]
    payloads = [base64.b64decode(frame) for frame in row["muxFrames"]]
    if difference := await _decoded(payloads, row, method):
        return difference
    if row["dir"] == "runtime->plugin":
        return None
    message = json_format.ParseDict(row["message"], _type(row, method)())
    parts = await (_asked if _is_request(row) else _answered)(row, method, message)
    if len(parts[0]) != ttrpc.HEADER_SIZE:
        return f"encoded: the header is a frame of {len(parts[0])} bytes"
    return await _decoded(parts, row, method, own=True)


def _is_request(row: dict[str, Any]) -> bool:
    return bool(row["header"]["type"] == ttrpc.REQUEST)


def _type(row: dict[str, Any], method: MethodDescriptor) -> Any:
    return GetMessageClass(method.input_type if _is_request(row) else method.output_type)


async def _decoded(
    payloads: list[bytes], row: dict[str, Any], method: MethodDescriptor, *, own: bool = False
) -> str | None:
    """Return the difference between frames and the row's message."""
    frame = await _received(row["conn"], payloads)
    if frame is None or frame.data is None:
        return "decoded: no whole message"
    header, want = frame.header, row["header"]
    found = {"length": header.length, "stream": header.stream, "type": header.type, "flags": header.flags}
    if found != want and not own:
        return f"header: {found}, want {want}"
    if _is_request(row):
        request = envelopes.Request.FromString(frame.data)
        seen: Any = (request.service, request.method, request.timeout_nano)
        expected: Any = (row["service"], row["method"], row["timeoutNano"])
        payload = request.payload
    else:
        response = envelopes.Response.FromString(frame.data)
        seen = (response.status.code, response.status.message)
        expected = (row["status"]["code"], row["status"]["message"])
        payload = response.payload
    if seen != expected:
        return f"envelope: {seen}, want {expected}"
    message = json_format.MessageToDict(
        _type(row, method).FromString(payload), preserving_proto_field_name=True
    )
    if message != row["message"]:
        return f"message: {message}, want {row['message']}"
    return None


async def _received(channel: int, payloads: list[bytes]) -> ttrpc.Frame | None:
    """Return the message in the frames, as our multiplexer decodes it."""
    reader = asyncio.StreamReader()
    for payload in payloads:
        reader.feed_data(encode_frame(channel, payload))
    reader.feed_eof()
    mux = Mux(reader, _NullWriter())  # type: ignore[arg-type]
    try:
        return await ttrpc.read_frame(mux.open(channel))
    finally:
        await mux.close()


class _NullWriter:
    """Writer that discards its bytes."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class _RecordingStream:
    """Stream that records what is written; the bytes to read are given."""

    def __init__(self, readable: bytes = b"") -> None:
        self.readable = readable
        self.parts: list[bytes] = []
        self.written = asyncio.Event()

    async def read(self, length: int) -> bytes:
        if not self.readable:
            await asyncio.Event().wait()
        some, self.readable = self.readable[:length], self.readable[length:]
        return some

    async def write(self, *parts: bytes) -> bool:
        self.parts.extend(parts)
        self.written.set()
        return True

    def close(self) -> None: ...


async def _asked(row: dict[str, Any], method: MethodDescriptor, message: Any) -> list[bytes]:
    """Return the request as our client sends it."""
    wire = _RecordingStream()
    client = ttrpc.TtrpcClient(wire)
    call = asyncio.create_task(client.call(method, message, timeout=row["timeoutNano"] / 1e9))
    await wire.written.wait()
    await client.close()
    await call
    return wire.parts


async def _answered(row: dict[str, Any], method: MethodDescriptor, message: Any) -> list[bytes]:
    """Return the response as our server sends it."""

    async def answer(request: Any) -> Any:
        return message

    service = method.containing_service
    data = envelopes.Request(service=service.full_name, method=method.name).SerializeToString()
    header = ttrpc.FrameHeader(len(data), row["header"]["stream"], ttrpc.REQUEST)
    wire = _RecordingStream(header.encode() + data)
    server = ttrpc.TtrpcServer(wire, service, {method.name: answer})
    await wire.written.wait()
    await server.close()
    return wire.parts
