"""Admission of storage objects: finalizers, the default class of claims, and their expansion.

The plugins are those of Kubernetes: StorageObjectInUseProtection, DefaultStorageClass and
PersistentVolumeClaimResize. Pure: they leave their inputs unchanged and return a refusal as text (HTTP 403).

DIFF: VolumeAttributesClasses do not get a finalizer (test_attributes_classes_get_no_finalizer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.api.storage import (
    BETA_STORAGE_CLASS,
    BOUND,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
    StorageClass,
    find_default_class,
)
from plimsoll.apiserver.admission.plugins import AdmissionResult
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.errors import QuantityError

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
_FINALIZERS: Mapping[str, str] = {CLAIMS: CLAIM_PROTECTION, VOLUMES: VOLUME_PROTECTION}


def admit_storage(
    resource: str, tree: Tree, old: Tree | None, list_classes: Callable[[], Sequence[StorageClass]]
) -> AdmissionResult:
    """Admit a write of a claim or a volume; the classes are listed only if they matter."""
    if old is not None:
        return AdmissionResult(tree, _check_size(tree, old, list_classes) if resource == CLAIMS else "")
    tree = _with_finalizer(tree, _FINALIZERS[resource])
    if resource == CLAIMS and isinstance(tree.get("spec"), dict) and not _has_class(tree):
        found = find_default_class(list_classes())
        if found is not None:
            tree = {**tree, "spec": {**tree["spec"], "storageClassName": found.metadata.name}}
    return AdmissionResult(tree)


def _with_finalizer(tree: Tree, finalizer: str) -> Tree:
    metadata = tree["metadata"]
    given = metadata.get("finalizers") or []
    if not isinstance(given, list) or finalizer in given:
        return tree
    return {**tree, "metadata": {**metadata, "finalizers": [*given, finalizer]}}


def _has_class(tree: Tree) -> bool:
    annotations = subtree(tree, "metadata", "annotations")
    return tree["spec"].get("storageClassName") is not None or BETA_STORAGE_CLASS in annotations


def _check_size(tree: Tree, old: Tree, list_classes: Callable[[], Sequence[StorageClass]]) -> str:
    """Return why a claim cannot be given a larger size, or ""."""
    size, before = _size(tree), _size(old)
    if size is None or before is None or not size > before:
        return ""
    if subtree(old, "status").get("phase") != BOUND:
        return "Only bound persistent volume claims can be expanded"
    names = {_class_name(tree), _class_name(old)}
    by_name = {each.metadata.name: each for each in list_classes()}
    for name in names:
        if name not in by_name or not by_name[name].allow_volume_expansion:
            return (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
                "pvc must support resize"
            )
    return ""


def _size(tree: Tree) -> Quantity | None:
    amount: Any = subtree(tree, "spec", "resources", "requests").get("storage")
    try:
        return None if amount is None else Quantity.from_json(amount)
    except QuantityError:
        return None  # malformed: preparation rejects it


def _class_name(tree: Tree) -> str:
    old = subtree(tree, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    name = subtree(tree, "spec").get("storageClassName") if old is None else old
    return name if isinstance(name, str) else ""
