"""Plans carried out.

Owns the step from actions to calls of the API. Promises: actions are performed in order; what is already as
an action wants it is no error; when the object of a patch is gone, the rest of the plan is left, because it
was about an object that no longer is; any other refusal is raised, and the key is looked at again later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from plimsoll.client.client import Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import Recorder, Report
from plimsoll.controllers.actions import Action, Create, Delete, Patch, Update
from plimsoll.errors import ApiError


class Performed(NamedTuple):
    """What became of a plan: the objects as the server answered, and whether nothing was left out."""

    objects: list[dict[str, Any]]
    complete: bool


class Performer:
    """Carries out actions with one client."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self.client = client
        self._recorder = recorder

    async def perform(self, actions: Iterable[Action]) -> Performed:
        objects: list[dict[str, Any]] = []
        revisions: dict[tuple[Endpoint, str, str], str] = {}
        for action in actions:
            if isinstance(action, Report):
                await self._recorder.record(action)
                continue
            try:
                tree = await self._call(action, revisions)
            except ApiError as error:
                if _is_harmless(action, error):
                    continue
                if error.code == 404:
                    return Performed(objects, False)
                raise
            objects.append(tree)
            if isinstance(action, Patch):
                revision = tree.get("metadata", {}).get("resourceVersion", "")
                revisions[action.endpoint, action.namespace, action.name] = revision
        return Performed(objects, True)

    async def _call(
        self, action: Create | Patch | Update | Delete, revisions: dict[tuple[Endpoint, str, str], str]
    ) -> dict[str, Any]:
        client = self.client
        match action:
            case Create():
                return await client.create(action.endpoint, action.tree, action.namespace)
            case Update():
                metadata = dict(action.tree["metadata"])
                key = (action.endpoint, metadata.get("namespace", ""), metadata["name"])
                metadata["resourceVersion"] = revisions.get(key, metadata.get("resourceVersion", ""))
                tree = {**action.tree, "metadata": metadata}
                return await client.update(action.endpoint, tree, subresource=action.subresource)
            case Delete():
                return await client.delete(
                    action.endpoint,
                    action.name,
                    action.namespace,
                    uid=action.uid or None,
                    revision=action.revision or None,
                    grace=action.grace,
                    propagation=action.propagation,
                )
            case Patch():
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
                    field_manager=action.manager,
                    force=action.type == "apply",
                )


def _is_harmless(action: Action, error: ApiError) -> bool:
    """Whether a refusal means that what was wanted is already so."""
    if isinstance(action, Delete):
        return error.code == 404 or (error.code == 409 and not action.revision and bool(action.uid))
    return isinstance(action, Create) and error.reason == "AlreadyExists"
