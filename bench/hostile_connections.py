"""Memory and latency of the API server under connections that never present credentials.

    python -m bench.hostile_connections [--hold SECONDS] [ATTACK ...]

Starts `plimsoll server` as a process of its own. For each attack, a second process opens hostile connections
and holds them, while this one measures the server's resident memory (before, peak, and after the hostile
connections have ended) and the time of an administrator's requests: on a connection that was open before, and
on a new connection for every request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench.server import Server
from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES
from plimsoll.client.kubeconfig import find_config

_LINE = b"a" * 65_000
_REQUEST = b"GET /version HTTP/1.1\r\nHost: x\r\n"
#: Time to wait for memory to be given back once the hostile connections have ended.
_AFTER = 10.0


async def send_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send headers of 250 x 65,000 bytes without an end."""
    await _send_lines(writer, _REQUEST)


async def send_trailers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send trailers of 250 x 65,000 bytes after an empty body."""
    await _send_lines(writer, b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")


async def send_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a body of 3 MB."""
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b" " * 2_999_999)
    await writer.drain()


async def send_nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Send nothing."""


async def _send_lines(writer: asyncio.StreamWriter, head: bytes) -> None:
    writer.write(head)
    for number in range(250):
        writer.write(b"h%d: %b\r\n" % (number, _LINE))
        await writer.drain()


#: name -> connections, TLS, what each one sends
ATTACKS: dict[str, tuple[int, bool, Callable[..., Awaitable[None]]]] = {
    "headers": (40, True, send_headers),
    "trailers": (40, True, send_trailers),
    "body": (40, True, send_body),
    "no-request": (1000, True, send_nothing),
    "no-handshake": (1000, False, send_nothing),
}


async def attack(name: str, port: int, seconds: float) -> None:
    """Open the connections of an attack repeatedly until the time is over, as one hostile process."""
    count, encrypted, act = ATTACKS[name]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context if encrypted else None
                )
                try:
                    await act(reader, writer)
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(1)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(one() for _ in range(count)))


class Probe:
    """Regular client that measures its latency on an old connection and on new ones."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.old: list[float] = []
        self.new: list[float] = []
        self.failed = 0

    async def run(self) -> None:
        async with self._server.client() as client:
            while True:
                self.old.append(await self._time(client))
                async with Client.connect(find_config(self._server.kubeconfig, environ={})) as fresh:
                    self.new.append(await self._time(fresh))
                await asyncio.sleep(0.05)

    async def _time(self, client: Client) -> float:
        begin = time.perf_counter()
        try:
            await client.get(NAMESPACES, "default")
        except Exception:
            self.failed += 1
        return time.perf_counter() - begin


async def measure(server: Server, name: str, seconds: float) -> None:
    url = urlsplit(find_config(server.kubeconfig, environ={}).server)
    probe = Probe(server)
    probing = asyncio.create_task(probe.run())
    await asyncio.sleep(1)
    before = peak = server.memory()
    quiet = max(probe.old), max(probe.new)
    command = [sys.executable, "-m", "bench.hostile_connections", "--port", str(url.port)]
    hostile = subprocess.Popen([*command, "--hold", str(seconds), name], stderr=subprocess.DEVNULL)
    probe.old.clear()
    probe.new.clear()
    while hostile.poll() is None:
        peak = max(peak, server.memory())
        await asyncio.sleep(0.05)
    probing.cancel()
    during = (max(probe.old, default=0.0), max(probe.new, default=0.0))
    await asyncio.sleep(_AFTER)
    after = server.memory()
    print(
        f"  {name:<14}{ATTACKS[name][0]:>5} connections  RSS {before:>5} -> {peak:>5} -> {after:>5} MiB"
        f"  slowest request, old connection {quiet[0] * 1e3:>5.0f} -> {during[0] * 1e3:>6.0f} ms"
        f"  new {quiet[1] * 1e3:>5.0f} -> {during[1] * 1e3:>6.0f} ms"
        f"  ({len(probe.old) + len(probe.new)} requests, {probe.failed} failed)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; all if none")
    parser.add_argument("--hold", type=float, default=20.0, metavar="SECONDS", help="duration of an attack")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.port:
        asyncio.run(attack(options.attacks[0], options.port, options.hold))
        return
    print("hostile connections: before -> during -> after")
    for name in options.attacks or ATTACKS:
        # One server per attack: memory is never returned completely.
        with tempfile.TemporaryDirectory() as directory:
            server = Server(Path(directory))
            server.start()
            try:
                asyncio.run(measure(server, name, options.hold))
            finally:
                server.stop()


if __name__ == "__main__":
    main()
