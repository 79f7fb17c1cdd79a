"""Garbage collector: watches every deletable kind and deletes objects whose owners are gone.

An object is deleted only after the API has confirmed that its owners do not exist, and only at the revision
that was checked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import Object, OwnerReference
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext, deletable_endpoints
from plimsoll.controllers.garbage_collector.dependency_graph import DependencyGraph, GraphNode
from plimsoll.controllers.garbage_collector.plan import (
    OwnerState,
    find_solid_owner,
    plan_deleting_dependents,
    plan_dependent,
    plan_orphaning,
)
from plimsoll.controllers.work_queue import WorkQueue

#: Size of the cache of absent owners, which saves an API call per dependent.
_MAX_REMEMBERED = 500
#: Delay before an owner that exists, but was not seen, is looked up again: its deletion may never be seen.
_UNSEEN_SECONDS = 10.0


class GarbageCollector:
    """Controller around the plans of `plan.py`; keys are UIDs."""

    name = "garbage-collector-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self.graph = DependencyGraph()
        self._kinds = {
            (item.endpoint.group, version, item.endpoint.kind): item.endpoint
            for item in context.served
            for version in item.versions or (item.endpoint.version,)
        }
        self._absent_owners: dict[tuple[str, str, str, str, str], None] = {}
        for endpoint in deletable_endpoints(context.served):
            context.informers.get(endpoint).add_handler(CallbackHandler(partial(self._on_object, endpoint)))

    def _on_object(self, endpoint: Endpoint, old: Any, new: Any) -> None:
        graph, queue = self.graph, self.queue
        if new is not None:
            item = GraphNode(endpoint, new.metadata)
            graph.add(item)
            if item.is_deleting_dependents:
                for dependent in graph.dependents(new.metadata.uid):
                    queue.add(dependent.metadata.uid)
            if new.metadata.owner_references or item.is_orphaning or item.is_deleting_dependents:
                queue.add(new.metadata.uid)
        else:
            graph.remove(old.metadata.uid)
            for dependent in graph.dependents(old.metadata.uid):
                queue.add(dependent.metadata.uid)
        for reference in old.metadata.owner_references if old is not None else ():
            owner = graph.get(reference.uid)
            if owner is not None and owner.is_deleting_dependents:
                queue.add(reference.uid)

    async def reconcile(self, key: str) -> ActionPlan:
        graph = self.graph
        item = graph.get(key)
        if item is None:
            return EMPTY_PLAN
        if item.is_orphaning:
            plan = plan_orphaning(item, graph.dependents(key))
        elif item.is_deleting_dependents:
            plan = plan_deleting_dependents(item, graph)
            if not plan:
                for dependent in graph.dependents(key):
                    if not dependent.is_deleting_dependents:
                        self.queue.add(dependent.metadata.uid)
        elif item.is_deleting:
            return EMPTY_PLAN  # already being deleted
        else:
            plan = await self._plan_owned(item)
        await self._context.executor.execute(plan.actions)
        return plan

    async def _plan_owned(self, item: GraphNode) -> ActionPlan:
        graph = self.graph
        if all(
            find_solid_owner(graph, item, owner) is OwnerState.SOLID
            for owner in item.metadata.owner_references
        ):
            return EMPTY_PLAN
        live = await self._get_live(item.endpoint, item.metadata.name, item.metadata.namespace)
        if live is None or live.metadata.uid != item.metadata.uid or not live.metadata.owner_references:
            return EMPTY_PLAN
        item = GraphNode(item.endpoint, live.metadata)
        if item.is_deleting or is_kept(item.metadata):
            return EMPTY_PLAN
        owners = {owner: await self._resolve_owner(item, owner) for owner in item.metadata.owner_references}
        plan = plan_dependent(item, owners, graph)
        unseen = [
            owner
            for owner, state in owners.items()
            if state is OwnerState.SOLID and find_solid_owner(graph, item, owner) is not OwnerState.SOLID
        ]
        return replace(plan, requeue_after=_UNSEEN_SECONDS) if unseen else plan

    async def _resolve_owner(self, item: GraphNode, reference: OwnerReference) -> OwnerState:
        group, _, version = reference.api_version.rpartition("/")
        endpoint = self._kinds.get((group, version, reference.kind))
        if endpoint is None:
            return OwnerState.UNKNOWN
        namespace = item.metadata.namespace if endpoint.namespaced else ""
        if endpoint.namespaced and not namespace:
            return OwnerState.INVALID
        if find_solid_owner(self.graph, item, reference) is OwnerState.SOLID:
            return OwnerState.SOLID
        owner_key = (group, reference.kind, namespace, reference.name, reference.uid)
        if owner_key in self._absent_owners:
            return OwnerState.DANGLING
        owner = await self._get_live(endpoint, reference.name, namespace)
        if owner is None or owner.metadata.uid != reference.uid:
            self._absent_owners[owner_key] = None
            while len(self._absent_owners) > _MAX_REMEMBERED:
                self._absent_owners.pop(next(iter(self._absent_owners)))
            return OwnerState.DANGLING
        return (
            OwnerState.DELETING_DEPENDENTS
            if GraphNode(endpoint, owner.metadata).is_deleting_dependents
            else OwnerState.SOLID
        )

    async def _get_live(self, endpoint: Endpoint, name: str, namespace: str) -> Object | None:
        raw = await self._context.find_raw(endpoint, name, namespace)
        return None if raw is None else codec.decode(raw, Object)
