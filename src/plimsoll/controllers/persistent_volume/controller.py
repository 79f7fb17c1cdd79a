"""PersistentVolume binder: binds claims to volumes, and reclaims volumes whose claims are gone. START HERE.

The plans decide from the caches. Before a claim that is not bound is bound, and before a volume or a claim is
given up, the API is asked, since a cache may be behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, find_default_class
from plimsoll.client.endpoints import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from plimsoll.client.event_recorder import EventRecord
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.persistent_volume.claim_plan import ClaimContext, plan_claim
from plimsoll.controllers.persistent_volume.volume_plan import plan_volume
from plimsoll.controllers.pod_utils import ObjectName, is_finished, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue


class StorageKey(NamedTuple):
    """Key of a claim, or of a volume (without a namespace)."""

    namespace: str
    name: str


class PersistentVolumeController:
    """Controller around `plan_claim` and `plan_volume`."""

    name = "persistentvolume-binder-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[StorageKey] = WorkQueue(context.clock)
        informers = context.informers
        self._claims: Informer[PersistentVolumeClaim] = informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._volumes: Informer[PersistentVolume] = informers.get(PERSISTENT_VOLUMES)
        self._classes: Informer[StorageClass] = informers.get(STORAGE_CLASSES)
        pods: Informer[Pod] = informers.get(PODS)
        #: Claims that are not bound, by class; volumes by class, and by the claim that they refer to.
        self._unbound: ObjectIndex[PersistentVolumeClaim, str] = ObjectIndex(_class_of_unbound)
        self._claims_by_volume: ObjectIndex[PersistentVolumeClaim, str] = ObjectIndex(
            lambda claim: (claim.spec.volume_name,) if claim.spec.volume_name else ()
        )
        self._by_class: ObjectIndex[PersistentVolume, str] = ObjectIndex(
            lambda volume: (volume.storage_class,)
        )
        self._by_claim: ObjectIndex[PersistentVolume, ObjectName] = ObjectIndex(_referred_claim)
        self._pods: ObjectIndex[Pod, ObjectName] = ObjectIndex(_claims_of_waiting)
        #: Last event of each claim, by UID, so that it is not repeated at every change around it.
        self._reported: dict[str, EventRecord] = {}
        self._claims.add_handler(self._unbound)
        self._claims.add_handler(self._claims_by_volume)
        self._claims.add_handler(CallbackHandler(self._on_claim))
        self._volumes.add_handler(self._by_class)
        self._volumes.add_handler(self._by_claim)
        self._volumes.add_handler(CallbackHandler(self._on_volume))
        self._classes.add_handler(CallbackHandler(self._on_class))
        pods.add_handler(self._pods)
        pods.add_handler(CallbackHandler(self._on_pod))

    # -- changes

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        claim = new or old
        assert claim is not None
        if new is not None:
            self.queue.add(StorageKey(*new.metadata.key))
        else:
            self._reported.pop(claim.metadata.uid, None)
        if claim.spec.volume_name:
            self.queue.add(StorageKey("", claim.spec.volume_name))
        for volume in self._by_claim.find(object_name(claim.metadata)):
            self.queue.add(StorageKey("", volume.metadata.name))

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        volume = new or old
        assert volume is not None
        if new is not None:
            self.queue.add(StorageKey("", new.metadata.name))
        for version in (old, new):
            for name in _referred_claim(version) if version is not None else ():
                self.queue.add(StorageKey(*name))
        self._add_claims(self._claims_by_volume.find(volume.metadata.name))
        if new is not None and new.spec.claim_ref is None:
            self._add_claims(self._unbound.find(new.storage_class))

    def _on_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        if new is not None:
            self._add_claims(self._unbound.find(new.metadata.name))
            self._add_claims(self._unbound.find(""))  # perhaps it is the default class

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and (old is None or old.spec.node_name != new.spec.node_name):
            for name in _claims_of_waiting(new):
                self.queue.add(StorageKey(*name))

    def _add_claims(self, claims: Iterable[PersistentVolumeClaim]) -> None:
        for claim in claims:
            self.queue.add(StorageKey(*claim.metadata.key))

    # -- work

    async def reconcile(self, key: StorageKey) -> ActionPlan:
        plan = await (self._plan_claim(key) if key.namespace else self._plan_volume(key.name))
        actions = [each for each in plan.actions if not isinstance(each, EventRecord) or self._is_news(each)]
        await self._context.executor.execute(actions)
        return plan

    async def _plan_claim(self, key: StorageKey) -> ActionPlan:
        claim = self._claims.get(*key)
        if claim is None:
            return EMPTY_PLAN
        named = self._volumes.get("", claim.spec.volume_name) if claim.spec.volume_name else None
        if named is None and claim.spec.volume_name:
            named = await self._find_volume(claim.spec.volume_name)
        elif not claim.spec.volume_name:
            fresh = await self._find_claim(object_name(claim.metadata))
            if fresh is None or fresh.metadata.resource_version != claim.metadata.resource_version:
                return EMPTY_PLAN  # the change is on its way to the cache
        storage_class = self._classes.get("", claim.storage_class) if claim.storage_class else None
        name = object_name(claim.metadata)
        volumes = [*self._by_class.find(claim.storage_class), *self._by_claim.find(name)]
        context = ClaimContext(
            named=named,
            candidates=list({volume.metadata.name: volume for volume in volumes}.values()),
            storage_class=storage_class,
            default_class=None if claim.has_class else find_default_class(self._classes.items()),
            waiting_pods=[pod.metadata.name for pod in self._pods.find(name)],
        )
        return plan_claim(claim, context)

    async def _plan_volume(self, name: str) -> ActionPlan:
        volume = self._volumes.get("", name)
        if volume is None:
            return EMPTY_PLAN
        claim = None
        for referred in _referred_claim(volume):
            claim = self._claims.get(*referred)
            if claim is None or not volume.is_bound_to(claim):
                claim = await self._find_claim(referred)
        return plan_volume(volume, claim)

    async def _find_claim(self, name: ObjectName) -> PersistentVolumeClaim | None:
        raw = await self._context.find_raw(PERSISTENT_VOLUME_CLAIMS, name.name, name.namespace)
        return None if raw is None else codec.decode(raw, PersistentVolumeClaim)

    async def _find_volume(self, name: str) -> PersistentVolume | None:
        raw = await self._context.find_raw(PERSISTENT_VOLUMES, name)
        return None if raw is None else codec.decode(raw, PersistentVolume)

    def _is_news(self, event: EventRecord) -> bool:
        """Return whether an event differs from the last one of its object."""
        uid = event.regarding.uid
        if self._reported.get(uid) == event:
            return False
        self._reported[uid] = event
        return True


def _class_of_unbound(claim: PersistentVolumeClaim) -> Iterable[str]:
    return () if claim.bound else (claim.storage_class,)


def _referred_claim(volume: PersistentVolume) -> Iterable[ObjectName]:
    reference = volume.spec.claim_ref
    return () if reference is None else (ObjectName(reference.namespace, reference.name),)


def _claims_of_waiting(pod: Pod) -> Iterable[ObjectName]:
    """Return the claims of a pod that is not scheduled."""
    if pod.spec.node_name or not pod.spec.volumes or is_finished(pod):
        return ()
    return [ObjectName(pod.metadata.namespace, used.name) for used in volume_claims(pod)]
