"""`EventStream`: server-sent events to open pages.

A page receives at most four events a second; changes in between are merged. A client that does not read is
disconnected. The first event of a stream has the current revision and status, from which a page that was
disconnected knows what to fetch again.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from plimsoll.api import codec
from plimsoll.common.tasks import at_most
from plimsoll.errors import ApiError
from plimsoll.tools.dashboard.changes import ChangeScope

#: Seconds between events to one page, between pings, and until a client that does not read is closed.
APART = 0.25
PING = 15.0
SLOW = 10.0
#: Maximum number of nodes in an event; more are sent as "all".
MOST_NODES = 500
#: Maximum number of connected pages.
MOST_LISTENERS = 200
#: Kinds of changes of the dashboard itself, which leave the revision of the cluster's data as it is.
STATUS_KINDS = frozenset({"Finding", "Trouble"})


class EventStream:
    """Connected pages and their pending changes."""

    def __init__(
        self, revision: int = 1, *, apart: float = APART, ping: float = PING, slow: float = SLOW
    ) -> None:
        self.revision = revision
        #: Number of changes of `STATUS_KINDS`.
        self.status = 0
        self.apart, self.ping, self.slow = apart, ping, slow
        self._listeners: set[_Listener] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def publish(self, revision: int, scope: ChangeScope) -> None:
        """Publish a change as of this revision."""
        self.revision = revision
        self.status += not STATUS_KINDS.isdisjoint(scope.kinds)
        for listener in self._listeners:
            listener.scope.merge(scope)
            listener.wake.set()

    def end(self) -> None:
        """Close all streams."""
        for listener in self._listeners:
            listener.ended = True
            listener.wake.set()

    async def serve(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Serve one page until it disconnects or `end` is called."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise ApiError(503, "ServiceUnavailable", f"limit of {MOST_LISTENERS} open event streams reached")
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        listener = _Listener()
        self._listeners.add(listener)
        try:
            await response.prepare(request)
            # Data fetched before the stream opened may be stale; revision and status show it.
            await self._write(request, response, self._event(ChangeScope()))
            while await listener.woken(self.ping):
                scope = listener.take()
                if not scope:
                    await self._write(request, response, b"event: ping\ndata: {}\n\n")
                    continue
                await self._write(request, response, self._event(scope))
                await asyncio.sleep(self.apart)
        except (ConnectionError, TimeoutError):
            pass  # disconnected
        finally:
            self._listeners.discard(listener)
        return response

    def _event(self, scope: ChangeScope) -> bytes:
        return change_event(self.revision, self.status, scope)

    async def _write(self, request: web.Request, response: web.StreamResponse, piece: bytes) -> None:
        try:
            async with asyncio.timeout(self.slow):
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
        """Wait for a change or a timeout; return False when the stream has ended."""
        async with at_most(seconds):
            await self.wake.wait()
        self.wake.clear()
        return not self.ended

    def take(self) -> ChangeScope:
        scope, self.scope = self.scope, ChangeScope()
        return scope


def change_event(revision: int, status: int, scope: ChangeScope) -> bytes:
    """Encode one event: revision, status, changed nodes (null: all), and kinds."""
    many = scope.everywhere or len(scope.nodes) > MOST_NODES
    tree = {
        "revision": revision,
        "status": status,
        "nodes": None if many else sorted(scope.nodes),
        "kinds": sorted(scope.kinds),
    }
    return b"event: change\ndata: " + codec.encode(tree) + b"\n\n"
