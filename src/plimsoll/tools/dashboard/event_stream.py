"""Changes told to pages that are open, as server-sent events.

Owns `EventStream`. A page hears of changes at most four times a second, however many there are; what came
meanwhile is told together. One that does not read is let go: it asks anew when it is back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from plimsoll.api import codec
from plimsoll.errors import ApiError
from plimsoll.tools.dashboard.changes import ChangeScope

#: Seconds between two events to one page, between signs of life, and until one that does not read is let go.
APART = 0.25
PING = 15.0
SLOW = 10.0
#: More nodes than these are told as "all".
MOST_NODES = 500
#: Pages that may listen at once.
MOST_LISTENERS = 200


class EventStream:
    """Who listens, and what each has still to be told."""

    def __init__(
        self, revision: int = 1, *, apart: float = APART, ping: float = PING, slow: float = SLOW
    ) -> None:
        self.revision = revision
        self._apart, self._ping, self._slow = apart, ping, slow
        self._listeners: set[_Listener] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def publish(self, revision: int, scope: ChangeScope) -> None:
        """Something is different from this revision on."""
        self.revision = revision
        for listener in self._listeners:
            listener.scope.merge(scope)
            listener.wake.set()

    def end(self) -> None:
        """Nothing more will be told."""
        for listener in self._listeners:
            listener.ended = True
            listener.wake.set()

    async def serve(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Tell one page, until it goes or `end`."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise ApiError(503, "ServiceUnavailable", f"{MOST_LISTENERS} pages listen already")
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        listener = _Listener()
        self._listeners.add(listener)
        try:
            await response.prepare(request)
            # What a page has fetched before it listened may be old by now; the number tells it.
            await self._write(request, response, change_event(self.revision, ChangeScope()))
            while await listener.woken(self._ping):
                scope = listener.take()
                if not scope:
                    await self._write(request, response, b"event: ping\ndata: {}\n\n")
                    continue
                await self._write(request, response, change_event(self.revision, scope))
                await asyncio.sleep(self._apart)
        except (ConnectionError, TimeoutError):
            pass  # it has gone
        finally:
            self._listeners.discard(listener)
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, piece: bytes) -> None:
        try:
            async with asyncio.timeout(self._slow):
                await response.write(piece)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise


class _Listener:
    def __init__(self) -> None:
        self.scope = ChangeScope()
        self.wake = asyncio.Event()
        self.ended = False

    async def woken(self, seconds: float) -> bool:
        """Wait for something to tell, but not for ever; False when nothing more will come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        self.wake.clear()
        return not self.ended

    def take(self) -> ChangeScope:
        scope, self.scope = self.scope, ChangeScope()
        return scope


def change_event(revision: int, scope: ChangeScope) -> bytes:
    """One event: the revision, the nodes that differ (null: all of them), and the kinds."""
    many = scope.everywhere or len(scope.nodes) > MOST_NODES
    tree = {
        "revision": revision,
        "nodes": None if many else sorted(scope.nodes),
        "kinds": sorted(scope.kinds),
    }
    return b"event: change\ndata: " + codec.encode(tree) + b"\n\n"
