"""Remote command streams over SPDY/3.1, as kube-apiserver and older clients open them."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from aiohttp import web

from plimsoll.common.http_upgrade import UpgradedConnection, accept_upgrade
from plimsoll.errors import SpdyProtocolError
from plimsoll.node.kubelet_api.channels import V4
from plimsoll.node.kubelet_api.remote_command import StreamOptions, TerminalSize, Tree, parse_size
from plimsoll.protocols.spdy import SpdySession, SpdyStream

SPDY = "SPDY/3.1"
PROTOCOL_HEADER = "X-Stream-Protocol-Version"
#: Time in which a client opens its streams, and takes to close the connection at the end (seconds).
CREATE_SECONDS, _CLOSE_SECONDS = 30.0, 5.0
_MAX_SIZE_BYTES = 1024


class SpdyStreams:
    """RemoteStreams over one SPDY connection."""

    def __init__(self, connection: UpgradedConnection, response: web.StreamResponse) -> None:
        self.response = response
        self._connection = connection
        self._streams: dict[str, SpdyStream] = {}
        self._opened = asyncio.Event()
        self._gone = asyncio.Event()
        self._sizes = b""
        self._session = SpdySession(connection, self._on_stream)
        self._task = asyncio.create_task(self._run())

    @staticmethod
    async def accept(request: web.Request, options: StreamOptions) -> SpdyStreams | None:
        """Accept the connection of a request, and the streams that it needs; None if the client does not
        open them.
        """
        headers = {"Connection": "Upgrade", "Upgrade": SPDY, PROTOCOL_HEADER: V4}
        response, connection = await accept_upgrade(request, headers)
        streams = SpdyStreams(connection, response)
        needed = {"error"} | {
            name
            for name, wanted in (
                ("stdin", options.stdin),
                ("stdout", options.stdout),
                ("stderr", options.stderr),
                ("resize", options.tty),
            )
            if wanted
        }
        try:
            async with asyncio.timeout(CREATE_SECONDS):
                while not needed <= set(streams._streams) and not streams._gone.is_set():
                    streams._opened.clear()
                    await streams._opened.wait()
        except TimeoutError:
            pass
        if needed <= set(streams._streams):
            return streams
        await streams._close()
        return None

    def _on_stream(self, stream: SpdyStream) -> None:
        self._streams.setdefault(stream.headers.get("streamtype", ""), stream)
        self._opened.set()

    async def _run(self) -> None:
        try:
            with contextlib.suppress(SpdyProtocolError):
                await self._session.run()
        finally:
            self._gone.set()
            self._opened.set()

    async def read_input(self) -> bytes:
        stream = self._streams.get("stdin")
        return await stream.read() if stream is not None else b""

    async def write(self, data: bytes, *, error: bool = False) -> None:
        await self._streams["stderr" if error else "stdout"].write(data)

    async def read_size(self) -> TerminalSize | None:
        stream = self._streams.get("resize")
        while stream is not None:
            line, newline, rest = self._sizes.partition(b"\n")
            if newline or (line.endswith(b"}") and line):
                self._sizes = rest
                size = parse_size(line)
                if size is not None:
                    return size
                continue
            piece = await stream.read()
            if not piece or len(self._sizes) > _MAX_SIZE_BYTES:
                return None
            self._sizes += piece
        return None

    async def wait_closed(self) -> None:
        await self._gone.wait()

    async def finish(self, status: Tree) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                for name in ("stdout", "stderr"):
                    if name in self._streams:
                        await self._streams[name].close()
                await self._streams["error"].write(msgspec.json.encode(status))
                await self._streams["error"].close()
                await self._gone.wait()  # the client closes the connection when it has read everything
        except (ConnectionError, TimeoutError):
            pass
        finally:
            await self._close()

    async def _close(self) -> None:
        self._connection.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def offered_protocols(request: web.BaseRequest) -> list[str]:
    """Return the protocols that a client offers."""
    values = request.headers.getall(PROTOCOL_HEADER, [])
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def is_spdy(request: web.BaseRequest) -> bool:
    """Return whether a request asks for an upgrade to SPDY."""
    connection = request.headers.get("Connection", "").lower()
    return "upgrade" in connection and request.headers.get("Upgrade", "").lower().startswith(SPDY.lower())
