"""Fake API server: collections by path, errors by path, watches that can send events and be cut.

The plainest API that a reader needs: discovery, lists in pages, watches. Whatever else is asked for is 404.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import DEPLOYMENTS, EVENTS
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import ConfigError, UnreachableError
from plimsoll.tools.cluster_state.kinds import KINDS

Tree = dict[str, Any]


class FakeApiServer:
    """Transport; `versions` are the served versions of groups, if not those of `kinds.py`."""

    def __init__(self, trees: list[Tree], versions: dict[str, str] | None = None) -> None:
        self.trees = trees
        self.versions = versions or {}
        self.refused: dict[str, int] = {}  #: HTTP status by path
        self.requests: list[str] = []
        self.unserved: set[str] = set()
        self.dead = False
        self.broken = False  #: credentials that cannot be used
        self._events: list[tuple[str, str, Tree]] = []
        self._changed = asyncio.Event()
        self.streams = 0
        self._cut = 0

    def client(self) -> Client:
        return Client(self, attempts=1)

    # -- changes

    def emit(self, event: str, tree: Tree) -> None:
        revision = 100 + len(self._events)
        stored = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(revision)}}
        self._events.append((event, _plural(stored["kind"]), stored))
        self._wake()

    def cut(self) -> None:
        self._cut += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- requests

    async def send(self, request: Request) -> Reply:
        self.requests.append(request.path)
        await asyncio.sleep(0)
        if self.broken:
            raise ConfigError("token: no such file")
        if self.dead:
            raise UnreachableError("127.0.0.1:1: connection refused", sent=False)
        if (status := self.refused.get(request.path)) is not None:
            return _status(status)
        if request.path in ("/api", "/apis"):
            return Reply(200, {}, json.dumps(self._discovery(request.path)).encode())
        found = self._collection(request.path)
        if found is None:
            return _status(404)
        query = dict(request.query)
        kind, items = found
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": "50"}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        body = {"kind": f"{kind}List", "metadata": metadata, "items": items[start : start + limit]}
        return Reply(200, {}, json.dumps(body).encode())

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        self.streams += 1
        await asyncio.sleep(0)
        if self.dead:
            raise UnreachableError("127.0.0.1:1: connection refused", sent=False)
        since = int(dict(request.query).get("resourceVersion", "50"))
        yield ResponseStream(200, {}, self._lines(request.path.rpartition("/")[2], since))

    async def _lines(self, plural: str, since: int) -> AsyncIterator[bytes]:
        place, cut = max(since - 99, 0), self._cut
        while True:
            waiting = self._changed
            if cut != self._cut:
                raise UnreachableError("cut", sent=True)
            while place < len(self._events):
                event, kind, tree = self._events[place]
                place += 1
                if kind == plural:
                    yield json.dumps({"type": event, "object": tree}).encode() + b"\n"
            await waiting.wait()

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        return None

    def _collection(self, path: str) -> tuple[str, list[Tree]] | None:
        for endpoint in (*(kind.endpoint for kind in KINDS), EVENTS, DEPLOYMENTS):
            if endpoint.plural in self.unserved:
                continue
            version = self.versions.get(endpoint.group, endpoint.version)
            root = endpoint.at(version)
            for namespace in (None, "work"):
                if path == root.path(namespace):
                    trees = [tree for tree in self.trees if tree["kind"] == endpoint.kind]
                    if namespace and endpoint.namespaced:
                        trees = [tree for tree in trees if tree["metadata"].get("namespace") == namespace]
                    return endpoint.kind, trees
        return None

    def _discovery(self, path: str) -> Tree:
        groups: dict[tuple[str, str], list[Tree]] = {}
        for kind in KINDS:
            endpoint = kind.endpoint
            if endpoint.plural in self.unserved or (endpoint.group == "") != (path == "/api"):
                continue
            version = self.versions.get(endpoint.group, endpoint.version)
            scope = "Namespaced" if endpoint.namespaced else "Cluster"
            entry = {
                "resource": endpoint.plural,
                "responseKind": {"kind": endpoint.kind},
                "scope": scope,
                "verbs": ["list", "watch"],
            }
            groups.setdefault((endpoint.group, version), []).append(entry)
        items = [
            {"metadata": {"name": group}, "versions": [{"version": version, "resources": resources}]}
            for (group, version), resources in groups.items()
        ]
        return {"kind": "APIGroupDiscoveryList", "items": items}


def _plural(kind: str) -> str:
    return next(each.endpoint.plural for each in KINDS if each.endpoint.kind == kind)


def _status(code: int) -> Reply:
    reason = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}.get(code, "InternalError")
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"{reason} here",
    }
    return Reply(code, {}, json.dumps(body).encode())
