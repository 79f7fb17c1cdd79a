"""Streams of containers that a CRI runtime serves itself: requests are passed on to its streaming server.

The runtime returns a URL for each exec, attach and port-forward; the upgrade request is sent there, and bytes
are copied. Protocols are negotiated between the client and the runtime: kubectl, whose newest protocol a
runtime may not know, continues with SPDY then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from aiohttp import web
from yarl import URL

from plimsoll.common.http_tunnel import UpgradeRefusal, copy_streams, forwarded_headers, request_upgrade
from plimsoll.errors import InputError
from plimsoll.node.kubelet_api.remote_command import StreamOptions
from plimsoll.node.runtime.cri.runtime import CriRuntime
from plimsoll.protocols.messages import cri

_SECONDS = 30.0


async def exec_url(runtime: CriRuntime, id: str, command: Sequence[str], options: StreamOptions) -> str:
    """Return the URL of a command in a container; RuntimeCallError."""
    request = cri.ExecRequest(container_id=id, cmd=list(command), **asdict(options))
    return await runtime.stream_url("Exec", request)


async def attach_url(runtime: CriRuntime, id: str, options: StreamOptions) -> str:
    """Return the URL of a container's own input and output; RuntimeCallError."""
    return await runtime.stream_url("Attach", cri.AttachRequest(container_id=id, **asdict(options)))


def parse_ports(values: Iterable[str]) -> list[int]:
    """Parse the parameters `port` of a request, lists of numbers; InputError."""
    found = [text for value in values for text in value.split(",") if text]
    for text in found:
        if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16):
            raise InputError(f"unable to parse {text[:20]!r} as a port")
    return [int(text) for text in found]


async def port_forward_url(runtime: CriRuntime, uid: str, ports: Sequence[int] = ()) -> str:
    """Return the URL of connections to a pod; RuntimeCallError, InputError if the pod has no sandbox.

    `ports` are those of a plain WebSocket, whose streams are numbered; SPDY streams name theirs.
    """
    sandbox = runtime.sandbox_id(uid)
    if not sandbox:
        raise InputError("the pod has no running sandbox")
    return await runtime.stream_url("PortForward", cri.PortForwardRequest(pod_sandbox_id=sandbox, port=ports))


async def proxy_stream(request: web.Request, url: str) -> web.StreamResponse:
    """Pass an upgrade request on to the streaming server of a runtime; return when the streams end."""
    target = URL(url)
    host, port = target.host or "127.0.0.1", target.port or 80
    if target.scheme != "http":
        return web.Response(
            status=502, text=f"{url}: the streaming server of the runtime serves no plain HTTP"
        )
    headers = forwarded_headers(request.headers.items())
    try:
        async with asyncio.timeout(_SECONDS):
            found = await request_upgrade(host, port, target.raw_path_qs, request.method, headers)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        text = f"the streaming server of the runtime does not respond: {error or 'timed out'}"
        return web.Response(status=502, text=text)
    if isinstance(found, UpgradeRefusal):
        return web.Response(status=found.status, body=found.body or b"unable to upgrade")
    return await copy_streams(request, found)
