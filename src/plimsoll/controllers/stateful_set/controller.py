"""StatefulSet controller: revisions, volume claims, and execution of plans."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from plimsoll.client.event_recorder import WARNING
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName
from plimsoll.controllers.stateful_set.identity import (
    claim_names,
    make_claims,
    ordinal_of,
    plan_claim_owners,
)
from plimsoll.controllers.stateful_set.plan import StatefulSetPlan, plan_stateful_set
from plimsoll.controllers.workload_views import StatefulSetView
from plimsoll.controllers.workloads.pod_owner import PodOwnerController
from plimsoll.controllers.workloads.pod_states import next_available
from plimsoll.controllers.workloads.revision_owner import RevisionOwner
from plimsoll.controllers.workloads.revisions import REVISION_LABEL, plan_history
from plimsoll.controllers.workloads.templates import patch_status
from plimsoll.errors import ApiError


class StatefulSetController(PodOwnerController[StatefulSetView]):
    """Controller around `plan_stateful_set`."""

    name = "statefulset-controller"
    endpoint = STATEFUL_SETS
    component = "statefulset-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._revisions = RevisionOwner(context, STATEFUL_SETS)

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        owner = self.find_owner(key)
        if owner is None:
            return EMPTY_PLAN
        selector = self.selector_of(owner)
        if isinstance(selector, SelectorProblem) or selector.everything:
            return EMPTY_PLAN  # refused by current API servers
        revisions = await self.claim(
            owner, selector, self._revisions.candidates(owner.metadata), CONTROLLER_REVISIONS
        )
        update = await self._revisions.ensure(
            owner.metadata, owner.spec.template, revisions, owner.status.collision_count
        )
        if update is None:
            collisions = (owner.status.collision_count or 0) + 1
            status = replace(owner.status, collision_count=collisions)
            patch = patch_status(STATEFUL_SETS, owner.metadata, owner.status, status)
            await self._context.executor.execute((patch,) if patch is not None else ())
            return EMPTY_PLAN
        known = [*revisions, update]
        current = next(
            (each for each in known if each.metadata.name == owner.status.current_revision), update
        )
        pods = await self.claim_pods(owner, selector)
        now = self._context.clock.now()
        plan = plan_stateful_set(owner, pods, current, update, now)
        error = await self._execute(owner, plan, pods)
        patch = patch_status(STATEFUL_SETS, owner.metadata, owner.status, plan.status)
        used = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in pods}
        used |= {plan.status.current_revision, plan.status.update_revision, current.metadata.name}
        history = plan_history(revisions, owner.spec.revision_history_limit, used)
        await self._context.executor.execute((*((patch,) if patch is not None else ()), *history))
        if error is not None:
            return ActionPlan(error=error.message)
        return ActionPlan(requeue_after=next_available(pods, owner.spec.min_ready_seconds, now))

    async def _execute(
        self, owner: StatefulSetView, plan: StatefulSetPlan, pods: list[Pod]
    ) -> ApiError | None:
        namespace = owner.metadata.namespace
        for pod in pods:
            ordinal = ordinal_of(owner, pod)
            for name in claim_names(owner, ordinal).values() if ordinal is not None else ():
                claim = self._claims.get(namespace, name)
                if claim is not None:
                    condemned = pod.metadata.name in plan.condemned
                    patch = plan_claim_owners(owner, pod, claim.metadata, condemned=condemned)
                    await self._context.executor.execute((patch,) if patch is not None else ())
        deleted = await self._pod_control.delete(self.reference(owner), plan.deletes)
        for ordinal, action in sorted(plan.creates.items()):
            for claim_action in make_claims(owner, ordinal):
                name = claim_action.tree["metadata"]["name"]
                if self._claims.get(namespace, name) is None:
                    try:
                        await self._context.executor.execute((claim_action,))
                    except ApiError as error:
                        text = (
                            f"create Claim {name} for Pod {action.tree['metadata']['name']} failed: {error}"
                        )
                        await self.report(owner, "FailedCreate", text, WARNING)
                        raise
            created = await self._pod_control.create(self.reference(owner), (action,))
            if created.error is not None:
                return created.error
        return deleted.error
