"""Host-path provisioner: creates volumes as directories of this machine, and removes them.

It serves claims of StorageClasses with the provisioner `plimsoll.dev/host-path` if the settings have a
directory for volumes; all nodes must then see that directory, as in `plimsoll up`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.api.core import Node
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.client.endpoints import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.persistent_volume.host_path_plan import (
    find_refusal,
    needs_deletion,
    needs_volume,
    plan_creation,
    plan_deletion,
    plan_expansion,
    plan_failed_deletion,
    plan_refusal,
    volume_name,
)
from plimsoll.controllers.persistent_volume.volume_directories import make_directory, remove_directory
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.work_queue import WorkQueue


class HostPathProvisioner:
    """Controller around the plans; keys without a namespace are volumes, others claims."""

    name = "host-path-provisioner"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._directory = context.settings.volumes_dir
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        if self._directory is None:
            return
        informers = context.informers
        self._claims: Informer[PersistentVolumeClaim] = informers.get(PERSISTENT_VOLUME_CLAIMS)
        self._volumes: Informer[PersistentVolume] = informers.get(PERSISTENT_VOLUMES)
        self._classes: Informer[StorageClass] = informers.get(STORAGE_CLASSES)
        self._nodes: Informer[Node] = informers.get(NODES)
        self._claims.add_handler(CallbackHandler(self._on_claim))
        self._volumes.add_handler(CallbackHandler(self._on_volume))
        self._classes.add_handler(CallbackHandler(self._on_class))

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None:
            self.queue.add(object_name(new.metadata))

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is not None and needs_deletion(new):
            self.queue.add(object_name(new.metadata))

    def _on_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        for claim in self._claims.items() if new is not None else ():
            if not claim.bound:
                self.queue.add(object_name(claim.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        plan = await (self._plan_claim(key) if key.namespace else self._plan_volume(key.name))
        await self._context.executor.execute(plan.actions)
        return plan

    async def _plan_claim(self, key: ObjectName) -> ActionPlan:
        claim = self._claims.get(*key)
        if claim is None:
            return EMPTY_PLAN
        storage_class = self._classes.get("", claim.storage_class) if claim.storage_class else None
        if storage_class is None or not needs_volume(claim, storage_class):
            volume = self._volumes.get("", claim.spec.volume_name) if claim.bound else None
            return plan_expansion(claim, volume)
        if self._volumes.get("", volume_name(claim)) is not None:
            return EMPTY_PLAN
        node = self._nodes.get("", claim.selected_node) if claim.selected_node else None
        problem = find_refusal(claim, storage_class, node)
        path = self._path(volume_name(claim))
        if not problem:
            try:
                await asyncio.to_thread(make_directory, path)
            except OSError as error:
                problem = f"{path}: {error.strerror}"
        if problem:
            return plan_refusal(claim, storage_class, problem)
        return plan_creation(claim, storage_class, node, str(path))

    async def _plan_volume(self, name: str) -> ActionPlan:
        volume = self._volumes.get("", name)
        if volume is None or not needs_deletion(volume):
            return EMPTY_PLAN
        path, source = self._path(name), volume.spec.host_path
        if source is None or source.path != str(path):
            return plan_failed_deletion(volume, f"the path of volume {name} is not {path}")
        try:
            await asyncio.to_thread(remove_directory, path)
        except OSError as error:
            return plan_failed_deletion(volume, f"{error.filename or path}: {error.strerror}")
        return plan_deletion(volume)

    def _path(self, name: str) -> Path:
        assert self._directory is not None, "no keys are queued without it"
        return self._directory / name
