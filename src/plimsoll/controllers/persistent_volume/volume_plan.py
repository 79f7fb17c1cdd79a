"""Plan for a PersistentVolume: its phase, and what becomes of it when its claim is gone. Pure.

DIFF: volumes that no provisioner created are never deleted or recycled: with these reclaim policies they
become Failed; kube-controller-manager does that for some in-tree sources
(test_static_volumes_are_not_deleted_or_recycled).
"""

from __future__ import annotations

from plimsoll.api.storage import (
    AVAILABLE,
    BOUND,
    PROVISIONED_BY,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.client.event_recorder import WARNING
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.persistent_volume.binding import (
    claim_event,
    set_volume_phase,
    unbind_volume,
    volume_event,
)

RELEASED, FAILED = "Released", "Failed"
RETAIN, DELETE, RECYCLE = "Retain", "Delete", "Recycle"


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> ActionPlan:
    """Plan the next steps for a volume; `claim` is the one that it refers to, if that exists."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return ActionPlan(set_volume_phase(volume, AVAILABLE))
    if claim is None or claim.metadata.uid != reference.uid:
        return _plan_released(volume)
    if not claim.spec.volume_name:
        return _check_mode(volume, claim)  # the plan for the claim completes the binding
    if claim.spec.volume_name == volume.metadata.name:
        return ActionPlan(set_volume_phase(volume, BOUND))
    if PROVISIONED_BY in volume.metadata.annotations and _policy(volume) == DELETE:
        return _plan_released(volume)  # provisioned for the claim, which is bound to another volume
    return ActionPlan(unbind_volume(volume))


def _check_mode(volume: PersistentVolume, claim: PersistentVolumeClaim) -> ActionPlan:
    if volume.volume_mode == claim.volume_mode:
        return EMPTY_PLAN
    name, requested = volume.metadata.name, claim.metadata.name
    of_volume = (
        f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{requested}" due to '
        "incompatible volumeMode."
    )
    of_claim = (
        f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim due to '
        "incompatible volumeMode."
    )
    return ActionPlan(
        (
            volume_event(volume, "VolumeMismatch", of_volume, WARNING),
            claim_event(claim, "VolumeMismatch", of_claim, WARNING),
        )
    )


def _plan_released(volume: PersistentVolume) -> ActionPlan:
    """Plan for a volume whose claim is gone; provisioners delete their own volumes once they are Released."""
    if volume.status.phase == FAILED:
        return EMPTY_PLAN
    policy, name = _policy(volume), volume.metadata.name
    if policy == RETAIN or (policy == DELETE and _is_provisioned(volume)):
        return ActionPlan(set_volume_phase(volume, RELEASED))
    if policy == DELETE:
        reason = "VolumeFailedDelete"
        text = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
    elif policy == RECYCLE:
        reason, text = "VolumeFailedRecycle", "No recycler plugin found for the volume!"
    else:
        reason = "VolumeUnknownReclaimPolicy"
        text = "Volume has unrecognized PersistentVolumeReclaimPolicy"
    failed = set_volume_phase(volume, FAILED, message=text)
    return ActionPlan((*failed, volume_event(volume, reason, text, WARNING)))


def _policy(volume: PersistentVolume) -> str:
    return volume.spec.persistent_volume_reclaim_policy or RETAIN


def _is_provisioned(volume: PersistentVolume) -> bool:
    return not volume.metadata.annotations.get(PROVISIONED_BY, "kubernetes.io/").startswith("kubernetes.io/")
