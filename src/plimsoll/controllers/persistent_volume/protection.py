"""Protection of volumes and claims that are in use: their finalizers are removed when they no longer are.

Admission adds the finalizers; here they are added to objects that have none. A claim is in use while a pod
that is scheduled has a volume with it, a volume while it is bound. Before a finalizer of a claim is removed,
the pods are listed, since the cache may be behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.storage import (
    BOUND,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Endpoint
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue


def plan_protection(endpoint: Endpoint, metadata: ObjectMeta, finalizer: str, is_used: bool) -> ActionPlan:
    """Plan for one object: add the finalizer, or remove it from a deleted object that is not in use."""
    finalizers = metadata.finalizers
    if metadata.deletion_timestamp is None and finalizer not in finalizers:
        kept: list[str] = [*finalizers, finalizer]
    elif metadata.deletion_timestamp is not None and finalizer in finalizers and not is_used:
        kept = [each for each in finalizers if each != finalizer]
    else:
        return EMPTY_PLAN
    patch = {"metadata": {"finalizers": kept or None, "resourceVersion": metadata.resource_version}}
    return ActionPlan((PatchAction(endpoint, metadata.name, patch, namespace=metadata.namespace),))


def uses_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether a scheduled pod uses a claim; one that was generated, while the pod is not shut down."""
    if not pod.spec.node_name or not pod.spec.volumes:
        return False
    shut_down = (
        pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0
    )
    for used in volume_claims(pod):
        if used.name != claim.metadata.name or pod.metadata.namespace != claim.metadata.namespace:
            continue
        if not used.generated or (not shut_down and is_owned_by(claim, pod)):
            return True
    return False


class ClaimProtectionController:
    """Controller of the finalizer of claims."""

    name = "persistentvolumeclaim-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._claims: Informer[PersistentVolumeClaim] = context.informers.get(PERSISTENT_VOLUME_CLAIMS)
        pods: Informer[Pod] = context.informers.get(PODS)
        self._pods: ObjectIndex[Pod, ObjectName] = ObjectIndex(_used_claims)
        pods.add_handler(self._pods)
        pods.add_handler(CallbackHandler(self._on_pod))
        self._claims.add_handler(CallbackHandler(self._on_claim))

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None and _needs_work(new.metadata, CLAIM_PROTECTION):
            self.queue.add(object_name(new.metadata))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        for name in _used_claims(old) if old is not None else ():
            claim = self._claims.get(*name)
            if claim is not None and _needs_work(claim.metadata, CLAIM_PROTECTION):
                self.queue.add(name)

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        claim = self._claims.get(*key)
        if claim is None:
            return EMPTY_PLAN
        is_used = any(uses_claim(pod, claim) for pod in self._pods.find(key))
        if not is_used and claim.metadata.deletion_timestamp is not None:
            listing = await self._context.client.list(PODS, key.namespace)
            is_used = any(uses_claim(codec.decode(raw, Pod), claim) for raw in listing.items)
        plan = plan_protection(PERSISTENT_VOLUME_CLAIMS, claim.metadata, CLAIM_PROTECTION, is_used)
        await self._context.executor.execute(plan.actions)
        return plan


class VolumeProtectionController:
    """Controller of the finalizer of volumes."""

    name = "persistentvolume-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._volumes: Informer[PersistentVolume] = context.informers.get(PERSISTENT_VOLUMES)
        self._volumes.add_handler(CallbackHandler(self._on_volume))

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is not None and _needs_work(new.metadata, VOLUME_PROTECTION):
            self.queue.add(object_name(new.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        volume = self._volumes.get(*key)
        if volume is None:
            return EMPTY_PLAN
        is_used = volume.status.phase == BOUND
        plan = plan_protection(PERSISTENT_VOLUMES, volume.metadata, VOLUME_PROTECTION, is_used)
        await self._context.executor.execute(plan.actions)
        return plan


def _needs_work(metadata: ObjectMeta, finalizer: str) -> bool:
    """Return whether a finalizer is to be added, or may be to be removed."""
    return (metadata.deletion_timestamp is not None) == (finalizer in metadata.finalizers)


def _used_claims(pod: Pod) -> Iterable[ObjectName]:
    if not pod.spec.volumes:
        return ()
    return [ObjectName(pod.metadata.namespace, used.name) for used in volume_claims(pod)]
