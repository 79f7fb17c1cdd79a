"""All controllers in one process.

Owns `Controllers`: which there are, and how they are started and stopped together. Promises: no controller
acts before the caches of all of them are filled; stopping at any moment and starting again ends in the same
state as not having stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from plimsoll.client.client import Client
from plimsoll.client.discovery import Served, discover
from plimsoll.client.endpoints import (
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.client.informer import Informer
from plimsoll.client.leader_election import Election
from plimsoll.common.clock import Clock, SystemClock
from plimsoll.controllers import loop
from plimsoll.controllers.caches import VIEWS, Caches
from plimsoll.controllers.common import Context, Settings
from plimsoll.controllers.device_taints import DeviceTaintController
from plimsoll.controllers.garbage_collector import GarbageController
from plimsoll.controllers.namespaces import NamespaceController
from plimsoll.controllers.nodes import NodeController, TaintEvictionController
from plimsoll.controllers.pod_gc import PodGarbageController
from plimsoll.controllers.quotas import QuotaController
from plimsoll.controllers.resource_claims import ClaimController
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger("plimsoll.controllers")
#: The longest wait between two attempts to read what the API serves.
_LONGEST_DELAY = 30.0


#: The controllers by the names kube-controller-manager gives them, with the kinds they cannot do without.
KINDS: Mapping[str, tuple[Callable[[Context], loop.Controller], tuple[Endpoint, ...]]] = {
    ClaimController.name: (ClaimController, (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)),
    DeviceTaintController.name: (DeviceTaintController, (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES)),
    GarbageController.name: (GarbageController, ()),
    NamespaceController.name: (NamespaceController, (NAMESPACES,)),
    NodeController.name: (NodeController, (NODES, PODS, LEASES)),
    PodGarbageController.name: (PodGarbageController, (NODES, PODS)),
    QuotaController.name: (QuotaController, (RESOURCE_QUOTAS,)),
    TaintEvictionController.name: (TaintEvictionController, (NODES, PODS)),
}
NAMES: tuple[str, ...] = tuple(KINDS)


class Controllers:
    """Runs controllers against one API, embedded or real.

    With an `election` they run only while it is won: several processes may then stand by for each other.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        only: Iterable[str] | None = None,
        settings: Settings | None = None,
        served: Iterable[Served] | None = None,
        election: Election | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._served = None if served is None else tuple(served)
        self._names = _choose(only)
        self._election = election
        self._ready = asyncio.Event()
        #: What runs, once started.
        self.controllers: list[loop.Controller] = []
        self.caches = Caches(client, self._clock.sleep)

    async def start(self) -> None:
        """Make the controllers anew, with empty caches; `run` does this first."""
        served = self._served if self._served is not None else tuple(await self._discover())
        self.caches = Caches(self._client, self._clock.sleep)
        context = Context(
            client=self._client,
            clock=self._clock,
            caches=self.caches,
            settings=self._settings,
            served=served,
            rediscover=self._rediscover,
            watches_all=GarbageController.name in self._names or QuotaController.name in self._names,
        )
        self.controllers = []
        for name in self._names:
            make, needs = KINDS[name]
            missing = [endpoint.plural for endpoint in needs if not context.serves(endpoint)]
            if missing:
                _log.warning("%s is left out: the API does not serve %s", name, ", ".join(missing))
            else:
                self.controllers.append(make(context))

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        if self._election is None:
            await self._lead()
        else:
            await self._election.run(self._lead)

    async def ready(self) -> None:
        """Wait until all caches are filled and all controllers run."""
        await self._ready.wait()

    async def _lead(self) -> None:
        await self.start()
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self.caches.informers():
                    group.create_task(informer.run())
                await asyncio.gather(*map(self._await_filled, self.caches.informers()))
                for controller in self.controllers:
                    group.create_task(loop.run(controller))
                self._ready.set()
        finally:
            self._ready.clear()

    async def _await_filled(self, informer: Informer[Any]) -> None:
        """Wait for a cache; of kinds that are only counted and collected, not for ever."""
        endpoint = informer.endpoint
        if (endpoint.group, endpoint.plural) in VIEWS:
            await informer.synced()
            return
        try:
            await informer.synced(self._settings.patience)
        except ApiError as error:
            _log.warning("going on without %s, which cannot be listed: %s", endpoint.plural, error)

    async def _rediscover(self) -> Sequence[Served]:
        return await discover(self._client) if self._served is None else self._served

    async def _discover(self) -> list[Served]:
        failures = 0
        while True:
            try:
                return await discover(self._client)
            except ApiError as error:
                failures += 1
                delay = min(_LONGEST_DELAY, 0.1 * 2 ** min(failures, 16))
                _log.warning("what the API serves cannot be read: %s; again in %.1f s", error, delay)
                await self._clock.sleep(delay)


def _choose(only: Iterable[str] | None) -> list[str]:
    if only is None:
        return list(NAMES)
    chosen = list(dict.fromkeys(only))
    for name in chosen:
        if name not in KINDS:
            raise InputError(f"no controller is called {name!r}; there are {', '.join(NAMES)}")
    return chosen
