"""All controllers in one process.

Owns `Controllers`: which there are, and how they are started and stopped together. Promises: no controller
acts before the caches of all of them are filled; stopping at any moment and starting again ends in the same
state as not having stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from plimsoll.cluster.client.client import Client
from plimsoll.cluster.controllers import loop
from plimsoll.cluster.controllers.caches import Caches
from plimsoll.cluster.controllers.claims import ClaimController
from plimsoll.cluster.controllers.clock import Clock, SystemClock
from plimsoll.cluster.controllers.common import Context, Settings
from plimsoll.cluster.controllers.device_taints import DeviceTaintController
from plimsoll.cluster.controllers.discovery import Served, discover
from plimsoll.cluster.controllers.garbage import GarbageController
from plimsoll.cluster.controllers.namespaces import NamespaceController
from plimsoll.cluster.controllers.nodes import NodeController, TaintEvictionController
from plimsoll.cluster.controllers.pod_garbage import PodGarbageController
from plimsoll.cluster.controllers.quotas import QuotaController
from plimsoll.errors import InputError

#: The controllers by the names that kube-controller-manager gives them.
KINDS: Mapping[str, Callable[[Context], loop.Controller]] = {
    kind.name: kind
    for kind in (
        ClaimController,
        DeviceTaintController,
        GarbageController,
        NamespaceController,
        NodeController,
        PodGarbageController,
        QuotaController,
        TaintEvictionController,
    )
}
NAMES: tuple[str, ...] = tuple(KINDS)


class Controllers:
    """Runs controllers against one API, embedded or real."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        only: Iterable[str] | None = None,
        settings: Settings | None = None,
        served: Iterable[Served] | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._served = None if served is None else tuple(served)
        self._names = _choose(only)
        self._ready = asyncio.Event()
        #: What runs, once started.
        self.controllers: list[loop.Controller] = []
        self.caches = Caches(client, self._clock.sleep)

    async def start(self) -> None:
        """Make the controllers; `run` does this first."""
        if self._served is None:
            self._served = tuple(await discover(self._client))
        context = Context(
            client=self._client,
            clock=self._clock,
            caches=self.caches,
            settings=self._settings,
            served=self._served,
            watches_all=GarbageController.name in self._names or QuotaController.name in self._names,
        )
        self.controllers = [KINDS[name](context) for name in self._names]

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        await self.start()
        async with asyncio.TaskGroup() as group:
            for informer in self.caches.informers():
                group.create_task(informer.run())
            for informer in self.caches.informers():
                await informer.synced()
            for controller in self.controllers:
                group.create_task(loop.run(controller))
            self._ready.set()

    async def ready(self) -> None:
        """Wait until all caches are filled and all controllers run."""
        await self._ready.wait()


def _choose(only: Iterable[str] | None) -> list[str]:
    if only is None:
        return list(NAMES)
    chosen = list(dict.fromkeys(only))
    for name in chosen:
        if name not in KINDS:
            raise InputError(f"no controller is called {name!r}; there are {', '.join(NAMES)}")
    return chosen
