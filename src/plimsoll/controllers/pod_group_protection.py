"""PodGroup protection: removes the finalizer of deleted PodGroups that no active pod refers to.

As in kube-controller-manager: the finalizer is added when a PodGroup is created; a pod is active until it has
succeeded or failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.api.scheduling import POD_GROUP_FINALIZER, PodGroup
from plimsoll.client.endpoints import POD_GROUPS, PODS
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, is_finished, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue


def plan_pod_group(group: PodGroup, has_active_pods: bool) -> ActionPlan:
    """Plan for a PodGroup: remove its finalizer if it is being deleted and not in use."""
    metadata = group.metadata
    if metadata.deletion_timestamp is None or POD_GROUP_FINALIZER not in metadata.finalizers:
        return EMPTY_PLAN
    if has_active_pods:
        return EMPTY_PLAN
    kept = [finalizer for finalizer in metadata.finalizers if finalizer != POD_GROUP_FINALIZER]
    patch = {"metadata": {"finalizers": kept or None, "resourceVersion": metadata.resource_version}}
    return ActionPlan((PatchAction(POD_GROUPS, metadata.name, patch, namespace=metadata.namespace),))


class PodGroupProtectionController:
    """Controller around `plan_pod_group`."""

    name = "podgroup-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._groups = context.informers.get(POD_GROUPS)
        pods = context.informers.get(PODS)
        self._active_pods: ObjectIndex[Pod, ObjectName] = ObjectIndex(_group_of_active)
        pods.add_handler(self._active_pods)
        pods.add_handler(CallbackHandler(self._on_pod))
        self._groups.add_handler(CallbackHandler(self._on_group))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is not None and (name := pod_group_of(pod)):
                self.queue.add(ObjectName(pod.metadata.namespace, name))

    def _on_group(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if new is not None:
            self.queue.add(object_name(new.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        group: PodGroup | None = self._groups.get(*key)
        if group is None:
            return EMPTY_PLAN
        plan = plan_pod_group(group, key in self._active_pods)
        await self._context.executor.execute(plan.actions)
        return plan


def _group_of_active(pod: Pod) -> Iterable[ObjectName]:
    name = pod_group_of(pod)
    return (ObjectName(pod.metadata.namespace, name),) if name and not is_finished(pod) else ()
