"""Revisions of the StatefulSets or DaemonSets of one controller: cache, creation and numbering."""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, Endpoint
from plimsoll.client.informer import Informer
from plimsoll.controllers.actions import CreateAction, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.workload_views import ControllerRevisionView
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.controllers.workloads.revisions import plan_revision
from plimsoll.errors import ApiError


class RevisionOwner:
    """Cache of revisions by owner, and their writer."""

    def __init__(self, context: ControllerContext, endpoint: Endpoint) -> None:
        self._context = context
        self._endpoint = endpoint
        self._revisions: Informer[ControllerRevisionView] = context.informers.get(CONTROLLER_REVISIONS)
        self._index: ObjectIndex[ControllerRevisionView, tuple[str, str]] = ObjectIndex(_index_values)
        self._revisions.add_handler(self._index)

    def candidates(self, owner: ObjectMeta) -> list[ControllerRevisionView]:
        """Return the revisions that an owner owns or could adopt."""
        return [*self._index.find((owner.namespace, owner.uid)), *self._index.find((owner.namespace, ""))]

    async def ensure(
        self,
        owner: ObjectMeta,
        template: Any,
        revisions: list[ControllerRevisionView],
        collisions: int | None,
    ) -> ControllerRevisionView | None:
        """Return the revision of the current template, created if necessary; None if its name is taken."""
        plan = plan_revision(owner, self._endpoint, template, revisions, collisions)
        client = self._context.client
        if isinstance(plan.action, PatchAction):
            action = plan.action
            tree = await client.patch(action.endpoint, action.name, action.patch, action.namespace)
            return codec.convert_fast(tree, ControllerRevisionView)
        if isinstance(plan.action, CreateAction):
            try:
                tree = await client.create(CONTROLLER_REVISIONS, plan.action.tree, owner.namespace)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                return await self._find(owner, plan.newest)
            return codec.convert_fast(tree, ControllerRevisionView)
        return plan.newest

    async def _find(self, owner: ObjectMeta, wanted: ControllerRevisionView) -> ControllerRevisionView | None:
        """Return the existing revision of this name if it is the wanted one of the owner."""
        raw = await self._context.find_raw(CONTROLLER_REVISIONS, wanted.metadata.name, owner.namespace)
        found = None if raw is None else codec.decode(raw, ControllerRevisionView)
        reference = None if found is None else controller_of(found.metadata)
        is_own = found is not None and reference is not None and reference.uid == owner.uid
        return found if is_own and found is not None and found.data == wanted.data else None


def _index_values(revision: ControllerRevisionView) -> tuple[tuple[str, str]]:
    reference = controller_of(revision.metadata)
    return ((revision.metadata.namespace, "" if reference is None else reference.uid),)
