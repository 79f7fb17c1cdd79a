"""Preparation and validation of storage kinds: immutability of claims and volumes once they are bound.

Not validated: individual sources of a PersistentVolume, parameters of classes and drivers, and the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, forbidden, invalid, required
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_missing
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import validate_driver
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.volume_claims import validate_claim_spec
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_SNAPSHOT = ("snapshot.storage.k8s.io", "VolumeSnapshot")
_CLAIM = ("", "PersistentVolumeClaim")
_REFERENCE = ("apiGroup", "kind", "name")
_STORAGE = _SPEC.child("resources", "requests", "storage")

#: Fields of a PersistentVolume other than its source.
_NOT_SOURCES = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)
_IMMUTABLE_CLASS_FIELDS = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def _validate_volume_claim(write: WriteContext[View]) -> FieldErrors:
    claim = write.new
    yield from validate_claim_spec(claim.spec, _SPEC)
    if write.is_create:
        return
    old = write.old
    if not trees_equal(*(_immutable_part(tree, write.old_tree) for tree in (write.old_tree, write.tree))):
        yield forbidden(_SPEC, "is immutable, except for the size and attributes class of a bound claim")
    size, before = (spec.resources.requests.get("storage") for spec in (claim.spec, old.spec))
    has = old.status.capacity.get("storage", Quantity.parse("0"))
    if size is not None and before is not None and size < before and not size > has:
        yield forbidden(_STORAGE, "must not be less than the current capacity")


def _immutable_part(tree: Tree, old_tree: Tree) -> Tree:
    """Return the part of a claim that is immutable; the mutable fields are checked elsewhere."""
    spec, old = {**subtree(tree, "spec")}, subtree(old_tree, "spec")
    if not old.get("volumeName"):
        spec.pop("volumeName", None)
    if "storageClassName" not in old:
        spec.pop("storageClassName", None)
    if subtree(old_tree, "status").get("phase") == "Bound":
        spec.pop("volumeAttributesClassName", None)
        resources = subtree(spec, "resources")
        requests = {k: v for k, v in subtree(resources, "requests").items() if k != "storage"}
        spec["resources"] = {**resources, "requests": requests}
    return spec


def _validate_persistent_volume(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    source, old = (_volume_source(subtree(tree, "spec")) for tree in (write.tree, write.old_tree))
    if not spec.access_modes:
        yield required(_SPEC.child("accessModes"))
    if not spec.capacity:
        yield required(_SPEC.child("capacity"))
    if spec.csi is not None:
        yield from validate_driver(spec.csi.driver, _SPEC.child("csi", "driver"))
        if not spec.csi.volume_handle:
            yield required(_SPEC.child("csi", "volumeHandle"))
    if not source:
        yield required(_SPEC, "must have a source")
    if not write.is_create:
        if not trees_equal(old, source):
            yield forbidden(_SPEC.child("persistentvolumesource"), IMMUTABLE)
        if write.old.spec.volume_mode != spec.volume_mode:
            yield invalid(FieldPath("volumeMode"), spec.volume_mode, IMMUTABLE)


def _volume_source(spec: Tree) -> Tree:
    return {name: value for name, value in spec.items() if name not in _NOT_SOURCES}


def _validate_class(write: WriteContext[View]) -> FieldErrors:
    storage_class = write.new
    if not storage_class.provisioner:
        yield required(FieldPath("provisioner"))
    if write.is_create:
        return
    for name in _IMMUTABLE_CLASS_FIELDS:
        if not trees_equal(write.old_tree.get(name), write.tree.get(name)):
            yield invalid(FieldPath(name), None, IMMUTABLE)


def _validate_driver(write: WriteContext[View]) -> FieldErrors:
    if write.is_create:
        return
    spec, old = (subtree(tree, "spec") for tree in (write.tree, write.old_tree))
    for name, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes",) * 2):
        if not trees_equal(old.get(name), spec.get(name)):
            yield invalid(_SPEC.child(shown), None, IMMUTABLE)


def _validate_attachment(write: WriteContext[Any]) -> FieldErrors:
    if not write.is_create and not trees_equal(write.old_tree.get("spec"), write.tree.get("spec")):
        yield invalid(_SPEC, None, IMMUTABLE)


def _normalize_volume_claim(write: WriteContext[View]) -> None:
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


def _normalize_persistent_volume(write: WriteContext[View]) -> None:
    if write.is_create:
        write.tree["status"]["lastPhaseTransitionTime"] = write.now


def _normalize_volume_status(write: WriteContext[View], subresource: str) -> None:
    """Set lastPhaseTransitionTime when the phase changed and the writer did not set it."""
    status, old = write.tree.setdefault("status", {}), subtree(write.old_tree, "status")
    given, before = status.get("lastPhaseTransitionTime"), old.get("lastPhaseTransitionTime")
    if status.get("phase") != old.get("phase"):
        if given in (None, before):
            status["lastPhaseTransitionTime"] = write.now
    elif given is None and before is not None:
        status["lastPhaseTransitionTime"] = before


STORAGE_RULES: Mapping[str, KindRules] = {
    "PersistentVolumeClaim": KindRules(
        "core.v1",
        prepare=_normalize_volume_claim,
        validate=_validate_volume_claim,
        initial_status={"phase": "Pending"},
    ),
    "PersistentVolume": KindRules(
        "core.v1",
        prepare=_normalize_persistent_volume,
        validate=_validate_persistent_volume,
        prepare_status=_normalize_volume_status,
        initial_status={"phase": "Pending"},
    ),
    "StorageClass": KindRules("storage.v1", validate=_validate_class),
    "CSIDriver": KindRules("storage.v1", validate=_validate_driver),
    "CSIStorageCapacity": KindRules("storage.v1"),
    "VolumeAttachment": KindRules(validate=_validate_attachment),
}
