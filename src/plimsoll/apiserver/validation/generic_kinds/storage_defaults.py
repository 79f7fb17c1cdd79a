"""What is filled into volumes, claims for them and their drivers where their authors said nothing.

`fill_*` work on canonical trees in place; `settle_*` put in order what belongs together.

DIFF: claims and volumes are not given the finalizers that protect them while they are in use
(test_storage_gets_no_finalizers).
"""

from __future__ import annotations

from plimsoll.apiserver.validation.generic_kinds.kind_rules import fill_empty, fill_missing
from plimsoll.apiserver.validation.generic_kinds.storage_view import PersistentVolume, VolumeClaim
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.volume_defaults import fill_claim_spec, fill_source
from plimsoll.apiserver.validation.quantities import round_amounts
from plimsoll.apiserver.validation.write_context import Job

#: Sources with defaults that a pod's volume and a persistent volume have in common.
_SHARED_SOURCES = ("azureDisk", "hostPath", "iscsi", "rbd", "scaleIO")
_SNAPSHOT = ("snapshot.storage.k8s.io", "VolumeSnapshot")
_CLAIM = ("", "PersistentVolumeClaim")
_REFERENCE = ("apiGroup", "kind", "name")


def fill_volume_claim(tree: Tree) -> None:
    fill_claim_spec(tree.setdefault("spec", {}))
    status = tree.setdefault("status", {})
    fill_empty(status, phase="Pending")
    for name in ("capacity", "allocatedResources"):
        round_amounts(status.get(name))


def settle_volume_claim(job: Job[VolumeClaim]) -> None:
    """What a volume starts from is said in two fields, an old one and a new one; each follows the other.

    The old one only ever meant claims and snapshots; whatever else it says is dropped unless it was stored.
    """
    spec, old = job.tree["spec"], part(job.old_tree, "spec")
    source = part(spec, "dataSource")
    is_news = "dataSourceRef" not in spec and "dataSource" not in old
    if is_news and (source.get("apiGroup", ""), source.get("kind")) not in (_CLAIM, _SNAPSHOT):
        spec.pop("dataSource", None)
    if "dataSource" in spec:
        fill_missing(spec, dataSourceRef=_refer(spec["dataSource"]))
    elif "dataSourceRef" in spec and not spec["dataSourceRef"].get("namespace"):
        spec["dataSource"] = _refer(spec["dataSourceRef"])


def _refer(reference: Tree) -> Tree:
    return {name: reference[name] for name in _REFERENCE if name in reference}


def fill_persistent_volume(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_empty(spec, persistentVolumeReclaimPolicy="Retain")
    fill_missing(spec, volumeMode="Filesystem")
    round_amounts(spec.get("capacity"))
    for kind in _SHARED_SOURCES:
        if kind in spec:
            fill_source(kind, spec[kind])
    fill_empty(tree.setdefault("status", {}), phase="Pending")


def settle_persistent_volume(job: Job[PersistentVolume]) -> None:
    if job.creates:
        job.tree["status"]["lastPhaseTransitionTime"] = job.now


def settle_volume_status(job: Job[PersistentVolume], subresource: str) -> None:
    """When the phase changed is noted for those who do not note it themselves."""
    status, old = job.tree.setdefault("status", {}), part(job.old_tree, "status")
    given, before = status.get("lastPhaseTransitionTime"), old.get("lastPhaseTransitionTime")
    if status.get("phase") != old.get("phase"):
        if given in (None, before):
            status["lastPhaseTransitionTime"] = job.now
    elif given is None and before is not None:
        status["lastPhaseTransitionTime"] = before


def fill_storage_class(tree: Tree) -> None:
    fill_missing(tree, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def fill_driver(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_missing(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )
    fill_empty(spec, volumeLifecycleModes=["Persistent"])
