"""Tunnel between a client and a kubelet after an upgrade request: bytes are copied in both directions.

The protocol inside, WebSocket or SPDY, is left to the two. At most 64 KiB and the buffers of the two
connections are held for each direction; a side that does not read only stops its own stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from plimsoll.apiserver.kubelet.client import KubeletClient, forwarded_headers
from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.common.http_upgrade import UpgradedConnection, accept_upgrade
from plimsoll.common.tasks import cancel_tasks

_CHUNK_BYTES = 64 << 10
#: Time to deliver what the other side sent before it closed the connection (seconds).
_LINGER_SECONDS = 2.0


async def pass_on(
    request: web.BaseRequest,
    kubelets: KubeletClient,
    location: KubeletLocation,
    on_upgraded: Callable[[], None],
) -> web.StreamResponse:
    """Pass a request on and copy bytes until one side ends; ApiError if the kubelet refuses it."""
    upgraded = await kubelets.upgrade(location, request.method, forwarded_headers(request.headers.items()))
    try:
        on_upgraded()
        response, client = await accept_upgrade(request, dict(upgraded.headers))
        up = asyncio.create_task(_send(client, upgraded.writer))
        down = asyncio.create_task(_receive(upgraded.reader, client))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():  # the client has closed its side; the kubelet may still respond
                await asyncio.wait((down,), timeout=_LINGER_SECONDS)
        finally:
            await cancel_tasks((up, down))
            client.close()
        return response
    finally:
        upgraded.writer.close()


async def _send(client: UpgradedConnection, kubelet: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await client.read():
            kubelet.write(data)
            await kubelet.drain()


async def _receive(kubelet: asyncio.StreamReader, client: UpgradedConnection) -> None:
    with suppress(ConnectionError):
        while data := await kubelet.read(_CHUNK_BYTES):
            await client.write(data)
