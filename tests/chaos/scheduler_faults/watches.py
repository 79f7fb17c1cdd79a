"""Watches through the proxy: forwarded event by event, and stalled, cut or expired."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import aiohttp
import yarl
from aiohttp import web

from tests.chaos.scheduler_faults.faults import Fault
from tests.simulation.faults import FaultKind

_FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


def error_status(code: int, reason: str) -> dict[str, Any]:
    """Return a Status object as servers do."""
    text = f"injected fault {code}"
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": text, "reason": reason, "code": code}


class _Watch:
    """One open watch."""

    def __init__(self, client: str, resource: str) -> None:
        self.client = client
        self.resource = resource
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.ended = asyncio.Event()
        self.expired = False

    def end(self, *, expired: bool = False) -> None:
        self.expired = expired
        self.ended.set()
        self.flowing.set()


class Watches:
    """The open watches of all clients."""

    def __init__(self, counts: Counter[FaultKind]) -> None:
        self._counts = counts
        self._open: set[_Watch] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- faults

    def cut(self, client: str, resource: str = "") -> None:
        """Close watches without a response."""
        for watch in self._of(client, resource):
            self._counts[FaultKind.WATCH_CUT] += 1
            watch.end()

    def expire(self, client: str, resource: str = "") -> None:
        """End watches with an ERROR event of 410, so that the client has to list again."""
        for watch in self._of(client, resource):
            self._counts[FaultKind.WATCH_REFUSED] += 1
            watch.end(expired=True)

    def stall(self, client: str, resource: str, until: asyncio.Event | float) -> None:
        """Deliver no events for some seconds or until an event is set; then all of them."""
        for watch in self._of(client, resource):
            self._counts[FaultKind.WATCH_HELD] += 1
            self._stall(watch, until)

    def cut_all(self) -> None:
        for watch in list(self._open):
            watch.end()
        for task in self._tasks:
            task.cancel()

    def resources(self, client: str) -> list[str]:
        return sorted(watch.resource for watch in self._of(client, ""))

    def _of(self, client: str, resource: str) -> list[_Watch]:
        return [each for each in self._open if each.client == client and resource in ("", each.resource)]

    def _stall(self, watch: _Watch, until: asyncio.Event | float) -> None:
        watch.flowing.clear()
        self._spawn(self._resume(watch, until))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _end_later(watch: _Watch, seconds: float) -> None:
        await asyncio.sleep(seconds)
        watch.end()

    @staticmethod
    async def _resume(watch: _Watch, until: asyncio.Event | float) -> None:
        if isinstance(until, asyncio.Event):
            await until.wait()
        else:
            await asyncio.sleep(until)
        watch.flowing.set()

    # -- forwarding

    async def serve(
        self,
        client: str,
        request: web.BaseRequest,
        session: aiohttp.ClientSession,
        url: yarl.URL,
        headers: dict[str, str],
        fault: Fault | None = None,
    ) -> web.StreamResponse:
        """Forward a watch until either side, or a fault, ends it."""
        kind = fault.kind if fault is not None else None
        if kind is FaultKind.WATCH_REFUSED:
            return web.json_response(error_status(410, "Expired"), status=410)
        watch = _Watch(client, request.path.rsplit("/", 1)[-1])
        try:
            async with session.get(url, headers=headers) as reply:
                if reply.status != 200:
                    return web.Response(
                        status=reply.status, body=await reply.read(), content_type=reply.content_type
                    )
                response = web.StreamResponse(headers={"Content-Type": reply.content_type})
                await response.prepare(request)
                self._open.add(watch)
                if fault is not None and kind is FaultKind.WATCH_HELD:
                    self._stall(watch, 2 * fault.seconds)
                elif fault is not None and kind is FaultKind.WATCH_CUT:
                    self._spawn(self._end_later(watch, 4 * fault.seconds))
                try:
                    if await self._copy(watch, reply, response):
                        await response.write_eof()
                        return response
                finally:
                    # A connection that is only closed may end after the proxy, with its TLS shutdown.
                    if reply.connection is not None and reply.connection.transport is not None:
                        reply.connection.transport.abort()
        except _FAILURES:
            pass
        finally:
            self._open.discard(watch)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)

    async def _copy(self, watch: _Watch, reply: aiohttp.ClientResponse, response: web.StreamResponse) -> bool:
        """Copy events; return whether the watch ends regularly."""
        ended = asyncio.create_task(watch.ended.wait())
        reading: asyncio.Task[bytes] | None = None
        whole = True
        try:
            while True:
                reading = asyncio.create_task(reply.content.readany())
                await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
                if not watch.ended.is_set():
                    await watch.flowing.wait()
                if watch.ended.is_set():
                    break
                chunk = await reading
                if not chunk:
                    return True
                await response.write(chunk)
                whole = chunk.endswith(b"\n")
            if watch.expired and whole:
                event = {"type": "ERROR", "object": error_status(410, "Expired")}
                await response.write(json.dumps(event).encode() + b"\n")
                return True
            return False
        finally:
            for task in (ended, reading):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError, *_FAILURES):
                        await task
