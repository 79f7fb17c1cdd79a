"""gRPC server on a Unix socket: unary and server-streaming methods on an asyncio event loop.

HTTP/2 is h2's. A process that only serves plugins needs no gRPC runtime with threads of its own: it takes
less memory, and is idle while nothing calls. Guarantees: a call ends with a status, whatever its method does;
a call whose client has gone or whose deadline has passed is cancelled; the size of requests and the number
of calls of a connection are limited, and a client that reads slowly stops only its own streams.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn, TypeAlias
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from plimsoll.common.tasks import cancel_tasks, close_listener

_log = logging.getLogger("plimsoll.rpc")

#: Calls of one connection at a time.
_MAX_CALLS = 1000
_BACKLOG = 128
#: Window of a request, and of all requests of a connection: most requests fit without an update.
_WINDOW = 1 << 20
#: How long clients have to close their connections after the last response.
_CLOSE_SECONDS = 1.0
_PREFIX = struct.Struct(">BI")
_TIMEOUT_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class StatusCode(IntEnum):
    """Status of a call, by its number in gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class _CallAborted(Exception):
    """End of a call with a status other than OK."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class CallContext:
    """Context of a call, for its method."""

    async def abort(self, code: StatusCode, details: str = "") -> NoReturn:
        """End the call with a status."""
        raise _CallAborted(code, details)


#: Unary method: receives the request and the call's context, returns a message or its serialized bytes.
Unary: TypeAlias = Callable[[Any, CallContext], Awaitable[Message | bytes]]
#: Server-streaming method.
Streaming: TypeAlias = Callable[[Any, CallContext], AsyncIterator[Message | bytes]]


@dataclass(frozen=True, slots=True)
class MethodHandler:
    """Method of a service: its function and the parser of its request."""

    path: str
    function: Unary | Streaming
    parse: Callable[[bytes], Message]
    streaming: bool


def serialize(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


@dataclass(slots=True)
class _Call:
    """Call of a connection: the request as far as it was received, then the task of its method."""

    handler: MethodHandler | None
    timeout: float | None
    data: bytearray = field(default_factory=bytearray)
    task: asyncio.Task[None] | None = None
    #: Response headers were sent.
    begun: bool = False


class RpcServer:
    """Server of handlers on one listening socket; `start` it, then `stop`."""

    def __init__(self, handlers: Iterable[MethodHandler], *, max_size: int) -> None:
        self.handlers = {handler.path: handler for handler in handlers}
        self.max_size = max_size
        self.connections: set[_Connection] = set()
        self._unconnected = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._on_closed: Callable[[], None] = lambda: None

    @property
    def accepting(self) -> bool:
        return self._listener is not None

    async def start(self, listening: socket.socket, on_closed: Callable[[], None] = lambda: None) -> None:
        """Accept connections of a bound socket; `on_closed` is called when that ends."""
        self._on_closed = on_closed
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(
            lambda: _Connection(self), sock=listening, backlog=_BACKLOG
        )

    async def stop(self, grace: float | None = None) -> None:
        """Close the socket; calls in progress have `grace` seconds to finish (None: they are cancelled)."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._on_closed()
        await close_listener(listener)
        for connection in tuple(self.connections):
            connection.refuse_calls()
        if tasks := [task for connection in self.connections for task in connection.tasks()]:
            if grace:
                await asyncio.wait(tasks, timeout=grace)
            await cancel_tasks([task for task in tasks if not task.done()])
        if grace and self.connections:
            # A client whose next write fails does not read what has arrived: it would lose the response.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._unconnected.wait()
        for connection in tuple(self.connections):
            connection.close()
        await asyncio.sleep(0)  # the event loop closes them

    def add(self, connection: _Connection) -> None:
        """Record a connection, until it is lost and removed."""
        self.connections.add(connection)
        self._unconnected.clear()

    def remove(self, connection: _Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._unconnected.set()


class _Connection(asyncio.Protocol):
    """Connection of a client."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._calls: dict[int, _Call] = {}
        self._transport: asyncio.Transport | None = None
        #: Set whenever something that delays responses may have changed.
        self._writable = asyncio.Event()
        self._paused = False

    def tasks(self) -> list[asyncio.Task[None]]:
        return [call.task for call in self._calls.values() if call.task is not None]

    def refuse_calls(self) -> None:
        """Announce that the connection ends after the calls in progress (GOAWAY)."""
        with suppress(ProtocolError):
            # h2 considers a connection closed after its GOAWAY: the frame is written past it.
            last = self._h2.highest_inbound_stream_id
            frame = struct.pack(">IBIII", 8 << 8 | 7, 0, 0, last, ErrorCodes.NO_ERROR)
            self._flush()
            if self._transport is not None:
                self._transport.write(frame)

    def close(self) -> None:
        """Close the connection; what the client has not read by now is not sent any more."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._server.accepting:
            transport.abort()  # accepted while the server was being stopped
            return
        self._transport = transport
        self._server.add(self)
        values = {SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_CALLS, SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW}
        self._h2.local_settings = Settings(client=False, initial_values=values)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.remove(self)
        self._transport = None
        for task in self.tasks():
            task.cancel()
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._on_event(event)
        except ProtocolError as error:
            _log.debug("connection ended: %s", error)
            self._flush()  # h2 has written why
            self.close()
            return
        self._flush()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._writable.set()

    # -- requests

    def _on_event(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event.stream_id, dict(event.headers or ()))
            case DataReceived():
                self._receive(event.stream_id, event.data or b"")
                # What was received is either kept, within its limit, or dropped: more may follow.
                if event.flow_controlled_length:
                    with suppress(ProtocolError):
                        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                self._run(event.stream_id)
            case StreamReset():
                call = self._calls.pop(event.stream_id, None)
                if call is not None and call.task is not None:
                    call.task.cancel()
            case WindowUpdated() | RemoteSettingsChanged():
                self._writable.set()

    def _begin(self, stream: int, headers: dict[Any, Any]) -> None:
        if not str(headers.get("content-type", "")).startswith("application/grpc"):
            self._h2.send_headers(stream, [(":status", "415")], end_stream=True)
            return
        handler = self._server.handlers.get(headers.get(":path", ""))
        self._calls[stream] = _Call(handler, _read_timeout(headers.get("grpc-timeout", "")))

    def _receive(self, stream: int, data: bytes) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        call.data += data
        if len(call.data) > self._server.max_size + _PREFIX.size:
            text = f"the request is larger than the maximum of {self._server.max_size} bytes"
            self._end(stream, call, StatusCode.RESOURCE_EXHAUSTED, text)
            with suppress(ProtocolError):
                self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)

    def _run(self, stream: int) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        if call.handler is None:
            self._end(stream, call, StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        call.task = asyncio.get_running_loop().create_task(self._answer(stream, call, call.handler))

    async def _answer(self, stream: int, call: _Call, handler: MethodHandler) -> None:
        code, details = StatusCode.OK, ""
        try:
            async with asyncio.timeout(call.timeout) as deadline:
                await self._call(stream, call, handler)
        except _CallAborted as aborted:
            code, details = aborted.code, aborted.details
        except TimeoutError as error:
            if deadline.expired():
                code, details = StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
            else:
                code, details = _report_failure(handler, error)
        except asyncio.CancelledError:
            self._end(stream, call, StatusCode.CANCELLED, "the server ends")
            raise
        except Exception as error:
            code, details = _report_failure(handler, error)
        self._end(stream, call, code, details)

    async def _call(self, stream: int, call: _Call, handler: MethodHandler) -> None:
        request, context = _parse(call, handler), CallContext()
        call.data = bytearray()
        answer: Any = handler.function(request, context)
        if handler.streaming:
            async with aclosing(answer) as messages:
                async for message in messages:
                    await self._send(stream, call, serialize(message))
        else:
            await self._send(stream, call, serialize(await answer))

    # -- responses

    async def _send(self, stream: int, call: _Call, message: bytes) -> None:
        """Send a message as fast as the client reads it."""
        if len(message) > self._server.max_size:
            text = f"the response has {len(message)} bytes, the maximum is {self._server.max_size}"
            raise _CallAborted(StatusCode.RESOURCE_EXHAUSTED, text)
        if not call.begun:
            self._h2.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
            call.begun = True
        rest = memoryview(_PREFIX.pack(0, len(message)) + message)
        while rest:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if self._paused or room <= 0:
                self._writable.clear()
                self._flush()
                await self._writable.wait()
                continue
            self._h2.send_data(stream, bytes(rest[:room]))
            rest = rest[room:]
            self._flush()

    def _end(self, stream: int, call: _Call, code: StatusCode, details: str) -> None:
        """End a call with its status, if the client still waits for it."""
        if self._calls.pop(stream, None) is None or self._transport is None:
            return
        headers = [("grpc-status", str(int(code)))]
        if details:
            headers.append(("grpc-message", quote(details, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")))
        if not call.begun:
            headers[:0] = [(":status", "200"), ("content-type", "application/grpc")]
        with suppress(ProtocolError):
            self._h2.send_headers(stream, headers, end_stream=True)
        self._flush()

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)


def _report_failure(handler: MethodHandler, error: Exception) -> tuple[StatusCode, str]:
    """Log an exception that a method did not handle."""
    _log.error("%s failed", handler.path, exc_info=error)
    return StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}"


def _parse(call: _Call, handler: MethodHandler) -> Message:
    """Parse the request: exactly one message without compression."""
    data = bytes(call.data)
    if len(data) < _PREFIX.size:
        raise _CallAborted(StatusCode.INTERNAL, "the request has no message")
    compressed, length = _PREFIX.unpack_from(data)
    if compressed:
        raise _CallAborted(StatusCode.UNIMPLEMENTED, "compressed messages are not supported")
    if len(data) != _PREFIX.size + length:
        raise _CallAborted(StatusCode.INTERNAL, "the request is not one message")
    try:
        return handler.parse(data[_PREFIX.size :])
    except DecodeError:
        raise _CallAborted(StatusCode.INTERNAL, "Exception deserializing request!") from None


def _read_timeout(text: str) -> float | None:
    """Return the seconds of a `grpc-timeout` header; None if there is none."""
    unit = _TIMEOUT_UNITS.get(text[-1:])
    if unit is None or not text[:-1].isdecimal() or len(text) > 9:
        return None
    return int(text[:-1]) * unit
