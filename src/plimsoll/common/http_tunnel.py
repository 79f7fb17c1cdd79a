"""Upgrade requests that are passed on to another server: both connections then carry the same bytes.

The protocol inside, WebSocket or SPDY, is left to the two ends. At most 64 KiB and the buffers of the two
connections are held for each direction; a side that does not read only stops its own stream.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from plimsoll.common.http_upgrade import UpgradedConnection, accept_upgrade
from plimsoll.common.tasks import cancel_tasks

#: WebSocket protocol of kube-apiserver whose rest is a bearer token in base64url.
_TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
_CHUNK_BYTES = 64 << 10
_MAX_HEAD_BYTES = 64 << 10
#: Bytes of an error's body that are passed on.
MAX_ERROR_BYTES = 16 << 10
#: Time to deliver what the other side sent before it closed the connection (seconds).
_LINGER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class UpgradeRefusal:
    """Response of a server that does not switch protocols."""

    status: int
    body: bytes


@dataclass(slots=True)
class UpgradedPeer:
    """Connection to a server after its response to an upgrade request."""

    headers: list[tuple[str, str]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def forwarded_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of an upgrade request that concern the upgraded protocol; no credentials."""
    wanted = ("upgrade", "connection", "user-agent", "x-stream-protocol-version")
    found = []
    for name, value in headers:
        if name.lower() == "sec-websocket-protocol":
            found.append((name, ", ".join(split_protocols(value)[1])))
        elif name.lower() in wanted or name.lower().startswith("sec-websocket-"):
            found.append((name, value))
    return found


def split_protocols(header: str) -> tuple[list[str], list[str]]:
    """Return the encoded tokens among the WebSocket protocols that a client offers, and the others.

    Browsers cannot send an Authorization header with a WebSocket.
    """
    offered = [each.strip() for each in header.split(",")]
    tokens = [each.removeprefix(_TOKEN_PROTOCOL) for each in offered if each.startswith(_TOKEN_PROTOCOL)]
    return tokens, [each for each in offered if each and not each.startswith(_TOKEN_PROTOCOL)]


async def request_upgrade(
    host: str,
    port: int,
    target: str,
    method: str,
    headers: Iterable[tuple[str, str]],
    *,
    tls: ssl.SSLContext | None = None,
) -> UpgradedPeer | UpgradeRefusal:
    """Send an upgrade request. Raises OSError, asyncio.IncompleteReadError or asyncio.LimitOverrunError."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_MAX_HEAD_BYTES)
    try:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        found = await _exchange(reader, writer, address, target, method, headers)
    except BaseException:
        writer.close()
        raise
    if isinstance(found, UpgradeRefusal):
        writer.close()
    return found


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    address: str,
    target: str,
    method: str,
    headers: Iterable[tuple[str, str]],
) -> UpgradedPeer | UpgradeRefusal:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {address}", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers]
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1", "replace"))
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = _status_of(head[0])
    pairs = [tuple(part.strip() for part in line.split(":", 1)) for line in head[1:] if ":" in line]
    found = [(pair[0], pair[1]) for pair in pairs]
    if status == 101:
        return UpgradedPeer(found, reader, writer)
    lengths = [value for name, value in found if name.lower() == "content-length" and value.isdigit()]
    size = min(int(lengths[0][:9]), MAX_ERROR_BYTES) if lengths else 0
    return UpgradeRefusal(status, await reader.readexactly(size))


def _status_of(line: str) -> int:
    parts = line.split(" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() and len(parts[1]) == 3 else 502


async def copy_streams(request: web.BaseRequest, peer: UpgradedPeer) -> web.StreamResponse:
    """Accept the upgrade of a request as the peer did, and copy bytes until one side ends."""
    try:
        response, client = await accept_upgrade(request, dict(peer.headers))
        up = asyncio.create_task(_send(client, peer.writer))
        down = asyncio.create_task(_receive(peer.reader, client))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():  # the client has closed its side; the server may still respond
                await asyncio.wait((down,), timeout=_LINGER_SECONDS)
        finally:
            await cancel_tasks((up, down))
            client.close()
        return response
    finally:
        peer.writer.close()


async def _send(client: UpgradedConnection, server: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await client.read():
            server.write(data)
            await server.drain()


async def _receive(server: asyncio.StreamReader, client: UpgradedConnection) -> None:
    with suppress(ConnectionError):
        while data := await server.read(_CHUNK_BYTES):
            await client.write(data)
