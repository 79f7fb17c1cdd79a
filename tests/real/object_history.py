"""History of the objects of an API server: every event of pods, claims and nodes, in the order of their
resource versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, Endpoint
from plimsoll.errors import ApiError
from tests.waiting import until

Tree = dict[str, Any]
Event = tuple[int, bool, Tree]
_MARKS = "marks"


class ObjectHistory:
    """Events since the start; `gaps` counts watches that could not be resumed where they had ended."""

    def __init__(self, client: Client, on_event: Callable[[bool, Tree], None]) -> None:
        self._client = client
        self._on_event = on_event
        self._events: list[Event] = []
        self._latest: dict[str, int] = {}
        self._known: dict[str, dict[str, Tree]] = {"Pod": {}, "ResourceClaim": {}, "Node": {}}
        self._mark = 0
        self.gaps = 0

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        await self._client.create(NAMESPACES, {"metadata": {"name": _MARKS}})
        container = {"name": "c", "image": "none"}
        pod = {"metadata": {"name": "mark"}, "spec": {"schedulerName": "none", "containers": [container]}}
        await self._client.create(PODS, pod, _MARKS)
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}
        claim = {"metadata": {"name": "mark"}, "spec": {"devices": devices}}
        await self._client.create(RESOURCE_CLAIMS, claim, _MARKS)
        tasks = [asyncio.create_task(self._follow(each)) for each in (PODS, RESOURCE_CLAIMS, NODES)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self) -> list[Event]:
        """Return the events until now that have not been taken yet, in order."""
        self._mark += 1
        patch = {"metadata": {"annotations": {"mark": str(self._mark)}}}
        marks = []
        for endpoint in (PODS, RESOURCE_CLAIMS):

            async def write(endpoint: Endpoint = endpoint) -> Tree:
                return await self._client.patch(endpoint, "mark", patch, _MARKS)

            tree = await until(write, ignore=(ApiError,))
            marks.append((endpoint.kind, int(tree["metadata"]["resourceVersion"])))
        await until(lambda: all(self._latest.get(kind, 0) >= version for kind, version in marks))
        limit = min(version for _, version in marks)
        ready = sorted((event for event in self._events if event[0] <= limit), key=lambda event: event[0])
        self._events = [event for event in self._events if event[0] > limit]
        return ready

    async def _follow(self, endpoint: Endpoint) -> None:
        since = ""
        while True:
            try:
                if not since:
                    since = await self._list(endpoint)
                async with aclosing(self._client.watch(endpoint, since=since)) as events:
                    async for event in events:
                        since = event.revision or since
                        if event.type != "BOOKMARK":
                            self._add(event.type == "DELETED", json.loads(event.raw))
            except ApiError as error:
                if error.code == 410:
                    since = ""
                    self.gaps += 1
                await asyncio.sleep(0.05)

    async def _list(self, endpoint: Endpoint) -> str:
        listing = await self._client.list(endpoint)
        known = self._known[endpoint.kind]
        trees = {tree["metadata"]["uid"]: tree for tree in map(json.loads, listing.items)}
        for uid in known.keys() - trees.keys():
            last = known[uid]
            meta = {**last["metadata"], "resourceVersion": listing.revision}
            self._add(True, {**last, "metadata": meta})
        for uid, tree in trees.items():
            version = tree["metadata"]["resourceVersion"]
            if uid not in known or known[uid]["metadata"]["resourceVersion"] != version:
                self._add(False, tree)
        self._latest[endpoint.kind] = max(self._latest.get(endpoint.kind, 0), int(listing.revision))
        return listing.revision

    def _add(self, deleted: bool, tree: Tree) -> None:
        known, meta = self._known[tree["kind"]], tree["metadata"]
        with suppress(KeyError):
            del known[meta["uid"]]
        if not deleted:
            known[meta["uid"]] = tree
        version = int(meta["resourceVersion"])
        self._latest[tree["kind"]] = version
        meta.pop("managedFields", None)
        self._events.append((version, deleted, tree))
        self._on_event(deleted, tree)
