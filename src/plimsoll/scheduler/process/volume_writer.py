"""API writes of volumes and volume claims, as small conditional patches (see `api_writer.py`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from plimsoll.api import codec
from plimsoll.api.meta import ObjectReference
from plimsoll.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.client.transport import Reply
from plimsoll.errors import ApiError

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
#: Makes a call: method, path, body and content type.
Call: TypeAlias = Callable[[str, str, bytes | None, str], Coroutine[Any, Any, Reply]]

_MERGE = "application/merge-patch+json"


class VolumeApiWriter:
    """Writer of volumes and claims; implements `binding.volumes.VolumeWriter`."""

    def __init__(self, call: Call, fence_key: str, new_id: Callable[[], str]) -> None:
        """Create a writer; a new value of the annotation `fence_key` fences an object."""
        self._call = call
        self._fence_key = fence_key
        self._new_id = new_id

    async def bind_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        """Make a volume refer to a claim, and mark the reference as not made by a user unless one made it."""
        meta: dict[str, Any] = _version(volume)
        if not volume.is_bound_to(claim):
            meta["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        body = {
            "metadata": meta,
            "spec": {"claimRef": ObjectReference.to_version(claim.metadata, "PersistentVolumeClaim")},
        }
        return await self._patch(volume, body)

    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
        return await self._patch(
            claim, {"metadata": {**_version(claim), "annotations": {SELECTED_NODE: node}}}
        )

    async def fence_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        return await self._fence(volume)

    async def fence_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        return await self._fence(claim)

    async def read_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        return await self._read(volume)

    async def read_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        return await self._read(claim)

    async def _patch(self, target: T, body: Any) -> T:
        reply = await self._call("PATCH", _path(target), codec.encode(body), _MERGE)
        return codec.decode(reply.body, type(target))

    async def _fence(self, target: T) -> T | None:
        meta = {"uid": target.metadata.uid, "annotations": {self._fence_key: self._new_id()}}
        try:
            return await self._patch(target, {"metadata": meta})
        except ApiError as error:
            if error.code == 404 or (error.code == 409 and await self._read(target) is None):
                return None
            raise

    async def _read(self, target: T) -> T | None:
        try:
            reply = await self._call("GET", _path(target), None, "")
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        fresh = codec.decode(reply.body, type(target))
        return fresh if fresh.metadata.uid == target.metadata.uid else None


def _version(target: PersistentVolume | PersistentVolumeClaim) -> dict[str, Any]:
    """Return the preconditions UID and resourceVersion."""
    return {"uid": target.metadata.uid, "resourceVersion": target.metadata.resource_version}


def _path(target: PersistentVolume | PersistentVolumeClaim) -> str:
    meta = target.metadata
    if isinstance(target, PersistentVolume):
        return f"/api/v1/persistentvolumes/{meta.name}"
    return f"/api/v1/namespaces/{meta.namespace}/persistentvolumeclaims/{meta.name}"
