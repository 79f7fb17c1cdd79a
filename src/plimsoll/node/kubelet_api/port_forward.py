"""Port forwarding to the processes of a pod (`kubectl port-forward`), over SPDY/3.1.

Every connection of the client is a pair of streams with the same request ID: one for data, one for errors.

DIFF: pods have no network namespace, so only ports on which a process of the pod listens are forwarded; the
right to forward ports of a pod is no right to reach other services of the machine
(test_only_ports_of_the_pod_are_forwarded).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll.common.tasks import cancel_tasks, start_task
from plimsoll.errors import SpdyProtocolError
from plimsoll.protocols.spdy import ByteChannel, SpdySession, SpdyStream

PROTOCOL = "portforward.k8s.io"
TUNNEL_PROTOCOL = f"SPDY/3.1+{PROTOCOL}"
_CHUNK_BYTES = 32 << 10
_CONNECT_SECONDS = 10.0
#: Time in which the second stream of a pair must follow the first (seconds).
_PAIR_SECONDS = 30.0
_MAX_PAIRS = 100

#: Returns the address at which a process of the pod listens on a port; "" if there is none.
FindListener = Callable[[int], str]


@dataclass(slots=True)
class _StreamPair:
    data: SpdyStream | None = None
    error: SpdyStream | None = None
    expiry: asyncio.TimerHandle | None = None


class PortForwarder:
    """Forwarder of one client's connections to one pod."""

    def __init__(self, pod: str, find_listener: FindListener) -> None:
        self._pod = pod
        self._find_listener = find_listener
        self._pairs: dict[str, _StreamPair] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, channel: ByteChannel) -> None:
        """Forward connections until the client disconnects."""
        try:
            with contextlib.suppress(SpdyProtocolError):
                await SpdySession(channel, self._on_stream).run()
        finally:
            for pair in self._pairs.values():
                if pair.expiry is not None:
                    pair.expiry.cancel()
            await cancel_tasks(self._tasks)

    def _on_stream(self, stream: SpdyStream) -> None:
        kind, id = stream.headers.get("streamtype"), stream.headers.get("requestid", "")
        full = id not in self._pairs and len(self._pairs) + len(self._tasks) >= _MAX_PAIRS
        if kind not in ("data", "error") or full:
            start_task(self._tasks, stream.reset())
            return
        pair = self._pairs.setdefault(id, _StreamPair())
        if kind == "data":
            pair.data = stream
        else:
            pair.error = stream
        if pair.data is not None and pair.error is not None:
            del self._pairs[id]
            if pair.expiry is not None:
                pair.expiry.cancel()
            start_task(self._tasks, self._forward(pair.data, pair.error))
        elif pair.expiry is None:
            pair.expiry = asyncio.get_running_loop().call_later(_PAIR_SECONDS, self._expire, id)

    def _expire(self, id: str) -> None:
        pair = self._pairs.pop(id, None)
        for stream in (pair.data, pair.error) if pair is not None else ():
            if stream is not None:
                start_task(self._tasks, stream.reset())

    async def _forward(self, data: SpdyStream, error: SpdyStream) -> None:
        try:
            problem = await self._copy(data, data.headers.get("port", ""))
            if problem:
                await error.write(problem.encode())
        except ConnectionError:
            pass
        finally:
            await error.close()
            await data.reset() if not data.ended else await data.close()

    async def _copy(self, stream: SpdyStream, port: str) -> str:
        """Copy one connection; return the problem, if any."""
        prefix = f"error forwarding port {port[:10]} to pod {self._pod}: "
        if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
            return f"{prefix}invalid port"
        address = await asyncio.to_thread(self._find_listener, int(port))
        if not address:
            return f"{prefix}no process of the pod listens on this port"
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(address, int(port))
        except (OSError, TimeoutError) as failure:
            return f"{prefix}{failure or 'timed out'}"
        sending = asyncio.create_task(_copy_in(stream, writer))
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                await stream.write(chunk)
            await stream.close()
        except OSError as failure:
            return "" if stream.closed else f"{prefix}{failure}"
        finally:
            await cancel_tasks([sending])
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return ""


async def _copy_in(stream: SpdyStream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await stream.read():
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
