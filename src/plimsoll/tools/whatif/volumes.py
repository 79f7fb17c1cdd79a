"""Volume claims as controllers and provisioners would change them: generated for a pod, bound, provisioned.

A provisioned volume is reachable from the nodes that have the same values of the driver's topology keys
(CSINode) as the selected node; without such keys it is reachable from all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from plimsoll.api.codec import convert
from plimsoll.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from plimsoll.api.meta import ObjectMeta, ObjectReference, OwnerReference
from plimsoll.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    STORAGE,
    CSINode,
    CSIVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
)
from plimsoll.errors import DecodeError
from plimsoll.scheduler.filters.volumes import nested_object, nested_text, volume_claims
from plimsoll.scheduler.result import PodVolumes
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_BOUND = "Bound"
#: Annotation of the class of claims that name none.
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def generate_volume_claims(pod: Pod, snapshot: Snapshot) -> Iterator[PersistentVolumeClaim]:
    """Return the claims of a pod's ephemeral volumes that do not exist yet.

    A template that cannot be read makes no claim: the pod stays pending, as in a cluster.
    """
    generated = {used.name for used in volume_claims(pod) if used.generated} if pod.spec.volumes else ()
    for volume in pod.spec.volumes if generated else ():
        name = f"{pod.metadata.name}-{nested_text(volume, 'name')}"
        known = snapshot.find(PersistentVolumeClaim, pod.metadata.namespace, name)
        if name not in generated or known is not None:
            continue
        template = nested_object(nested_object(volume, "ephemeral") or {}, "volumeClaimTemplate") or {}
        try:
            yield _claim(pod, name, template, snapshot)
        except DecodeError:
            continue


def _claim(pod: Pod, name: str, template: Any, snapshot: Snapshot) -> PersistentVolumeClaim:
    meta, spec = pod.metadata, convert(template.get("spec") or {}, PersistentVolumeClaimSpec)
    if spec.storage_class_name is None:
        spec = replace(spec, storage_class_name=_default_class(snapshot))
    given = convert(template.get("metadata") or {}, ObjectMeta)
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            uid=f"whatif/volumeclaim/{meta.uid}/{name}",
            labels=given.labels,
            annotations=given.annotations,
            owner_references=(owner,),
        ),
        spec=spec,
    )


def _default_class(snapshot: Snapshot) -> str | None:
    """Return the newest default class, as the API server does."""
    found = [
        (each.metadata.creation_timestamp or "", each.metadata.name)
        for each in snapshot.all(StorageClass)
        if each.metadata.annotations.get(DEFAULT_CLASS) == "true"
    ]
    newest = max((created for created, _ in found), default="")
    return min((name for created, name in found if created == newest), default=None)


def bind_volumes(
    volumes: PodVolumes, node: Node, find: Callable[[type[Any], str, str], Any]
) -> Iterator[PersistentVolume | PersistentVolumeClaim]:
    """Return the volumes and claims of a pod that is bound to a node, bound to each other."""
    for binding in volumes.static_bindings:
        volume = binding.volume
        spec = replace(
            volume.spec, claim_ref=ObjectReference.to_version(binding.claim.metadata, "PersistentVolumeClaim")
        )
        yield replace(volume, spec=spec, status=PersistentVolumeStatus(phase=_BOUND))
        yield _bound(binding.claim, volume.metadata.name)
    for provision in volumes.dynamic_provisions:
        volume = _provision(provision.claim, node, find)
        yield volume
        annotations = {**provision.claim.metadata.annotations, SELECTED_NODE: node.metadata.name}
        selected = replace(provision.claim.metadata, annotations=annotations)
        yield _bound(replace(provision.claim, metadata=selected), volume.metadata.name)


def _bound(claim: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    return replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations),
        spec=replace(claim.spec, volume_name=volume),
        status=PersistentVolumeClaimStatus(phase=_BOUND),
    )


def _provision(
    claim: PersistentVolumeClaim, node: Node, find: Callable[[type[Any], str, str], Any]
) -> PersistentVolume:
    storage_class = find(StorageClass, "", claim.storage_class)
    driver = "" if storage_class is None else storage_class.provisioner
    name = f"pvc-{claim.metadata.uid}"
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"whatif/volume/{claim.metadata.uid}"),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: claim.size},
            access_modes=claim.spec.access_modes,
            claim_ref=ObjectReference.to_version(claim.metadata, "PersistentVolumeClaim"),
            storage_class_name=claim.storage_class,
            volume_mode=claim.spec.volume_mode,
            node_affinity=_topology(driver, node, find(CSINode, "", node.metadata.name)),
            csi=CSIVolumeSource(driver=driver, volume_handle=name),
        ),
        status=PersistentVolumeStatus(phase=_BOUND),
    )


def _topology(driver: str, node: Node, csi_node: CSINode | None) -> VolumeNodeAffinity | None:
    drivers = csi_node.spec.drivers if csi_node is not None else ()
    keys = next((each.topology_keys for each in drivers if each.name == driver), ())
    labels = node.metadata.labels
    known = [key for key in keys if key in labels]
    terms = tuple(NodeSelectorRequirement(key=key, operator="In", values=(labels[key],)) for key in known)
    if not terms:
        return None
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=terms),))
    return VolumeNodeAffinity(required=selector)
