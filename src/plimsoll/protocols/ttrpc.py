"""ttrpc over any byte stream, as used by containerd and NRI (docs/spec/node-protocols.md, "ttrpc").

Calls are unary; many can be in progress at once and are answered in any order. Guarantees: whatever a peer
sends, nothing is raised and at most one message is held in memory; a message over 4 MiB is rejected with
RESOURCE_EXHAUSTED on either side and the connection stays usable; a failed call returns a `TtrpcFault` and
never raises; `close` ends all tasks.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from plimsoll.common.tasks import cancel_tasks, start_task
from plimsoll.protocols.messages import ttrpc

logger = logging.getLogger(__name__)

#: Maximum size of a message, in bytes.
MAX_MESSAGE_SIZE = 4 * 1024 * 1024
#: Maximum number of calls in progress on one connection; more are rejected.
MAX_CALLS = 256

REQUEST, RESPONSE, DATA = 1, 2, 3

# gRPC status codes in use.
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14

_HEADER = struct.Struct(">IIBB")
HEADER_SIZE = _HEADER.size
_LAST_STREAM = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """Header of a message."""

    length: int
    stream: int
    type: int
    flags: int = 0

    def encode(self) -> bytes:
        return _HEADER.pack(self.length, self.stream, self.type, self.flags)

    @staticmethod
    def decode(data: bytes) -> FrameHeader:
        return FrameHeader(*_HEADER.unpack(data))


@dataclass(frozen=True, slots=True)
class TtrpcFault:
    """Error of a call.

    `kind` is status (reported by the peer), timeout, closed, oversized (the message is too long to send or to
    receive) or malformed (the response cannot be decoded).
    """

    code: int
    message: str
    kind: str = "status"

    @property
    def fatal(self) -> bool:
        """True if the peer can no longer be called."""
        return self.kind in ("timeout", "closed")


CLOSED = TtrpcFault(UNAVAILABLE, "ttrpc: closed", "closed")
TIMED_OUT = TtrpcFault(DEADLINE_EXCEEDED, "context deadline exceeded", "timeout")


def oversized(length: int) -> TtrpcFault:
    text = f"message length {length} exceed maximum message size of {MAX_MESSAGE_SIZE}"
    return TtrpcFault(RESOURCE_EXHAUSTED, text, "oversized")


class TtrpcStream(Protocol):
    """Bidirectional byte stream."""

    async def read(self, length: int) -> bytes:
        """Read up to `length` bytes; b"" at the end. Never raises for network errors."""
        ...

    async def write(self, *parts: bytes) -> bool:
        """Write parts without interleaving; return False if the stream is closed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """Received message; without data if it was too long."""

    header: FrameHeader
    data: bytes | None


async def read_frame(stream: TtrpcStream) -> Frame | None:
    """Read the next message; None if the stream has ended, even within a message."""
    head = await _read_all(stream, HEADER_SIZE)
    if head is None:
        return None
    header = FrameHeader.decode(head)
    if header.length > MAX_MESSAGE_SIZE:
        return Frame(header, None) if await _skip(stream, header.length) else None
    data = await _read_all(stream, header.length)
    return None if data is None else Frame(header, data)


async def _read_all(stream: TtrpcStream, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        some = await stream.read(length - len(data))
        if not some:
            return None
        data += some
    return bytes(data)


async def _skip(stream: TtrpcStream, length: int) -> bool:
    while length:
        some = await stream.read(min(length, 65536))
        if not some:
            return False
        length -= len(some)
    return True


async def _write(stream: TtrpcStream, header: FrameHeader, data: bytes) -> bool:
    # Header and data are separate parts: NRI's multiplexer sends each as a separate frame.
    return await stream.write(header.encode(), data) if data else await stream.write(header.encode())


class TtrpcClient:
    """Client of one stream."""

    def __init__(self, stream: TtrpcStream) -> None:
        self._stream = stream
        self.next = 1
        self._waiting: dict[int, asyncio.Future[Frame | None]] = {}
        self._closed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        """Wait until the stream has ended, on either side."""
        await self._closed.wait()

    async def call(self, method: MethodDescriptor, request: Message, *, timeout: float) -> Any | TtrpcFault:
        """Return the response, or a TtrpcFault after `timeout` seconds. Calls can be cancelled."""
        envelope = ttrpc.Request(
            service=method.containing_service.full_name,
            method=method.name,
            payload=request.SerializeToString(),
            timeout_nano=max(1, int(timeout * 1e9)),
        )
        data = envelope.SerializeToString()
        if len(data) > MAX_MESSAGE_SIZE:
            return oversized(len(data))
        if self.next > _LAST_STREAM:  # stream IDs are never reused: a new connection is needed
            self._end()
        if self.closed:
            return CLOSED
        number, self.next = self.next, self.next + 2
        answer: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout):
                if not await _write(self._stream, FrameHeader(len(data), number, REQUEST), data):
                    return CLOSED
                frame = await answer
        except TimeoutError:
            return TIMED_OUT
        finally:
            del self._waiting[number]
        return CLOSED if frame is None else _decode_response(frame, method)

    async def _read(self) -> None:
        try:
            while (frame := await read_frame(self._stream)) is not None:
                waiting = self._waiting.get(frame.header.stream)
                if frame.header.type != RESPONSE or waiting is None or waiting.done():
                    continue  # the response of a call that has timed out, or not a response
                waiting.set_result(frame)
        finally:
            self._end()

    def _end(self) -> None:
        self._closed.set()
        self._stream.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    async def close(self) -> None:
        self._end()
        await cancel_tasks([self._reader])


