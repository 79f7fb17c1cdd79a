"""Logs of pods over WebSocket: binary frames, or text frames in base64, as the client has chosen."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator

from aiohttp import web

#: Media type of logs.
LOG_TYPE = "text/plain"
_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
#: Time for the client to confirm that the connection is closed (seconds).
_CLOSE_SECONDS = 1.0


def wants_websocket(request: web.BaseRequest) -> bool:
    """Return whether a client asks for a WebSocket."""
    return request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"


async def send_log(
    request: web.BaseRequest, chunks: AsyncGenerator[bytes, None], write_seconds: float
) -> web.StreamResponse:
    """Send a log to its end, or as long as the client reads it.

    An empty frame comes first, as from kube-apiserver: it shows that the log is being read.
    """
    response = web.WebSocketResponse(
        protocols=(_BINARY, _BASE64), timeout=_CLOSE_SECONDS, autoping=False, compress=False
    )
    await response.prepare(request)
    with contextlib.suppress(ConnectionError, TimeoutError):  # the client has disconnected, or does not read
        await _send(response, b"")
        async for chunk in chunks:
            async with asyncio.timeout(write_seconds):
                await _send(response, chunk)
        await response.close()
    return response


async def _send(response: web.WebSocketResponse, data: bytes) -> None:
    if response.ws_protocol == _BASE64:
        await response.send_str(base64.b64encode(data).decode())
    else:
        await response.send_bytes(data)
