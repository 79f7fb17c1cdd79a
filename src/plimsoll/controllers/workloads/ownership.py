"""Ownership of objects by a controller: adoption and release by selector, as in kube-controller-manager.

An object belongs to the one owner reference with `controller: true`. A controller adopts objects without one
that its selector matches, and releases its own that the selector no longer matches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from plimsoll.api.label_selection import CompiledLabelSelector
from plimsoll.api.meta import ObjectMeta, OwnerReference
from plimsoll.client.endpoints import Endpoint
from plimsoll.controllers.actions import PatchAction


class HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the owner reference of the controller, or None."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def is_controlled_by(metadata: ObjectMeta, owner: ObjectMeta) -> bool:
    reference = controller_of(metadata)
    return reference is not None and reference.uid == owner.uid


def controller_reference(owner: ObjectMeta, endpoint: Endpoint) -> dict[str, Any]:
    """Build the owner reference of a controlled object."""
    return {
        "apiVersion": endpoint.api_version,
        "kind": endpoint.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True)
class OwnedObjects(Generic[T]):
    """Objects of a controller, those to be adopted included, and the patches that make it so."""

    items: list[T]
    adoptions: tuple[PatchAction, ...] = ()
    releases: tuple[PatchAction, ...] = ()


def claim_objects(
    owner: ObjectMeta,
    owner_endpoint: Endpoint,
    endpoint: Endpoint,
    selector: CompiledLabelSelector,
    candidates: Iterable[T],
    finalizer: str = "",
) -> OwnedObjects[T]:
    """Return the candidates that belong to an owner; adopted ones get the finalizer, released lose it."""
    items: list[T] = []
    adoptions: list[PatchAction] = []
    releases: list[PatchAction] = []
    deleting = owner.deletion_timestamp is not None
    for candidate in candidates:
        metadata = candidate.metadata
        reference = controller_of(metadata)
        matches = selector.matches(metadata.labels)
        if reference is not None:
            if reference.uid != owner.uid:
                continue
            if matches:
                items.append(candidate)
            elif not deleting:
                releases.append(_release(owner, endpoint, metadata, finalizer))
        elif matches and not deleting and metadata.deletion_timestamp is None:
            adoptions.append(_adopt(owner, owner_endpoint, endpoint, metadata, finalizer))
            items.append(candidate)
    return OwnedObjects(items, tuple(adoptions), tuple(releases))


def _adopt(
    owner: ObjectMeta, owner_endpoint: Endpoint, endpoint: Endpoint, metadata: ObjectMeta, finalizer: str
) -> PatchAction:
    change: dict[str, Any] = {
        "uid": metadata.uid,
        "ownerReferences": [controller_reference(owner, owner_endpoint)],
    }
    if finalizer:
        change["finalizers"] = [finalizer]
    patch = {"metadata": change}
    return PatchAction(endpoint, metadata.name, patch, metadata.namespace, type="strategic")


def _release(owner: ObjectMeta, endpoint: Endpoint, metadata: ObjectMeta, finalizer: str) -> PatchAction:
    change: dict[str, Any] = {
        "uid": metadata.uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.uid}],
    }
    if finalizer:
        change["$deleteFromPrimitiveList/finalizers"] = [finalizer]
    patch = {"metadata": change}
    return PatchAction(endpoint, metadata.name, patch, metadata.namespace, type="strategic")
