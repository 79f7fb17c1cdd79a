"""The pod garbage collector: looks through all pods every now and then.

Owns the loop around `plans/pod_garbage.py`. Promises: a node counts as gone only after it has been missing
for a while and the API has said so.
"""

from __future__ import annotations

import asyncio

from plimsoll.client.endpoints import NODES, PODS
from plimsoll.controllers.actions import Action, Plan
from plimsoll.controllers.common import Context
from plimsoll.controllers.plans.pod_garbage import find_missing_nodes, plan_pod_garbage
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

_KEY = "all pods"
_AT_ONCE = 16


class PodGarbageController:
    """See the module; there is one key."""

    name = "pod-garbage-collector-controller"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._context = context
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._pods = context.caches.of(PODS)
        self._nodes = context.caches.of(NODES)
        self._missing: dict[str, float] = {}  # node -> when it was first missed
        self.queue.add(_KEY)

    async def reconcile(self, key: str) -> Plan:
        settings = self._context.settings
        now = self._context.clock.now()
        pods = self._pods.items()
        nodes = {node.metadata.name: node for node in self._nodes.items()}
        missing = find_missing_nodes(pods, nodes)
        self._missing = {name: self._missing.get(name, now) for name in missing}
        gone = set()
        for name, since in self._missing.items():
            if now - since >= settings.node_quarantine and await self._is_gone(name):
                gone.add(name)
        work = plan_pod_garbage(pods, nodes, gone, settings.finished_pods_kept, now)
        gate = asyncio.Semaphore(_AT_ONCE)
        failures: list[str] = []

        async def remove(actions: tuple[Action, ...]) -> None:
            async with gate:
                try:
                    await self._context.performer.perform(actions)
                except ApiError as error:
                    failures.append(str(error))

        await asyncio.gather(*map(remove, work))
        if failures:
            return Plan(trouble=f"{len(failures)} pods could not be removed: {failures[0]}")
        return Plan(again=settings.pod_garbage_period)

    async def _is_gone(self, name: str) -> bool:
        try:
            await self._context.client.get_raw(NODES, name)
        except ApiError as error:
            if error.code == 404:
                return True
            raise
        return False
