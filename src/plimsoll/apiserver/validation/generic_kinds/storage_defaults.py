"""Defaulting and normalization of PersistentVolumeClaim, PersistentVolume, StorageClass and CSIDriver.

`set_*_defaults` work on canonical trees in place; `normalize_*` reconcile dependent fields.

DIFF: claims and volumes do not get the finalizers that protect them while they are in use
(test_storage_gets_no_finalizers).
"""

from __future__ import annotations

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.generic_kinds.kind_rules import default_if_empty, default_if_missing
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.volume_defaults import set_claim_spec_defaults, set_source_defaults
from plimsoll.apiserver.validation.quantities import round_resource_list
from plimsoll.apiserver.validation.write_context import WriteContext

#: Sources with defaults that pod volumes and PersistentVolumes share.
_SHARED_SOURCES = ("azureDisk", "hostPath", "iscsi", "rbd", "scaleIO")
_SNAPSHOT = ("snapshot.storage.k8s.io", "VolumeSnapshot")
_CLAIM = ("", "PersistentVolumeClaim")
_REFERENCE = ("apiGroup", "kind", "name")


def set_volume_claim_defaults(tree: Tree) -> None:
    set_claim_spec_defaults(tree.setdefault("spec", {}))
    status = tree.setdefault("status", {})
    default_if_empty(status, phase="Pending")
    for name in ("capacity", "allocatedResources"):
        round_resource_list(status.get(name))


def normalize_volume_claim(write: WriteContext[View]) -> None:
    """Copy dataSource and dataSourceRef to each other.

    A dataSource that is neither a claim nor a snapshot is dropped unless it is stored.
    """
    spec, old = write.tree["spec"], subtree(write.old_tree, "spec")
    source = subtree(spec, "dataSource")
    is_news = "dataSourceRef" not in spec and "dataSource" not in old
    if is_news and (source.get("apiGroup", ""), source.get("kind")) not in (_CLAIM, _SNAPSHOT):
        spec.pop("dataSource", None)
    if "dataSource" in spec:
        default_if_missing(spec, dataSourceRef=_object_reference(spec["dataSource"]))
    elif "dataSourceRef" in spec and not spec["dataSourceRef"].get("namespace"):
        spec["dataSource"] = _object_reference(spec["dataSourceRef"])


def _object_reference(reference: Tree) -> Tree:
    return {name: reference[name] for name in _REFERENCE if name in reference}


def set_persistent_volume_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    default_if_empty(spec, persistentVolumeReclaimPolicy="Retain")
    default_if_missing(spec, volumeMode="Filesystem")
    round_resource_list(spec.get("capacity"))
    for kind in _SHARED_SOURCES:
        if kind in spec:
            set_source_defaults(kind, spec[kind])
    default_if_empty(tree.setdefault("status", {}), phase="Pending")


def normalize_persistent_volume(write: WriteContext[View]) -> None:
    if write.is_create:
        write.tree["status"]["lastPhaseTransitionTime"] = write.now


def normalize_volume_status(write: WriteContext[View], subresource: str) -> None:
    """Set lastPhaseTransitionTime when the phase changed and the writer did not set it."""
    status, old = write.tree.setdefault("status", {}), subtree(write.old_tree, "status")
    given, before = status.get("lastPhaseTransitionTime"), old.get("lastPhaseTransitionTime")
    if status.get("phase") != old.get("phase"):
        if given in (None, before):
            status["lastPhaseTransitionTime"] = write.now
    elif given is None and before is not None:
        status["lastPhaseTransitionTime"] = before


def set_storage_class_defaults(tree: Tree) -> None:
    default_if_missing(tree, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def set_driver_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    default_if_missing(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )
    default_if_empty(spec, volumeLifecycleModes=["Persistent"])
