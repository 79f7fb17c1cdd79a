"""Deployment controller: watches, ownership of ReplicaSets, execution of plans."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.client.endpoints import DEPLOYMENTS, PODS, REPLICA_SETS
from plimsoll.client.event_recorder import WARNING
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.deployment.plan import COMPONENT, plan_create_failure, plan_deployment
from plimsoll.controllers.pod_utils import ObjectName
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.workload_views import DeploymentView, ReplicaSetView
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.controllers.workloads.pod_owner import OwnerController
from plimsoll.errors import ApiError


class DeploymentController(OwnerController[DeploymentView, ReplicaSetView]):
    """Controller around `plan_deployment`."""

    name = "deployment-controller"
    endpoint = DEPLOYMENTS
    dependents = REPLICA_SETS
    component = COMPONENT

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods: ObjectIndex[Pod, str] = ObjectIndex(_owners_of)
        informer = context.informers.get(PODS)
        informer.add_handler(self._pods)
        informer.add_handler(CallbackHandler(self._on_pod))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Continue a Deployment that waits for its old pods to end."""
        if old is None:
            return
        owner = controller_of(old.metadata)
        if owner is None or owner.kind != REPLICA_SETS.kind:
            return
        if new is None or old.status.phase != new.status.phase:
            replica_set = self._dependents.get(old.metadata.namespace, owner.name)
            if replica_set is not None and (key := self._owner_key(replica_set.metadata)) is not None:
                self.queue.add(key)

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        deployment = self.find_owner(key)
        if deployment is None:
            return EMPTY_PLAN
        selector = self.selector_of(deployment)
        if isinstance(selector, SelectorProblem) or selector.everything:
            text = "This deployment is selecting all pods. A non-empty selector is required."
            await self.report(deployment, "SelectingAll", text, WARNING)
            return EMPTY_PLAN
        sets = await self.claim(deployment, selector, self.candidates(deployment))
        pods = [pod for each in sets for pod in self._pods.find(each.metadata.uid)]
        taken = {
            each.metadata.name: each
            for each in self._dependents.items()
            if each.metadata.namespace == key.namespace
        }
        now = self._context.clock.now()
        plan = plan_deployment(deployment, sets, pods, taken, now)
        for action in plan.actions:
            if isinstance(action, CreateAction):
                await self._create(deployment, action, now)
        await self._context.executor.execute(
            action for action in plan.actions if not isinstance(action, CreateAction)
        )
        return plan

    async def _create(self, deployment: DeploymentView, action: CreateAction, now: float) -> None:
        """Create a ReplicaSet; the next pass uses one that exists already, or another name."""
        try:
            await self._context.client.create(action.endpoint, action.tree, action.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                await self._dependents.refresh()
            elif 400 <= error.code < 500:
                name = action.tree["metadata"]["name"]
                text = f'Failed to create new replica set "{name}": {error.message}'
                failure = plan_create_failure(deployment, text, now)
                if failure is not None:
                    await self._context.executor.execute((failure,))
                await self.report(deployment, "ReplicaSetCreateError", text, WARNING)
            raise


def _owners_of(pod: Pod) -> tuple[str, ...]:
    owner = controller_of(pod.metadata)
    return () if owner is None else (owner.uid,)
