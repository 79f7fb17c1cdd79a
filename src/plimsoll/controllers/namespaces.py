"""The namespace controller: empties namespaces that are deleted, and makes those that every cluster has.

Owns the loop around `plans/namespaces.py`. Promises: pods go first, everything else after the last of them;
a namespace is let go only when the API has nothing left in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import Object
from plimsoll.api.quota import CountedPod
from plimsoll.api.timestamps import parse_time
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import NAMESPACES, PODS, Endpoint
from plimsoll.controllers.actions import NOTHING, Plan
from plimsoll.controllers.caches import Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.garbage_collector import collected
from plimsoll.controllers.plans.namespaces import (
    DEFAULTS,
    FINALIZING,
    Content,
    estimate_pods,
    plan_content,
    plan_defaults,
    plan_phase,
)
from plimsoll.controllers.plans.views import Namespace
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

#: The key under which the namespaces that every cluster has are looked after.
_DEFAULTS_KEY = ""
#: How many kinds are looked at, and deleted, at once.
_AT_ONCE = 8
#: The longest wait between two attempts to empty a namespace.
_LONGEST_DELAY = 60.0


class NamespaceController:
    """See the module; keys are names."""

    name = "namespace-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock, longest=_LONGEST_DELAY)
        self._namespaces = context.caches.of(NAMESPACES)
        self._namespaces.add_handler(Listener(self._hear))
        self.queue.add(_DEFAULTS_KEY)
        if context.watches_all:
            for endpoint in collected(context.served):
                if endpoint.namespaced:
                    context.caches.of(endpoint).add_handler(Listener(self._hear_content))

    def _hear(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is not None and new.metadata.deletion_timestamp is not None:
            self.queue.add_after(new.metadata.name, self._context.settings.namespace_grace)
        if new is None and old is not None and old.metadata.name in DEFAULTS:
            self.queue.add(_DEFAULTS_KEY)

    def _hear_content(self, old: Any, new: Any) -> None:
        """Something went: perhaps it was the last thing that a namespace waits for."""
        if new is None:
            namespace: Namespace | None = self._namespaces.get("", old.metadata.namespace)
            if namespace is not None and namespace.metadata.deletion_timestamp is not None:
                self.queue.add(namespace.metadata.name)

    async def reconcile(self, key: str) -> Plan:
        perform = self._context.performer.perform
        if key == _DEFAULTS_KEY:
            plan = plan_defaults([item.metadata.name for item in self._namespaces.items()])
            await perform(plan.actions)
            return plan
        try:
            tree = await self._context.client.get(NAMESPACES, key)
        except ApiError as error:
            if error.code != 404:
                raise
            return NOTHING
        namespace = codec.convert(tree, Namespace)
        phase = plan_phase(namespace)
        if phase:
            done = await perform(phase.actions)
            if not done.objects:
                return NOTHING
            tree = done.objects[-1]
            namespace = codec.convert(tree, Namespace)
        if namespace.metadata.deletion_timestamp is None or not namespace.spec.finalizers:
            return NOTHING
        content = await self._empty(namespace)
        plan = plan_content(namespace, tree, content, self._context.clock.now())
        await perform(plan.actions)
        return plan

    async def _empty(self, namespace: Namespace) -> Content:
        """Delete what is in a namespace; what is left, and why."""
        left: dict[str, int] = {}
        finalizers: Counter[str] = Counter()
        failures: list[str] = []
        estimates = [0]

        async def empty(kind: Served) -> None:
            try:
                rest, estimate = await self._empty_kind(kind, namespace)
            except ApiError as error:
                failures.append(str(error))
                return
            if rest:
                held = Counter(name for item in rest for name in item.metadata.finalizers)
                finalizers.update(held)
                left[f"{kind.endpoint.plural}.{kind.endpoint.group}"] = len(rest)
                estimates.append(estimate or (FINALIZING if held else 0))

        try:
            served = await self._context.rediscover()
        except ApiError as error:
            return Content(undiscovered=str(error))
        kinds = [kind for kind in served if kind.endpoint.namespaced and "delete" in kind.verbs]
        pods = [kind for kind in kinds if kind.endpoint[:3] == PODS[:3]]
        others = [kind for kind in kinds if kind not in pods]
        for kind in pods:
            await empty(kind)
        if not left:
            gate = asyncio.Semaphore(_AT_ONCE)

            async def empty_in_turn(kind: Served) -> None:
                async with gate:
                    await empty(kind)

            await asyncio.gather(*map(empty_in_turn, others))
        return Content(left, finalizers, sorted(failures), max(estimates))

    async def _empty_kind(self, kind: Served, namespace: Namespace) -> tuple[list[Object], int]:
        endpoint, name = kind.endpoint, namespace.metadata.name
        client = self._context.client
        found = await self._list(kind, name)
        if not found:
            return [], 0
        estimate = self._estimate(endpoint, found, namespace)
        if "deletecollection" in kind.verbs:
            await client.delete_collection(endpoint, name, propagation="Background")
        else:
            for item in found:
                try:
                    await client.delete(endpoint, item.metadata.name, name, propagation="Background")
                except ApiError as error:
                    if error.code not in (404, 405):
                        raise
        return await self._list(kind, name), estimate

    async def _list(self, kind: Served, namespace: str) -> list[Object]:
        if "list" not in kind.verbs:
            return []
        view: Any = CountedPod if kind.endpoint[:3] == PODS[:3] else Object
        try:
            listing = await self._context.client.list(kind.endpoint, namespace)
        except ApiError as error:
            if error.code not in (404, 405):
                raise
            return []
        return [codec.decode(raw, view) for raw in listing.items]

    def _estimate(self, endpoint: Endpoint, found: list[Any], namespace: Namespace) -> int:
        if endpoint[:3] != PODS[:3]:
            return 0
        deleted_at = parse_time(namespace.metadata.deletion_timestamp) or 0.0
        return estimate_pods(found, deleted_at, self._context.clock.now())
