"""Ephemeral volumes: creates the PersistentVolumeClaims of pods' `ephemeral` volumes.

A claim is named after its pod and volume and owned by the pod, with which it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.api.pod_volumes import nested_object, nested_text, volume_claims
from plimsoll.api.storage import PersistentVolumeClaim
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PODS
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, CreateAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.errors import ApiError

_COMPONENT = "ephemeral_volume"


def plan_ephemeral_claims(pod: Pod, claims: Mapping[str, PersistentVolumeClaim]) -> ActionPlan:
    """Plan the claims that a pod's volumes lack; `claims` are the existing ones by name."""
    if pod.metadata.deletion_timestamp is not None:
        return EMPTY_PLAN
    actions: list[Action] = []
    for volume in pod.spec.volumes:
        source = nested_object(volume, "ephemeral")
        if source is None:
            continue
        name = f"{pod.metadata.name}-{nested_text(volume, 'name')}"
        claim = claims.get(name)
        if claim is None:
            tree = _claim_tree(pod, name, nested_object(source, "volumeClaimTemplate") or {})
            actions.append(CreateAction(PERSISTENT_VOLUME_CLAIMS, tree, pod.metadata.namespace))
        elif not is_owned_by(claim, pod):
            owner = f"PVC {claim.metadata.full_name} was not created for pod {pod.metadata.full_name}"
            problem = f"{owner} (pod is not owner)"
            return ActionPlan((*actions, plan_failure(pod, volume, problem)), error=problem)
    return ActionPlan(tuple(actions))


def plan_failure(pod: Pod, volume: Mapping[str, Any], problem: str) -> EventRecord:
    """Build the event for a volume that has no claim."""
    text = f"ephemeral volume {nested_text(volume, 'name')}: {problem}"
    reference = ObjectReference.to(pod.metadata, "Pod")
    return EventRecord(reference, "FailedBinding", text, _COMPONENT, WARNING)


def _claim_tree(pod: Pod, name: str, template: Mapping[str, Any]) -> dict[str, Any]:
    given = nested_object(template, "metadata") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "ownerReferences": [owner], **metadata},
        "spec": template.get("spec") or {},
    }


class EphemeralVolumeController:
    """Controller around `plan_ephemeral_claims`."""

    name = "ephemeral-volume-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._pods: Informer[Pod] = context.informers.get(PODS)
        self._claims: Informer[PersistentVolumeClaim] = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._pods.add_handler(CallbackHandler(self._on_pod))
        self._claims.add_handler(CallbackHandler(self._on_claim))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is None and new is not None and any(used.generated for used in volume_claims(new)):
            self.queue.add(object_name(new.metadata))

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        for owner in old.metadata.owner_references if new is None and old is not None else ():
            if owner.controller and owner.kind == "Pod":
                assert old is not None
                self.queue.add(ObjectName(old.metadata.namespace, owner.name))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        pod = self._pods.get(*key)
        if pod is None:
            return EMPTY_PLAN
        names = [used.name for used in volume_claims(pod) if used.generated]
        known = {name: self._claims.get(key.namespace, name) for name in names}
        plan = plan_ephemeral_claims(pod, {name: claim for name, claim in known.items() if claim is not None})
        for action in plan.actions:
            try:
                await self._context.executor.execute((action,))
            except ApiError as error:
                if isinstance(action, CreateAction):
                    name = action.tree["metadata"]["name"]
                    volume = {"name": name.removeprefix(f"{key.name}-")}
                    problem = f"create PVC {name}: {error.message}"
                    await self._context.executor.execute((plan_failure(pod, volume, problem),))
                raise
        return plan
