"""Handlers of probes and lifecycle hooks: exec, HTTP, TCP and gRPC health checks.

`run_handler` never raises for what a handler encounters; the result holds success and the observed output.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from grpc import aio

from plimsoll.api.containers import GRPCAction, HTTPGetAction, Probe, ProbeHandler
from plimsoll.api.core import Container

#: Maximum number of bytes of a response that is read and reported.
_MAX_OUTPUT = 10 * 1024
#: Redirects that are followed, and how many of them.
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 10
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """Result of a handler: whether it succeeded, and its output if not."""

    ok: bool
    text: str = ""
    warning: str = ""  #: of a success that is reported


class CommandRunner(Protocol):
    """Runner of commands in a running container. Never raises for what a command does."""

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> HandlerResult: ...


async def run_handler(
    action: Probe | ProbeHandler,
    container: Container,
    id: str,
    host: str,
    commands: CommandRunner | None,
    seconds: float,
) -> HandlerResult:
    """Run the handler of a probe or a hook, within a timeout."""
    if action.exec is not None:  # the command runner enforces the timeout
        if commands is None:
            return HandlerResult(False, "this runtime cannot run commands in containers")
        return await commands.execute(id, action.exec.command, seconds)
    try:
        async with asyncio.timeout(seconds):
            return await _run_network_handler(action, container, host)
    except TimeoutError:
        return HandlerResult(False, f"timed out after {seconds:g}s")
    except (OSError, ValueError, aio.AioRpcError, UnicodeError) as error:
        return HandlerResult(False, str(error) or type(error).__name__)


async def _run_network_handler(action: ProbeHandler, container: Container, host: str) -> HandlerResult:
    if action.http_get is not None:
        return await _http_get(action.http_get, container, host)
    if action.tcp_socket is not None:
        target = action.tcp_socket
        _, writer = await asyncio.open_connection(target.host or host, find_port(target.port, container))
        writer.close()
        return HandlerResult(True)
    if isinstance(action, Probe) and action.grpc is not None:
        return await _check_health(action.grpc, container, host)
    return HandlerResult(True)


def find_port(port: Any, container: Container) -> int:
    """Resolve a port by number or by name in the container; raise ValueError if it is neither."""
    if isinstance(port, str) and not port.isdigit():
        for own in container.ports:
            if own.name == port:
                return own.container_port
        raise ValueError(f"couldn't find port: {port}")
    number = int(port or 0)
    if not 0 < number < 65536:
        raise ValueError(f"invalid port number: {number}")
    return number


async def _http_get(target: HTTPGetAction, container: Container, host: str) -> HandlerResult:
    """Send a GET request; redirects are followed as long as they lead to the same host."""
    host, port = target.host or host, find_port(target.port, container)
    scheme = target.scheme.lower() or "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{target.path or '/'}"
    for _ in range(_MAX_REDIRECTS):
        response = await _request(url, host, target)
        if response.status in _REDIRECTS and response.location:
            url = urljoin(url, response.location)
            if urlsplit(url).hostname == host.lower():
                continue
        if 300 <= response.status < 400:
            return HandlerResult(True, warning=f"Probe terminated redirects, Response body: {response.body}")
        if 200 <= response.status < 300:
            return HandlerResult(True)
        return HandlerResult(False, f"HTTP probe failed with statuscode: {response.status}")
    return HandlerResult(False, f"stopped after {_MAX_REDIRECTS} redirects")


@dataclass(frozen=True, slots=True)
class _Response:
    """Response to a GET request; the body is read only if it is reported."""

    status: int
    location: str = ""
    body: str = ""


async def _request(url: str, host: str, target: HTTPGetAction) -> _Response:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    context = ssl.create_default_context() if secure else None
    if context is not None:  # a probe does not verify certificates
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    port = parts.port or (443 if secure else 80)
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*"}
    headers |= {header.name: header.value for header in target.http_headers}
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    lines = [f"GET {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header or the path contains a line break")
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=_MAX_OUTPUT)
    try:
        writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode())
        await writer.drain()
        first = (await reader.readline()).split()
        status = int(first[1]) if len(first) > 1 else 0
        if not 300 <= status < 400:
            return _Response(status)
        location = ""
        while (line := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            location = value.strip() if name.lower() == "location" else location
        return _Response(status, location, (await reader.read(_MAX_OUTPUT)).decode(errors="replace"))
    finally:
        writer.transport.abort()  # do not wait for a slow server


async def _check_health(target: GRPCAction, container: Container, host: str) -> HandlerResult:
    service = (target.service or "").encode()[:127]
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    async with aio.insecure_channel(f"{host}:{find_port(target.port, container)}") as channel:
        call: Any = channel.unary_unary(_HEALTH)  # bytes in, bytes out
        response: bytes = await call(request)
    return HandlerResult(True) if response == _SERVING else HandlerResult(False, "service unhealthy")
