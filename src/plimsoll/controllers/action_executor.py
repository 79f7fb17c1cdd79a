"""Executor of action plans: turns actions into API calls.

Actions run in order. An action whose outcome already holds is no error. If the object of a patch no longer
exists, the rest of the plan is skipped. Any other API error is raised, and the key is retried later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from plimsoll.client.client import Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import EventRecord, EventRecorder
from plimsoll.controllers.actions import Action, CreateAction, DeleteAction, PatchAction, UpdateAction
from plimsoll.errors import ApiError


class ExecutionResult(NamedTuple):
    """Result of executing a plan: the objects the server returned, and whether all actions ran."""

    objects: list[dict[str, Any]]
    complete: bool


class ActionExecutor:
    """Executor of actions with one client."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self.client = client
        self._recorder = recorder

    async def execute(self, actions: Iterable[Action]) -> ExecutionResult:
        objects: list[dict[str, Any]] = []
        revisions: dict[tuple[Endpoint, str, str], str] = {}
        for action in actions:
            if isinstance(action, EventRecord):
                await self._recorder.record(action)
                continue
            try:
                tree = await self._call(action, revisions)
            except ApiError as error:
                if _is_harmless(action, error):
                    continue
                if error.code == 404:
                    return ExecutionResult(objects, False)
                raise
            objects.append(tree)
            if isinstance(action, PatchAction):
                revision = tree.get("metadata", {}).get("resourceVersion", "")
                revisions[action.endpoint, action.namespace, action.name] = revision
        return ExecutionResult(objects, True)

    async def _call(
        self,
        action: CreateAction | PatchAction | UpdateAction | DeleteAction,
        revisions: dict[tuple[Endpoint, str, str], str],
    ) -> dict[str, Any]:
        client = self.client
        match action:
            case CreateAction():
                return await client.create(action.endpoint, action.tree, action.namespace)
            case UpdateAction():
                metadata = dict(action.tree["metadata"])
                key = (action.endpoint, metadata.get("namespace", ""), metadata["name"])
                metadata["resourceVersion"] = revisions.get(key, metadata.get("resourceVersion", ""))
                tree = {**action.tree, "metadata": metadata}
                return await client.update(action.endpoint, tree, subresource=action.subresource)
            case DeleteAction():
                return await client.delete(
                    action.endpoint,
                    action.name,
                    action.namespace,
                    uid=action.uid or None,
                    revision=action.revision or None,
                    grace=action.grace,
                    propagation=action.propagation,
                )
            case PatchAction():
                patch: Any = action.patch
                if action.chained:
                    known = revisions.get((action.endpoint, action.namespace, action.name), "")
                    patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": known}}
                return await client.patch(
                    action.endpoint,
                    action.name,
                    patch,
                    action.namespace,
                    subresource=action.subresource,
                    type=action.type,
                    field_manager=action.field_manager,
                    force=action.type == "apply",
                )


def _is_harmless(action: Action, error: ApiError) -> bool:
    """Return whether an API error means that the outcome of an action already holds."""
    if isinstance(action, DeleteAction):
        return error.code == 404 or (error.code == 409 and not action.revision and bool(action.uid))
    return isinstance(action, CreateAction) and error.reason == "AlreadyExists"
