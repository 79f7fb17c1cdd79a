"""The garbage collector: watches every kind that can be deleted, and deletes what nobody owns any more.

Owns the loop around `plans/garbage.py`. Promises: nothing is deleted before the API itself has said that its
owners are gone, and nothing that was changed since.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import Object, OwnerReference
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import Endpoint
from plimsoll.controllers.actions import NOTHING, Plan
from plimsoll.controllers.caches import Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.plans.garbage import Owner, look_up, plan_dependent, plan_orphaning, plan_waiting
from plimsoll.controllers.plans.graph import Graph, Item
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

#: What an object must allow to be collected.
_NEEDED = frozenset({"delete", "list", "watch"})
#: How many owners are remembered as gone, so that the API need not be asked for each of their objects.
_REMEMBERED = 500


def collected(served: tuple[Served, ...]) -> list[Endpoint]:
    """The kinds that are watched; events are too many, and own nothing."""
    return [item.endpoint for item in served if item.verbs >= _NEEDED and item.endpoint.plural != "events"]


class GarbageController:
    """See the module; keys are UIDs."""

    name = "garbage-collector-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self.graph = Graph()
        self._kinds = {
            (item.endpoint.group, version, item.endpoint.kind): item.endpoint
            for item in context.served
            for version in item.versions or (item.endpoint.version,)
        }
        self._gone: dict[tuple[str, str, str, str, str], None] = {}
        for endpoint in collected(context.served):
            context.caches.of(endpoint).add_handler(Listener(partial(self._hear, endpoint)))

    def _hear(self, endpoint: Endpoint, old: Any, new: Any) -> None:
        graph, queue = self.graph, self.queue
        if new is not None:
            item = Item(endpoint, new.metadata)
            graph.put(item)
            if item.is_waiting:
                for dependent in graph.dependents(new.metadata.uid):
                    queue.add(dependent.metadata.uid)
            if new.metadata.owner_references or item.is_orphaning or item.is_waiting:
                queue.add(new.metadata.uid)
        else:
            graph.take(old.metadata.uid)
            for dependent in graph.dependents(old.metadata.uid):
                queue.add(dependent.metadata.uid)
        for reference in old.metadata.owner_references if old is not None else ():
            owner = graph.get(reference.uid)
            if owner is not None and owner.is_waiting:
                queue.add(reference.uid)

    async def reconcile(self, key: str) -> Plan:
        graph = self.graph
        item = graph.get(key)
        if item is None:
            return NOTHING
        if item.is_orphaning:
            plan = plan_orphaning(item, graph.dependents(key))
        elif item.is_waiting:
            plan = plan_waiting(item, graph)
            if not plan:
                for dependent in graph.dependents(key):
                    if not dependent.is_waiting:
                        self.queue.add(dependent.metadata.uid)
        elif item.is_deleting:
            return NOTHING  # it is on its way
        else:
            plan = await self._plan_owned(item)
        await self._context.performer.perform(plan.actions)
        return plan

    async def _plan_owned(self, item: Item) -> Plan:
        graph = self.graph
        if all(look_up(graph, item, owner) is Owner.SOLID for owner in item.metadata.owner_references):
            return NOTHING
        live = await self._get(item.endpoint, item.metadata.name, item.metadata.namespace)
        if live is None or live.metadata.uid != item.metadata.uid or not live.metadata.owner_references:
            return NOTHING
        item = Item(item.endpoint, live.metadata)
        if item.is_deleting:
            return NOTHING
        owners = {owner: await self._ask(item, owner) for owner in item.metadata.owner_references}
        return plan_dependent(item, owners, graph)

    async def _ask(self, item: Item, reference: OwnerReference) -> Owner:
        group, _, version = reference.api_version.rpartition("/")
        endpoint = self._kinds.get((group, version, reference.kind))
        if endpoint is None:
            return Owner.UNKNOWN
        namespace = item.metadata.namespace if endpoint.namespaced else ""
        if endpoint.namespaced and not namespace:
            return Owner.INVALID
        if look_up(self.graph, item, reference) is Owner.SOLID:
            return Owner.SOLID
        memory = (group, reference.kind, namespace, reference.name, reference.uid)
        if memory in self._gone:
            return Owner.GONE
        owner = await self._get(endpoint, reference.name, namespace)
        if owner is None or owner.metadata.uid != reference.uid:
            self._gone[memory] = None
            while len(self._gone) > _REMEMBERED:
                self._gone.pop(next(iter(self._gone)))
            return Owner.GONE
        return Owner.WAITING if Item(endpoint, owner.metadata).is_waiting else Owner.SOLID

    async def _get(self, endpoint: Endpoint, name: str, namespace: str) -> Object | None:
        try:
            return codec.decode(await self._context.client.get_raw(endpoint, name, namespace), Object)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
