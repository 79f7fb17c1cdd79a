"""Upgraded HTTP connections of aiohttp servers: raw bytes in both directions after `101 Switching Protocols`.

aiohttp itself upgrades to WebSocket only. `UpgradedConnection` takes over a connection in the same way: it
becomes the parser of what is received, and writes to the transport. At most 128 KiB that were not read are
held; then the peer is not read further.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web

#: Bytes received and not read; more pause the connection.
MAX_UNREAD_BYTES = 128 << 10


class UpgradedConnection:
    """Byte channel over the connection of a request."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._protocol = request.protocol
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._ended = False
        self._paused = False
        self._readable = asyncio.Event()
        # The type that aiohttp names is the WebSocket reader; it calls only the two methods below.
        self._protocol.set_parser(cast(Any, self))

    # -- called by aiohttp

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._pieces.append(bytes(data))
        self._unread += len(data)
        self._readable.set()
        if self._unread > MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._set_reading(False)
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._readable.set()

    # -- reading and writing

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end."""
        while not self._pieces:
            if self._ended or self._request.transport is None:
                return b""
            self._readable.clear()
            await self._readable.wait()
        piece = self._pieces.popleft()
        self._unread -= len(piece)
        if self._paused and self._unread <= MAX_UNREAD_BYTES // 2:
            self._paused = False
            self._set_reading(True)
        return piece

    async def write(self, data: bytes) -> None:
        """Write, and wait while the peer does not read; ConnectionError if it is gone."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        transport.write(data)
        await self._request.writer.drain()

    def close(self) -> None:
        self.feed_eof()
        transport = self._request.transport
        if transport is not None:
            transport.close()

    def _set_reading(self, on: bool) -> None:
        transport = self._request.transport
        if transport is not None and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()


async def accept_upgrade(
    request: web.BaseRequest, headers: Mapping[str, str]
) -> tuple[web.StreamResponse, UpgradedConnection]:
    """Respond with 101 and these headers, and take over the connection."""
    response = web.StreamResponse(status=HTTPStatus.SWITCHING_PROTOCOLS, headers=headers)
    response.force_close()
    connection = UpgradedConnection(request)
    await response.prepare(request)
    await request.writer.drain()
    return response, connection
