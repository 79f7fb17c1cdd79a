"""Remote command streams over a WebSocket, as kubectl and the API server open them."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import WSMsgType, web

from plimsoll.common.byte_buffer import ByteBuffer
from plimsoll.node.kubelet_api.channels import (
    ERROR,
    PROTOCOLS,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    V4_BASE64,
    ChannelMessage,
    decode_message,
    encode_message,
    ended_channel,
)
from plimsoll.node.kubelet_api.remote_command import (
    MAX_INPUT_BYTES,
    StreamOptions,
    TerminalSize,
    Tree,
    parse_size,
)

#: Maximum size of a message, in bytes; kubectl sends at most 32 KiB.
MAX_MESSAGE_BYTES = 1 << 20
_CHUNK_BYTES = 32 << 10
_CLOSE_SECONDS = 5.0
#: Interval of pings to a silent client (seconds); one that does not answer is disconnected.
_HEARTBEAT_SECONDS = 30.0


class WebSocketStreams:
    """RemoteStreams over one WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, options: StreamOptions) -> None:
        self._socket = socket
        self._options = options
        self._protocol = socket.ws_protocol or ""
        self._input = ByteBuffer(MAX_INPUT_BYTES)
        self._sizes: asyncio.Queue[TerminalSize | None] = asyncio.Queue(maxsize=64)
        self._gone = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @staticmethod
    async def accept(request: web.Request, options: StreamOptions) -> WebSocketStreams:
        """Accept the WebSocket of a request, which must offer a supported subprotocol."""
        socket = web.WebSocketResponse(
            protocols=PROTOCOLS, max_msg_size=MAX_MESSAGE_BYTES, heartbeat=_HEARTBEAT_SECONDS, timeout=1.0
        )
        await socket.prepare(request)
        streams = WebSocketStreams(socket, options)
        # An empty message signals to the client that the command is about to run.
        await streams._send(STDOUT if options.stdout else STDERR if options.stderr else ERROR, b"")
        return streams

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                    continue
                data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
                found = decode_message(data, self._protocol)
                if found is None:
                    continue
                if ended_channel(found, self._protocol) == STDIN:
                    self._input.end()
                elif found.channel == STDIN and self._options.stdin:
                    await self._input.put(found.data)
                elif found.channel == RESIZE and self._options.tty:
                    size = parse_size(found.data)
                    if size is not None and not self._sizes.full():
                        self._sizes.put_nowait(size)
        finally:
            self._input.end()
            self._gone.set()
            if not self._sizes.full():
                self._sizes.put_nowait(None)

    async def read_input(self) -> bytes:
        return await self._input.get()

    async def write(self, data: bytes, *, error: bool = False) -> None:
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._send(STDERR if error else STDOUT, data[start : start + _CHUNK_BYTES])

    async def read_size(self) -> TerminalSize | None:
        return await self._sizes.get()

    async def wait_closed(self) -> None:
        await self._gone.wait()

    async def finish(self, status: Tree) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._send(ERROR, msgspec.json.encode(status))
                await self._socket.close()
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _send(self, channel: int, data: bytes) -> None:
        message = encode_message(ChannelMessage(channel, data), self._protocol)
        if self._protocol == V4_BASE64:
            await self._socket.send_str(message.decode())
        else:
            await self._socket.send_bytes(message)


class WebSocketTunnel:
    """Byte channel over the binary messages of a WebSocket (SPDY/3.1 inside, for port-forward)."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @staticmethod
    async def accept(request: web.Request, protocol: str) -> tuple[web.StreamResponse, WebSocketTunnel]:
        socket = web.WebSocketResponse(
            protocols=(protocol,), max_msg_size=MAX_MESSAGE_BYTES, heartbeat=_HEARTBEAT_SECONDS, timeout=1.0
        )
        await socket.prepare(request)
        return socket, WebSocketTunnel(socket)

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:
                return b""
            if message.data:
                return bytes(message.data)

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def close(self) -> None:
        await self._socket.close()
