"""Fake API server with one collection: lists, watches, history, and faults on demand.

The plainest API that keeps the rules an informer relies on. Everything that can go wrong on the way is a
fault that a test asks for: streams that break (in the middle of a line, too), a history that is forgotten,
requests that fail.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import InputError, UnreachableError

Tree = dict[str, Any]


class FakeApiServer:
    """One collection of one kind in one namespace, as a Transport."""

    def __init__(self) -> None:
        self.revision = 10
        self.objects: dict[str, Tree] = {}
        self.history: list[tuple[int, str, Tree]] = []
        self.floor = 0
        self.requests: list[Request] = []
        self.failures: list[InputError] = []
        self._changed = asyncio.Event()
        self._cut = 0
        self._stalled = False
        self.bookmarks = False
        self.streams = True
        #: How many versions too early a watch begins.
        self.early = 0
        #: What to cut each stream short by: so many bytes of its next chunk.
        self.half = 0

    # -- changes

    def put(self, name: str, value: str = "") -> None:
        known = self.objects.get(name)
        self.revision += 1
        uid = known["metadata"]["uid"] if known else f"u{self.revision}"
        metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.revision)}
        tree = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"v": value}}
        self.objects[name] = tree
        self._emit("MODIFIED" if known else "ADDED", tree)

    def remove(self, name: str) -> None:
        known = self.objects.pop(name, None)
        if known is not None:
            self.revision += 1
            metadata = {**known["metadata"], "resourceVersion": str(self.revision)}
            self._emit("DELETED", {**known, "metadata": metadata})

    def forget(self) -> None:
        """Drop the history: no watch can resume from before now."""
        self.floor = self.revision
        self.cut()

    def cut(self, half: int = 0) -> None:
        """Break every stream, after some bytes of the next event."""
        self._cut += 1
        self.half = half
        self._wake()

    def end(self) -> None:
        """End every stream as a server does at its timeout."""
        self.half = -1
        self._cut += 1
        self._wake()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Send nothing on streams."""
        self._stalled = True
        yield
        self._stalled = False
        self._wake()

    def _emit(self, kind: str, tree: Tree) -> None:
        self.history.append((self.revision, kind, tree))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- requests

    async def send(self, request: Request) -> Reply:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        query = dict(request.query)
        after, _, at = query.get("continue", "").partition("@")
        if at and int(at) < self.floor:
            return refusal(410, "Expired")
        revision = int(at or self.revision)
        items = sorted((name, tree) for name, tree in self._at(revision).items() if name > after)
        limit = int(query.get("limit", "0")) or len(items)
        page, rest = items[:limit], items[limit:]
        metadata = {"resourceVersion": str(revision)}
        if rest:
            metadata["continue"] = f"{page[-1][0]}@{revision}"
        bare = [{key: tree[key] for key in ("metadata", "data")} for _, tree in page]
        return reply({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": bare})

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        query = dict(request.query)
        if "sendInitialEvents" in query:
            if not self.streams:
                yield ResponseStream(422, {}, _once(refusal(422, "Invalid").body))
                return
            initial = b"".join(frame(0, "ADDED", tree) for tree in self.objects.values())
            yield ResponseStream(
                200, {}, self._events(self.revision, initial + bookmark(self.revision, end=True))
            )
            return
        since = int(query["resourceVersion"])
        if since < self.floor:
            error = refusal(410, "Expired")
            yield ResponseStream(410, {}, _once(error.body))
            return
        yield ResponseStream(200, {}, self._events(since - self.early))

    async def _events(self, since: int, initial: bytes = b"") -> AsyncIterator[bytes]:
        cut, place = self._cut, 0
        if initial:
            yield initial
        while True:
            if cut != self._cut:
                fresh = b"".join(frame(*event) for event in self.history[place:] if event[0] > since)
                if self.half < 0:
                    yield fresh
                    return
                if self.half and fresh:
                    yield fresh[: self.half]
                raise UnreachableError("cut", sent=True)
            waiting = self._changed
            fresh = b""
            while place < len(self.history) and not self._stalled:
                event = self.history[place]
                place += 1
                if event[0] > since:
                    fresh += frame(*event)
            if fresh:
                if self.bookmarks:
                    fresh += bookmark(self.revision)
                yield fresh
            else:
                await waiting.wait()

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        return None

    def _at(self, revision: int) -> dict[str, Tree]:
        """Return the state at a revision, from the history alone."""
        state: dict[str, Tree] = {}
        for when, kind, tree in self.history:
            if when > revision:
                break
            if kind == "DELETED":
                state.pop(tree["metadata"]["name"])
            else:
                state[tree["metadata"]["name"]] = tree
        return state


def frame(revision: int, kind: str, tree: Tree) -> bytes:
    return json.dumps({"type": kind, "object": tree}).encode() + b"\n"


def bookmark(revision: int, *, end: bool = False) -> bytes:
    metadata: Tree = {"resourceVersion": str(revision)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return frame(revision, "BOOKMARK", {"kind": "ConfigMap", "metadata": metadata})


def reply(tree: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(tree).encode())


def refusal(code: int, reason: str, **headers: str) -> Reply:
    tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return reply({**tree, "message": f"{reason} of a test"}, code, **headers)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
