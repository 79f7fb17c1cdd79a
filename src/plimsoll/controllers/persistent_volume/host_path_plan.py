"""Plans of the host-path provisioner: volumes that are directories of this machine. Pure.

A volume of a class that waits for its first consumer is reachable from the selected node only, as a local
volume of a machine is. Sizes are recorded and not enforced.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Node
from plimsoll.api.quantity import Quantity
from plimsoll.api.storage import (
    BOUND,
    BOUND_BY_CONTROLLER,
    FILESYSTEM,
    HOST_PATH_PROVISIONER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from plimsoll.client.endpoints import PERSISTENT_VOLUMES
from plimsoll.client.event_recorder import WARNING
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction, DeleteAction
from plimsoll.controllers.persistent_volume.binding import (
    claim_event,
    claim_reference,
    patch_claim,
    patch_claim_status,
    patch_volume,
    volume_event,
)
from plimsoll.controllers.persistent_volume.claim_plan import STORAGE_PROVISIONER
from plimsoll.controllers.persistent_volume.volume_plan import DELETE, RELEASED

#: Finalizer by which a volume with the policy Delete stays until its directory is removed.
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
HOST_NAME = "kubernetes.io/hostname"
COMPONENT = "plimsoll.dev/host-path"


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of a claim's volume, and of its directory."""
    return f"pvc-{claim.metadata.uid}"


def needs_volume(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Return whether a volume of this provisioner is to be created for a claim."""
    if storage_class is None or storage_class.provisioner != HOST_PATH_PROVISIONER:
        return False
    if claim.spec.volume_name or claim.metadata.deletion_timestamp is not None:
        return False
    if claim.metadata.annotations.get(STORAGE_PROVISIONER) != HOST_PATH_PROVISIONER:
        return False
    delayed = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    return not delayed or claim.selected_node is not None


def find_refusal(claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None) -> str:
    """Return why no volume can be provisioned for a claim, or ""."""
    if claim.volume_mode != FILESYSTEM:
        return f"volumeMode {claim.volume_mode} is not supported: volumes are directories"
    if claim.spec.data_source_ref:
        kind = claim.spec.data_source_ref.get("kind")
        return f"a volume cannot be filled from a data source ({kind})"
    if claim.spec.selector is not None:
        return "claim.spec.selector is not supported for dynamic provisioning"
    if storage_class.mount_options:
        return f"mountOptions {list(storage_class.mount_options)} are not supported"
    if storage_class.parameters:
        return f"unknown parameter {min(storage_class.parameters)!r}; there are none"
    if claim.spec.volume_attributes_class_name:
        return "volumeAttributesClassName is not supported"
    if claim.selected_node is not None and node is None:
        return f'failed to get target node: nodes "{claim.selected_node}" not found'
    return ""


def plan_refusal(claim: PersistentVolumeClaim, storage_class: StorageClass, problem: str) -> ActionPlan:
    """Report that provisioning failed; the scheduler may select another node."""
    name = storage_class.metadata.name
    text = f'failed to provision volume with StorageClass "{name}": {problem}'
    event = claim_event(claim, "ProvisioningFailed", text, WARNING, COMPONENT)
    if claim.selected_node is None:
        return ActionPlan((event,))
    return ActionPlan((event, patch_claim(claim, {"metadata": {"annotations": {SELECTED_NODE: None}}})))


def plan_creation(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None, path: str
) -> ActionPlan:
    """Plan the volume of a claim; its directory exists."""
    name, policy = volume_name(claim), storage_class.reclaim_policy or DELETE
    metadata: dict[str, Any] = {
        "name": name,
        "annotations": {BOUND_BY_CONTROLLER: "yes", PROVISIONED_BY: HOST_PATH_PROVISIONER},
    }
    if policy == DELETE:
        metadata["finalizers"] = [FINALIZER]
    spec: dict[str, Any] = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": {STORAGE: str(claim.size)},
        "claimRef": claim_reference(claim),
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": claim.storage_class,
        "volumeMode": FILESYSTEM,
        "hostPath": {"path": path, "type": "DirectoryOrCreate"},
    }
    terms = _allowed_terms(storage_class)
    if node is not None and HOST_NAME in node.metadata.labels:
        expression = {"key": HOST_NAME, "operator": "In", "values": [node.metadata.labels[HOST_NAME]]}
        terms = [{"matchExpressions": [expression]}]
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    tree = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    text = f"Successfully provisioned volume {name}"
    event = claim_event(claim, "ProvisioningSucceeded", text, component=COMPONENT)
    return ActionPlan((CreateAction(PERSISTENT_VOLUMES, tree), event))


def _allowed_terms(storage_class: StorageClass) -> list[dict[str, Any]]:
    return [
        {
            "matchExpressions": [
                {"key": each.key, "operator": "In", "values": list(each.values)}
                for each in term.match_label_expressions
            ]
        }
        for term in storage_class.allowed_topologies
    ]


# -- deletion


def is_own(volume: PersistentVolume) -> bool:
    return volume.metadata.annotations.get(PROVISIONED_BY) == HOST_PATH_PROVISIONER


def needs_deletion(volume: PersistentVolume) -> bool:
    """Return whether a volume and its directory are to be removed."""
    is_deleted = volume.spec.persistent_volume_reclaim_policy == DELETE
    return is_own(volume) and is_deleted and volume.status.phase == RELEASED


def plan_deletion(volume: PersistentVolume) -> ActionPlan:
    """Plan the deletion of a volume; its directory is removed."""
    metadata = volume.metadata
    delete = DeleteAction(PERSISTENT_VOLUMES, metadata.name, uid=metadata.uid)
    if FINALIZER not in metadata.finalizers:
        return ActionPlan((delete,))
    kept = [each for each in metadata.finalizers if each != FINALIZER]
    return ActionPlan((patch_volume(volume, {"metadata": {"finalizers": kept or None}}), delete))


def plan_failed_deletion(volume: PersistentVolume, problem: str) -> ActionPlan:
    return ActionPlan(
        (volume_event(volume, "VolumeFailedDelete", problem, WARNING, COMPONENT),), error=problem
    )


# -- expansion


def plan_expansion(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ActionPlan:
    """Plan a larger size of a bound claim and its volume, which a directory always has room for."""
    if volume is None or not is_own(volume) or not claim.bound or claim.status.phase != BOUND:
        return EMPTY_PLAN
    has, size = claim.status.capacity.get(STORAGE, Quantity.of(0)), claim.size
    if not volume.is_bound_to(claim) or not size > has:
        return EMPTY_PLAN
    capacity = {"capacity": {STORAGE: str(size)}}
    grown = (patch_volume(volume, {"spec": capacity}),) if size > volume.size else ()
    event = claim_event(claim, "VolumeResizeSuccessful", "Resize volume succeeded", component=COMPONENT)
    return ActionPlan((*grown, patch_claim_status(claim, capacity), event))
