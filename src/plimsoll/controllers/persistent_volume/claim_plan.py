"""Plan for a PersistentVolumeClaim: find a volume, ask for one, or report what is missing. Pure.

Semantics, events and messages of kube-controller-manager's persistentvolume-binder-controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.storage import (
    BIND_COMPLETED,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from plimsoll.api.volume_matching import find_matching_volumes
from plimsoll.client.event_recorder import WARNING
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.persistent_volume.binding import (
    bind,
    claim_event,
    patch_claim,
    set_claim_unbound,
)

#: Annotations of a claim that ask a provisioner for a volume; the second is its older name.
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
#: Prefix of provisioners that once were part of Kubernetes; none is here.
_IN_TREE = "kubernetes.io/"
LOST = "Lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimContext:
    """Objects that the plan for a claim depends on."""

    #: Volume that the claim names, if it does and the volume exists.
    named: PersistentVolume | None = None
    #: Volumes of the claim's class, and those that refer to the claim.
    candidates: Sequence[PersistentVolume] = ()
    storage_class: StorageClass | None = None
    default_class: StorageClass | None = None
    #: Names of pods that use the claim and are not scheduled.
    waiting_pods: Sequence[str] = ()


def plan_claim(claim: PersistentVolumeClaim, context: ClaimContext) -> ActionPlan:
    """Plan the next steps for a claim."""
    if BIND_COMPLETED in claim.metadata.annotations:
        return _plan_bound(claim, context.named)
    if claim.spec.volume_name:
        return _plan_named(claim, context.named)
    delayed = (
        context.storage_class is not None
        and context.storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )
    chosen = choose_volume(claim, context.candidates, delayed=delayed)
    if isinstance(chosen, SelectorProblem):
        return ActionPlan(error=f"claim {claim.metadata.full_name}: invalid selector: {chosen}")
    if chosen is not None:
        return ActionPlan(bind(chosen, claim))
    if not claim.has_class and context.default_class is not None:
        name = context.default_class.metadata.name
        return ActionPlan((patch_claim(claim, {"spec": {"storageClassName": name}}),))
    if delayed and claim.selected_node is None:
        return _plan_waiting(claim, context.waiting_pods)
    if claim.storage_class:
        return _plan_provisioning(claim, context.storage_class)
    text = "no persistent volumes available for this claim and no storage class is set"
    return ActionPlan((claim_event(claim, "FailedBinding", text), *set_claim_unbound(claim)))


def choose_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, delayed: bool
) -> PersistentVolume | SelectorProblem | None:
    """Choose a volume: one that refers to the claim, else the smallest of those with the fewest modes.

    If binding is delayed until a pod is scheduled, the scheduler chooses, and only a volume that refers to
    the claim counts.
    """
    matching = find_matching_volumes(claim, volumes)
    if isinstance(matching, SelectorProblem):
        return matching
    modes = {*claim.spec.access_modes}
    for volume in matching.prebound:
        if modes.issubset(volume.spec.access_modes):
            return volume
    if delayed:
        return None
    return min(matching.available, key=lambda each: len(each.spec.access_modes), default=None)


def find_mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why a volume does not satisfy the claim that names it, or ""."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if volume.size < claim.size:
        return "requested PV is too small"
    if volume.storage_class != claim.storage_class:
        return "storageClassName does not match"
    wanted, has = claim.spec.volume_attributes_class_name, volume.spec.volume_attributes_class_name
    if (wanted or "") != (has or ""):
        return "volumeAttributesClassName does not match"
    if volume.volume_mode != claim.volume_mode:
        return "incompatible volumeMode"
    if not {*claim.spec.access_modes}.issubset(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def _plan_bound(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ActionPlan:
    if not claim.spec.volume_name:
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return _plan_lost(claim, "ClaimLost", text)
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return _plan_lost(claim, "ClaimLost", text)
    reference = volume.spec.claim_ref
    if reference is None or reference.uid == claim.metadata.uid:
        return ActionPlan(bind(volume, claim))
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return _plan_lost(claim, "ClaimMisbound", text)


def _plan_lost(claim: PersistentVolumeClaim, reason: str, text: str) -> ActionPlan:
    if claim.status.phase == LOST:
        return EMPTY_PLAN
    return ActionPlan((*set_claim_unbound(claim, LOST), claim_event(claim, reason, text, WARNING)))


def _plan_named(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ActionPlan:
    """Plan for a claim that names its volume and is not bound to it."""
    pending = set_claim_unbound(claim)
    if volume is None:
        return ActionPlan(pending)
    name = volume.metadata.name
    if volume.spec.claim_ref is None:
        mismatch = find_mismatch(volume, claim)
        if not mismatch:
            return ActionPlan(bind(volume, claim))
        text = f'Cannot bind to requested volume "{name}": {mismatch}'
        return ActionPlan((claim_event(claim, "VolumeMismatch", text, WARNING), *pending))
    if volume.is_bound_to(claim):
        return ActionPlan(bind(volume, claim))
    text = f'volume "{name}" already bound to a different claim.'
    return ActionPlan((claim_event(claim, "FailedBinding", text, WARNING), *pending))


def _plan_waiting(claim: PersistentVolumeClaim, pods: Sequence[str]) -> ActionPlan:
    reason, text = "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
    if pods:
        names = ("pods " if len(pods) > 1 else "pod ") + ",".join(sorted(pods))
        reason, text = "WaitForPodScheduled", f"waiting for {names} to be scheduled"
    return ActionPlan((claim_event(claim, reason, text), *set_claim_unbound(claim)))


def _plan_provisioning(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> ActionPlan:
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
        return ActionPlan((claim_event(claim, "ProvisioningFailed", text, WARNING),))
    name = storage_class.provisioner
    if name.startswith(_IN_TREE):
        text = f"no volume plugin matched name: {name}"
        return ActionPlan((claim_event(claim, "ProvisioningFailed", text, WARNING),))
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{name}' "
        "or manually by the system administrator. If volume creation is delayed, please verify that "
        "the provisioner is running and correctly registered."
    )
    event = claim_event(claim, "ExternalProvisioning", text)
    if claim.metadata.annotations.get(STORAGE_PROVISIONER) == name:
        return ActionPlan((event,))
    annotations = {STORAGE_PROVISIONER: name, _BETA_STORAGE_PROVISIONER: name}
    return ActionPlan((patch_claim(claim, {"metadata": {"annotations": annotations}}), event))