def _decode_response(frame: Frame, method: MethodDescriptor) -> Any | TtrpcFault:
    if frame.data is None:
        return oversized(frame.header.length)
    try:
        envelope = ttrpc.Response.FromString(frame.data)
        if envelope.status.code:
            return TtrpcFault(envelope.status.code, envelope.status.message)
        return GetMessageClass(method.output_type).FromString(envelope.payload)
    except DecodeError as error:
        return TtrpcFault(INTERNAL, f"protocol error: {method.name}: {error}", "malformed")


#: Handler of a method: returns a message, None for an empty response, or a fault.
Handler: TypeAlias = Callable[[Any], Awaitable[Message | TtrpcFault | None]]


class TtrpcServer:
    """Server of one stream with the handlers of a service; missing methods are unimplemented."""

    def __init__(
        self,
        stream: TtrpcStream,
        service: ServiceDescriptor,
        handlers: Mapping[str, Handler],
        *,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._stream = stream
        self._service = service
        self._handlers = dict(handlers)
        self._max_calls = max_calls
        self._last = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def _read(self) -> None:
        try:
            while (frame := await read_frame(self._stream)) is not None:
                refusal = self._refusal(frame)
                if refusal is not None:
                    # Awaited here, so that nothing more is read from a peer that does not read its responses.
                    await self._send(frame.header.stream, refusal)
                    continue
                start_task(self._calls, self._answer(frame))
        finally:
            self._closed.set()
            self._stream.close()
            for task in self._calls:
                task.cancel()

    def _refusal(self, frame: Frame) -> TtrpcFault | None:
        """Return the fault of an invalid frame."""
        header = frame.header
        if header.stream % 2 == 0:
            return TtrpcFault(INVALID_ARGUMENT, "StreamID must be odd for client initiated streams")
        if header.type == DATA:
            return TtrpcFault(INVALID_ARGUMENT, "StreamID is no longer active")
        if header.type != REQUEST:
            return TtrpcFault(INVALID_ARGUMENT, f"unsupported message type {header.type}")
        if header.stream <= self._last:
            return TtrpcFault(INVALID_ARGUMENT, "StreamID cannot be re-used and must increment")
        self._last = header.stream
        if frame.data is None:
            return oversized(header.length)
        if len(self._calls) >= self._max_calls:
            return TtrpcFault(RESOURCE_EXHAUSTED, f"more than {self._max_calls} requests are in progress")
        return None

    async def _answer(self, frame: Frame) -> None:
        await self._send(frame.header.stream, await self._handle_call(frame.data or b""))

    async def _send(self, stream: int, answer: Message | TtrpcFault | None) -> None:
        data = _encode_response(answer)
        if len(data) > MAX_MESSAGE_SIZE:
            data = _encode_response(oversized(len(data)))
        await _write(self._stream, FrameHeader(len(data), stream, RESPONSE), data)

    async def _handle_call(self, data: bytes) -> Message | TtrpcFault | None:
        try:
            envelope = ttrpc.Request.FromString(data)
        except DecodeError as error:
            return TtrpcFault(INVALID_ARGUMENT, f"unmarshal request error: {error}")
        if envelope.service != self._service.full_name:
            return TtrpcFault(UNIMPLEMENTED, f"service {envelope.service}")
        method = self._service.methods_by_name.get(envelope.method)
        handler = self._handlers.get(envelope.method)
        if method is None or handler is None:
            return TtrpcFault(UNIMPLEMENTED, f"method {envelope.method}")
        try:
            request = GetMessageClass(method.input_type).FromString(envelope.payload)
        except DecodeError as error:
            return TtrpcFault(INTERNAL, f"ttrpc: error unmarshalling payload: {error}")
        limit = envelope.timeout_nano / 1e9 if envelope.timeout_nano > 0 else None
        try:
            async with asyncio.timeout(limit):
                return await handler(request)
        except TimeoutError:
            return TIMED_OUT
        except Exception as error:  # an error of a handler fails this call only
            logger.exception("%s failed", envelope.method)
            return TtrpcFault(UNKNOWN, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        self._closed.set()
        self._stream.close()
        await cancel_tasks([self._reader, *self._calls])


def _encode_response(answer: Message | TtrpcFault | None) -> bytes:
    if isinstance(answer, TtrpcFault):
        status = ttrpc.Status(code=answer.code or UNKNOWN, message=answer.message)
        return ttrpc.Response(status=status).SerializeToString()
    return ttrpc.Response(payload=b"" if answer is None else answer.SerializeToString()).SerializeToString()
