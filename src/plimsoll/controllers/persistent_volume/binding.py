"""Actions that bind a volume and a claim to each other, and set their phases. Pure.

A volume refers to its claim before the claim refers to it, so that no two claims get one volume: the first
write has the volume's resourceVersion as precondition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectMeta, ObjectReference
from plimsoll.api.storage import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND,
    BOUND_BY_CONTROLLER,
    PENDING,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from plimsoll.client.event_recorder import NORMAL, EventRecord
from plimsoll.controllers.actions import Action, PatchAction

COMPONENT = "persistentvolume-controller"
_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"


def claim_event(
    claim: PersistentVolumeClaim, reason: str, message: str, type: str = NORMAL, component: str = COMPONENT
) -> EventRecord:
    return EventRecord(ObjectReference.to(claim.metadata, _CLAIM), reason, message, component, type)


def volume_event(
    volume: PersistentVolume, reason: str, message: str, type: str = NORMAL, component: str = COMPONENT
) -> EventRecord:
    return EventRecord(ObjectReference.to(volume.metadata, _VOLUME), reason, message, component, type)


def claim_reference(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Build the `claimRef` of a volume."""
    tree: dict[str, Any] = codec.to_tree(ObjectReference.to_version(claim.metadata, _CLAIM))
    return tree


def patch_claim(claim: PersistentVolumeClaim, patch: Mapping[str, Any], *, after: bool = False) -> Action:
    return _patch(PERSISTENT_VOLUME_CLAIMS, claim.metadata, patch, "", after)


def patch_claim_status(
    claim: PersistentVolumeClaim, status: Mapping[str, Any], *, after: bool = False
) -> Action:
    return _patch(PERSISTENT_VOLUME_CLAIMS, claim.metadata, {"status": status}, "status", after)


def patch_volume(volume: PersistentVolume, patch: Mapping[str, Any], *, after: bool = False) -> Action:
    return _patch(PERSISTENT_VOLUMES, volume.metadata, patch, "", after)


def _patch(
    endpoint: Any, metadata: ObjectMeta, patch: Mapping[str, Any], subresource: str, after: bool
) -> Action:
    """Build a patch of the version that was read, or that an earlier action of the plan wrote (`after`)."""
    if not after:
        given = patch.get("metadata") or {}
        patch = {**patch, "metadata": {**given, "resourceVersion": metadata.resource_version}}
    return PatchAction(
        endpoint, metadata.name, patch, namespace=metadata.namespace, subresource=subresource, chained=after
    )


# -- phases


def set_volume_phase(
    volume: PersistentVolume, phase: str, *, message: str = "", after: bool = False
) -> tuple[Action, ...]:
    if volume.status.phase == phase:
        return ()
    status = {"phase": phase, "message": message or None}
    return (_patch(PERSISTENT_VOLUMES, volume.metadata, {"status": status}, "status", after),)


def set_claim_unbound(claim: PersistentVolumeClaim, phase: str = PENDING) -> tuple[Action, ...]:
    """Set the phase of a claim that has no volume."""
    old = claim.status
    if (old.phase, old.access_modes, old.capacity) == (phase, (), {}):
        return ()
    cleared = {"accessModes": None, "capacity": None, "currentVolumeAttributesClassName": None}
    return (patch_claim_status(claim, {"phase": phase, **cleared}),)


def _set_claim_bound(
    claim: PersistentVolumeClaim, volume: PersistentVolume, *, after: bool
) -> tuple[Action, ...]:
    old = claim.status
    status: dict[str, Any] = {}
    if old.access_modes != volume.spec.access_modes:
        status["accessModes"] = list(volume.spec.access_modes)
    if old.phase != BOUND:
        status["phase"] = BOUND
        # Of a bound claim it is left alone: its file system may be smaller than the volume.
        if old.capacity.get(STORAGE) != volume.spec.capacity.get(STORAGE):
            status["capacity"] = {name: str(amount) for name, amount in volume.spec.capacity.items()}
        if old.current_volume_attributes_class_name != volume.spec.volume_attributes_class_name:
            status["currentVolumeAttributesClassName"] = volume.spec.volume_attributes_class_name
    return (patch_claim_status(claim, status, after=after),) if status else ()


# -- binding


def bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> tuple[Action, ...]:
    """Bind a volume and a claim to each other; what is done already is left out."""
    refers = _refer_to_claim(volume, claim)
    claim_patch: dict[str, Any] = {}
    annotations = claim.metadata.annotations
    if claim.spec.volume_name != volume.metadata.name:
        claim_patch["spec"] = {"volumeName": volume.metadata.name}
        if BOUND_BY_CONTROLLER not in annotations:
            claim_patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    if BIND_COMPLETED not in annotations:
        added = claim_patch.get("metadata", {}).get("annotations", {})
        claim_patch["metadata"] = {"annotations": {**added, BIND_COMPLETED: "yes"}}
    completes = (patch_claim(claim, claim_patch),) if claim_patch else ()
    return (
        *refers,
        *set_volume_phase(volume, BOUND, after=bool(refers)),
        *completes,
        *_set_claim_bound(claim, volume, after=bool(completes)),
    )


def _refer_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> tuple[Action, ...]:
    reference = volume.spec.claim_ref
    is_own = reference is not None and volume.is_bound_to(claim)
    if is_own and reference is not None and reference.uid == claim.metadata.uid:
        return ()
    patch: dict[str, Any] = {"spec": {"claimRef": claim_reference(claim)}}
    if not is_own and BOUND_BY_CONTROLLER not in volume.metadata.annotations:
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    return (patch_volume(volume, patch),)


def unbind_volume(volume: PersistentVolume) -> tuple[Action, ...]:
    """Make a volume available that refers to a claim which is bound to another one.

    A reference that a user made stays, without the UID.
    """
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        patch: dict[str, Any] = {
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: None}},
            "spec": {"claimRef": None},
        }
    else:
        patch = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    return (patch_volume(volume, patch), *set_volume_phase(volume, AVAILABLE, after=True))
