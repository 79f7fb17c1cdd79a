"""Synchronous client for code without asyncio.

Objects are plain trees. Calls may be made from any thread except that of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from plimsoll.client import responses as answers
from plimsoll.client.client import Client, PatchType, Propagation
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.transport import Reply

R = TypeVar("R")
Tree = dict[str, Any]
#: Kind to access: an endpoint, or a name that API discovery resolves.
Kind = Endpoint | str


class BlockingClient:
    """Synchronous form of `Client`: `get`, `list`, `watch` and the rest without await."""

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, find: Callable[[str], Endpoint]
    ) -> None:
        self._client = client
        self._loop = loop
        self._find = find

    def get(self, kind: Kind, name: str, namespace: str = "") -> Tree:
        return self._wait(self._client.get(self._endpoint(kind), name, namespace))

    def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Tree]:
        """Return the objects of a namespace; None: of all namespaces."""
        listing = self._wait(self._client.list(self._endpoint(kind), namespace, labels=labels, fields=fields))
        return [answers.read_tree(raw) for raw in listing.items]

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        since: str = "",
        labels: str = "",
        fields: str = "",
        seconds: int = 0,
    ) -> Iterator[tuple[str, Tree]]:
        """Yield events as (type, object) without bookmarks; close it, or set `seconds`, to end it."""
        events = self._client.watch(
            self._endpoint(kind), namespace, since=since, labels=labels, fields=fields, seconds=seconds
        )
        try:
            while True:
                try:
                    event = self._wait(_next(events))
                except StopAsyncIteration:
                    return
                if event.type != "BOOKMARK":
                    yield event.type, answers.read_tree(event.raw)
        finally:
            self._wait(_close(events))

    def create(
        self, kind: Kind, tree: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> Tree:
        return self._wait(self._client.create(self._endpoint(kind), tree, namespace, dry_run=dry_run))

    def post(
        self, kind: Kind, name: str, subresource: str, tree: Mapping[str, Any], namespace: str = ""
    ) -> Tree:
        """Create a subresource: a pod's binding or eviction."""
        return self._wait(self._client.post(self._endpoint(kind), name, subresource, tree, namespace))

    def update(
        self, kind: Kind, tree: Mapping[str, Any], namespace: str = "", *, subresource: str = ""
    ) -> Tree:
        return self._wait(self._client.update(self._endpoint(kind), tree, namespace, subresource=subresource))

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        type: PatchType = "merge",
        field_manager: str = "",
        force: bool = False,
    ) -> Tree:
        return self._wait(
            self._client.patch(
                self._endpoint(kind),
                name,
                patch,
                namespace,
                subresource=subresource,
                type=type,
                field_manager=field_manager,
                force=force,
            )
        )

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: Propagation | None = None,
    ) -> Tree:
        return self._wait(
            self._client.delete(
                self._endpoint(kind), name, namespace, uid=uid, grace=grace, propagation=propagation
            )
        )

    def delete_collection(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Tree:
        return self._wait(
            self._client.delete_collection(self._endpoint(kind), namespace, labels=labels, fields=fields)
        )

    def call(
        self, method: str, path: str, *, query: Iterable[tuple[str, str]] = (), tree: Any = None
    ) -> Reply:
        return self._wait(self._client.call(method, path, query=query, tree=tree))

    def _endpoint(self, kind: Kind) -> Endpoint:
        return self._find(kind) if isinstance(kind, str) else kind

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(events: Any) -> answers.WatchEvent:
    # A coroutine, as run_coroutine_threadsafe requires.
    event: answers.WatchEvent = await anext(events)
    return event


async def _close(events: Any) -> None:
    await events.aclose()
