"""Loading of manifests into a running cluster, with server-side apply; idempotent.

Files may be in any order. A rejected object is reported in one line with file and object, and the others are
still loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, Endpoint
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.apply import Applier, namespace_of
from plimsoll.up.manifests.load_result import LoadResult
from plimsoll.up.manifests.order import arrange, missing_namespaces
from plimsoll.up.manifests.restore import is_recorded

MANAGER = "plimsoll-up"
_AT_ONCE = 32
Tick = Callable[[int, int], None]


async def load(
    client: Client,
    found: Iterable[ParsedObject],
    tick: Tick = lambda done, whole: None,
) -> LoadResult:
    """Load manifests; objects that were recorded in a cluster are restored (`restore.py`) and not loaded."""
    wanted = [each for each in found if not is_recorded(each.tree)]
    return await _Load(client, wanted, tick).run()


class _Load:
    def __init__(self, client: Client, found: Sequence[ParsedObject], tick: Tick) -> None:
        self._applier = Applier(client, MANAGER)
        self._client = client
        self._found = found
        self._tick = tick
        self._loaded = LoadResult()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> LoadResult:
        for name in missing_namespaces(self._found):
            await self._ensure_namespace(name)
        done = 0
        for group in arrange(self._found):
            await asyncio.gather(*map(self._load_object, group))
            done += len(group)
            self._tick(done, len(self._found))
        return self._loaded

    async def _ensure_namespace(self, name: str) -> None:
        """Create a namespace that the files do not include, unless it exists."""
        try:
            await self._client.create(NAMESPACES, {"metadata": {"name": name}}, "")
        except ApiError as error:
            if error.code != 409:
                self._loaded.problems.append(f"namespace {name}: {error}")

    async def _load_object(self, each: ParsedObject) -> None:
        async with self._slots:
            try:
                if not each.name:
                    raise InputError("metadata.name: required, to recognize the object at the next start")
                endpoint = await self._applier.endpoint_of(each.tree)
                is_new = not await self._exists(endpoint, each.name, namespace_of(each.tree))
                await self._applier.apply(each.tree)
            except InputError as error:
                self._loaded.reject(each.where, each.tree, error)
                return
        if is_new:
            self._loaded.new += 1
        else:
            self._loaded.known += 1

    async def _exists(self, endpoint: Endpoint, name: str, namespace: str) -> bool:
        try:
            await self._client.get_raw(endpoint, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True
