"""The rules of storage kinds: claims and volumes that stay what they were when they were bound.

Not checked: the single sources of a persistent volume, parameters of classes and drivers, and the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.equality import same_tree
from plimsoll.apiserver.validation.field_errors import Path, Problems, forbidden, invalid, required
from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules
from plimsoll.apiserver.validation.generic_kinds.storage_defaults import (
    fill_driver,
    fill_persistent_volume,
    fill_storage_class,
    fill_volume_claim,
    settle_persistent_volume,
    settle_volume_claim,
    settle_volume_status,
)
from plimsoll.apiserver.validation.generic_kinds.storage_view import (
    CsiDriver,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeClaim,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.volume_claims import check_claim_spec
from plimsoll.apiserver.validation.write_context import Job

_SPEC = Path("spec")
_STORAGE = _SPEC.child("resources", "requests", "storage")

#: What a persistent volume says beside its source.
_NO_SOURCE = frozenset(
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
_CLASS_STAYS = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def _check_volume_claim(job: Job[VolumeClaim]) -> Problems:
    claim = job.decode()
    yield from check_claim_spec(claim.spec, _SPEC)
    if job.creates:
        return
    old = job.old
    if not same_tree(*(_lasting(tree, job.old_tree) for tree in (job.old_tree, job.tree))):
        yield forbidden(_SPEC, "cannot be changed, but for the size and attributes class of a bound claim")
    size, before = (spec.resources.requests.get("storage") for spec in (claim.spec, old.spec))
    has = old.status.capacity.get("storage", Quantity.parse("0"))
    if size is not None and before is not None and size < before and not size > has:
        yield forbidden(_STORAGE, "cannot be less than the volume has already")


def _lasting(tree: Tree, old_tree: Tree) -> Tree:
    """The part of a claim that does not change: others see to the rest once, or while it is bound."""
    spec, old = {**part(tree, "spec")}, part(old_tree, "spec")
    if not old.get("volumeName"):
        spec.pop("volumeName", None)
    if "storageClassName" not in old:
        spec.pop("storageClassName", None)
    if part(old_tree, "status").get("phase") == "Bound":
        spec.pop("volumeAttributesClassName", None)
        resources = part(spec, "resources")
        requests = {k: v for k, v in part(resources, "requests").items() if k != "storage"}
        spec["resources"] = {**resources, "requests": requests}
    return spec


def _check_persistent_volume(job: Job[PersistentVolume]) -> Problems:
    spec = job.decode().spec
    source, old = (_source(part(tree, "spec")) for tree in (job.tree, job.old_tree))
    if not spec.access_modes:
        yield required(_SPEC.child("accessModes"))
    if not spec.capacity:
        yield required(_SPEC.child("capacity"))
    if not source:
        yield required(_SPEC, "must have a source")
    if not job.creates:
        if not same_tree(old, source):
            yield forbidden(_SPEC.child("persistentvolumesource"), IMMUTABLE)
        if job.old.spec.volume_mode != spec.volume_mode:
            yield invalid(Path("volumeMode"), spec.volume_mode, IMMUTABLE)


def _source(spec: Tree) -> Tree:
    return {name: value for name, value in spec.items() if name not in _NO_SOURCE}


def _check_class(job: Job[StorageClass]) -> Problems:
    storage_class = job.decode()
    if not storage_class.provisioner:
        yield required(Path("provisioner"))
    if job.creates:
        return
    for name in _CLASS_STAYS:
        if not same_tree(job.old_tree.get(name), job.tree.get(name)):
            yield invalid(Path(name), None, IMMUTABLE)


def _check_driver(job: Job[CsiDriver]) -> Problems:
    if job.creates:
        return
    spec, old = (part(tree, "spec") for tree in (job.tree, job.old_tree))
    for name, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes",) * 2):
        if not same_tree(old.get(name), spec.get(name)):
            yield invalid(_SPEC.child(shown), None, IMMUTABLE)


def _check_attachment(job: Job[Any]) -> Problems:
    if not job.creates and not same_tree(job.old_tree.get("spec"), job.tree.get("spec")):
        yield invalid(_SPEC, None, IMMUTABLE)


STORAGE_RULES: Mapping[str, Rules] = {
    "PersistentVolumeClaim": Rules(
        VolumeClaim,
        fill_volume_claim,
        settle_volume_claim,
        _check_volume_claim,
        first_status={"phase": "Pending"},
    ),
    "PersistentVolume": Rules(
        PersistentVolume,
        fill_persistent_volume,
        settle_persistent_volume,
        _check_persistent_volume,
        settle_volume_status,
        {"phase": "Pending"},
    ),
    "StorageClass": Rules(StorageClass, fill_storage_class, check=_check_class),
    "CSIDriver": Rules(CsiDriver, fill_driver, check=_check_driver),
    "CSIStorageCapacity": Rules(CsiStorageCapacity),
    "VolumeAttachment": Rules(check=_check_attachment, first_status={"attached": False}),
}
