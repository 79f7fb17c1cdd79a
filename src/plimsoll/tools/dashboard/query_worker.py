"""`QueryWorker`: serialized queries on a consistent cluster state while the cluster changes.

Queries run in a thread; changes are queued and applied between two queries, so a result always describes one
state. Results are cached until something changes.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import ApiError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.changes import ChangeScope, ObjectChange, apply_change

R = TypeVar("R")
#: Cached results, including list pages.
_KEPT = 128
#: Bytes below which responses are not compressed.
_SMALL = 1400
#: Maximum number of waiting queries.
MOST_WAITING = 16


@dataclass(frozen=True)
class QueryResult:
    """JSON response with its revision."""

    revision: int
    body: bytes

    @cached_property
    def tag(self) -> str:
        """Entity tag of the body."""
        return f"{self.revision}-{zlib.crc32(self.body):x}"

    @cached_property
    def packed(self) -> bytes | None:
        """The body compressed with gzip, if that is worthwhile."""
        return gzip.compress(self.body, 5) if len(self.body) >= _SMALL else None


#: Computes a result; runs in a thread with exclusive access to the cluster state.
Query = Callable[[], Any]


class QueryWorker:
    """Runs queries on one cluster state."""

    def __init__(
        self, cluster_state: ClusterState, revision: int = 1, *, follows: Callable[[], int] | None = None
    ) -> None:
        """With `follows`, apply queued changes before each query and take over its revision.

        Otherwise only `catch_up` applies changes.
        """
        self.cluster_state = cluster_state
        self.revision = revision
        self._follows = follows
        self._turn = asyncio.Lock()
        self._backlog: list[ObjectChange] = []
        self._kept: OrderedDict[object, QueryResult] = OrderedDict()
        self._waiting: list[object] = []  #: keys of queries, including the running one

    def on_change(self, change: ObjectChange) -> None:
        """Queue a change; it is applied between two queries."""
        self._backlog.append(change)

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    def has_other_queries(self, key: object) -> bool:
        """Return whether a query other than this one is waiting; thread-safe."""
        return any(other != key for other in list(self._waiting))

    async def catch_up(self, entered: Callable[[ChangeScope], int]) -> None:
        """Apply all changes; `entered` receives their scope before any query and returns the revision."""
        async with self._turn:
            self.revision = entered(await self._enter())

    async def _enter(self) -> ChangeScope:
        changes, self._backlog = self._backlog, []
        scope = (
            await _in_thread(lambda: _enter_all(self.cluster_state, changes)) if changes else ChangeScope()
        )
        if scope:
            self._kept.clear()
        return scope

    async def ask(self, key: object, query: Query) -> QueryResult:
        """Return the result of a query; equal keys share a cached result (None: not cached)."""
        if (known := self._known(key)) is not None:
            return known
        if len(self._waiting) >= MOST_WAITING:
            raise ApiError(503, "ServiceUnavailable", "too many concurrent queries: retry later")
        self._waiting.append(key)
        try:
            async with self._turn:
                if self._follows is not None:
                    await self._enter()
                    self.revision = self._follows()
                if (known := self._known(key)) is not None:
                    return known
                revision = self.revision
                result = await _in_thread(lambda: _run_query(revision, query))
                if key is not None:
                    self._kept[key] = result
                    while len(self._kept) > _KEPT:
                        self._kept.popitem(last=False)
                return result
        finally:
            self._waiting.remove(key)

    async def compute(self, work: Callable[[], R]) -> R:
        """Return the value of a function that reads the cluster state; not cached, not encoded."""
        async with self._turn:
            if self._follows is not None:
                await self._enter()
                self.revision = self._follows()
            return await _in_thread(work)

    async def copy(self, follows: Callable[[], int]) -> QueryWorker:
        """Return a second worker with a copy of the cluster state and of the pending changes."""
        async with self._turn:
            copy = QueryWorker(self.cluster_state.copy(), self.revision, follows=follows)
            copy._backlog = list(self._backlog)
            return copy

    def _known(self, key: object) -> QueryResult | None:
        if self._follows is not None and (self._backlog or self._follows() != self.revision):
            return None  # possibly stale
        known = self._kept.get(key)
        return known if known is not None and known.revision == self.revision else None


async def _in_thread(work: Callable[[], R]) -> R:
    """Run a function in a thread; when cancelled, wait for its end, so that two never run at once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


def _enter_all(cluster_state: ClusterState, changes: Iterable[ObjectChange]) -> ChangeScope:
    scope = ChangeScope()
    with without_collection():
        for change in changes:
            apply_change(cluster_state, change, scope)
    return scope


def _run_query(revision: int, query: Query) -> QueryResult:
    with without_collection():  # a collection would block all requests
        tree = query()
    if isinstance(tree, bytes):
        result = QueryResult(revision, tree)
    else:
        if isinstance(tree, dict):
            tree = {"revision": revision, **tree}
        result = QueryResult(revision, codec.encode(tree))
    _ = result.packed, result.tag  # compressed here, outside the event loop
    return result
