"""Provisioner of volumes for tests, and optionally the volume controller that binds them.

For every claim of its classes with a selected node it creates a volume on that node; on nodes in `full` it
removes the selected node instead, as the CSI provisioner does when there is no space left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.api.codec import decode_tree
from plimsoll.api.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.errors import ApiError

Tree = dict[str, Any]
PROVISIONER = "test.example.com"
HOST = "kubernetes.io/hostname"


def storage_class(name: str, provisioner: str = PROVISIONER, **more: Any) -> Tree:
    """Return a class whose claims wait for their first consumer."""
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more,
    }  # fmt: skip


def volume_claim(name: str, storage_class: str, size: str = "1Gi", **metadata: Any) -> Tree:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        },
    }  # fmt: skip


def local_volume(name: str, host: str, storage_class: str, size: str = "1Gi") -> Tree:
    """Return a volume on one node."""
    expression = {"key": HOST, "operator": "In", "values": [host]}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class, "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }  # fmt: skip


def using(*claims: str) -> list[Tree]:
    """Return pod volumes that use claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": each}}
        for number, each in enumerate(claims)
    ]


class VolumeProvisioner:
    """Controller on one client; `binds` if it is the volume controller as well."""

    def __init__(self, client: Client, *, binds: bool = True) -> None:
        self.full: set[str] = set()  #: nodes without space
        self.refused: list[tuple[str, str]] = []  #: claims and nodes for which there was no space
        self.resumed = asyncio.Event()
        self.resumed.set()
        self._client = client
        self._binds = binds
        self._changed = asyncio.Event()
        self._informers = [
            Informer(client, endpoint, decode_tree)
            for endpoint in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
        ]
        for informer in self._informers:
            informer.add_handler(CallbackHandler(lambda old, new: self._changed.set()))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self.resumed.wait()
                await self._reconcile()

    async def _reconcile(self) -> None:
        claims, volumes, classes = (informer.items() for informer in self._informers)
        own = {each["metadata"]["name"] for each in classes if each["provisioner"] == PROVISIONER}
        known = {each["metadata"]["name"] for each in volumes}
        for claim in claims:
            meta, spec = claim["metadata"], claim["spec"]
            node = meta.get("annotations", {}).get(SELECTED_NODE)
            if spec.get("volumeName"):
                continue
            try:
                if node and spec.get("storageClassName") in own and f"pvc-{meta['uid']}" not in known:
                    await self._provision(claim, node)
                if self._binds:
                    await self._bind(claim, volumes)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    async def _provision(self, claim: Tree, node: str) -> None:
        meta = claim["metadata"]
        if node in self.full:
            self.refused.append((meta["name"], node))
            patch = {"annotations": {SELECTED_NODE: None}, "resourceVersion": meta["resourceVersion"]}
            await self._client.patch(
                PERSISTENT_VOLUME_CLAIMS, meta["name"], {"metadata": patch}, meta["namespace"]
            )
            return
        size = claim["spec"]["resources"]["requests"]["storage"]
        volume = local_volume(f"pvc-{meta['uid']}", node, claim["spec"]["storageClassName"], size)
        volume["spec"]["claimRef"] = _reference(claim)
        volume["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
        await self._client.create(PERSISTENT_VOLUMES, volume)

    async def _bind(self, claim: Tree, volumes: list[Tree]) -> None:
        """Bind a claim to the volume that refers to it."""
        meta = claim["metadata"]
        for volume in volumes:
            if volume["spec"].get("claimRef", {}).get("uid") != meta["uid"]:
                continue
            name = volume["metadata"]["name"]
            bound = {"status": {"phase": "Bound"}}
            await self._client.patch(PERSISTENT_VOLUMES, name, bound, subresource="status")
            done = {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}}
            patch = {"metadata": done, "spec": {"volumeName": name}}
            at = meta["namespace"]
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta["name"], patch, at)
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta["name"], bound, at, subresource="status")
            return


def _reference(claim: Tree) -> Tree:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
        "name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
    }  # fmt: skip


@asynccontextmanager
async def volume_provisioner(client: Client, *, binds: bool = True) -> AsyncIterator[VolumeProvisioner]:
    """Run a provisioner."""
    provisioner = VolumeProvisioner(client, binds=binds)
    task = asyncio.create_task(provisioner.run())
    try:
        yield provisioner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
