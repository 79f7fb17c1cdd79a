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
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.meta import ObjectMeta, ObjectReference
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.storage import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND,
    IMMEDIATE,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSINode,
    CSIVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
    find_default_class,
)
from plimsoll.api.volume_matching import find_matching_volumes
from plimsoll.controllers.actions import CreateAction
from plimsoll.controllers.ephemeral_volume import plan_ephemeral_claims
from plimsoll.errors import DecodeError
from plimsoll.scheduler.filters.volume_provisioning import Provisioning, StorageIndex
from plimsoll.scheduler.result import PodVolumes
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Phases of a volume that no controller has seen.
_NEW = frozenset({"", "Pending"})


def generate_volume_claims(pod: Pod, snapshot: Snapshot) -> Iterator[PersistentVolumeClaim]:
    """Return the claims of a pod's ephemeral volumes that do not exist yet.

    A template that cannot be read makes no claim: the pod stays pending, as in a cluster.
    """
    meta = pod.metadata
    generated = [used.name for used in volume_claims(pod) if used.generated] if pod.spec.volumes else []
    known = {name: snapshot.find(PersistentVolumeClaim, meta.namespace, name) for name in generated}
    plan = plan_ephemeral_claims(pod, {name: claim for name, claim in known.items() if claim is not None})
    for action in plan.actions if generated else ():
        if isinstance(action, CreateAction):
            try:
                claim = convert(action.tree, PersistentVolumeClaim)
            except DecodeError:
                continue
            uid = f"whatif/volumeclaim/{meta.uid}/{claim.metadata.name}"
            yield replace(claim, metadata=replace(claim.metadata, namespace=meta.namespace, uid=uid))


def with_defaults(thing: Any, snapshot: Snapshot) -> Any:
    """Return a new volume, claim or class with what the API server and the volume controller would set."""
    match thing:
        case PersistentVolume() if thing.status.phase in _NEW:
            reference = thing.spec.claim_ref
            if reference is None or not reference.uid:
                return replace(thing, status=PersistentVolumeStatus(phase=AVAILABLE))
        case PersistentVolumeClaim() if not thing.bound and not thing.has_class:
            default = find_default_class(snapshot.all(StorageClass))
            name = None if default is None else default.metadata.name
            return replace(thing, spec=replace(thing.spec, storage_class_name=name))
        case StorageClass() if thing.volume_binding_mode is None:
            return replace(thing, volume_binding_mode=IMMEDIATE)
    return thing


def bind_volumes(
    volumes: PodVolumes, node: Node, find: Callable[[type[Any], str, str], Any]
) -> Iterator[PersistentVolume | PersistentVolumeClaim]:
    """Return the volumes and claims of a pod that is bound to a node, bound to each other."""
    for binding in volumes.static_bindings:
        yield _claimed(binding.volume, binding.claim)
        yield _bound(binding.claim, binding.volume.metadata.name)
    for provision in volumes.dynamic_provisions:
        storage_class = find(StorageClass, "", provision.claim.storage_class)
        driver = "" if storage_class is None else storage_class.provisioner
        affinity = _topology(driver, node, find(CSINode, "", node.metadata.name))
        volume = _provision(provision.claim, driver, affinity)
        yield volume
        annotations = {**provision.claim.metadata.annotations, SELECTED_NODE: node.metadata.name}
        selected = replace(provision.claim.metadata, annotations=annotations)
        yield _bound(replace(provision.claim, metadata=selected), volume.metadata.name)


def bind_immediately(
    claim: PersistentVolumeClaim, snapshot: Snapshot, *, can_provision: bool
) -> Iterator[PersistentVolume | PersistentVolumeClaim]:
    """Return the volume and the claim of a claim that does not wait for a consumer, bound to each other.

    The volume controller binds it to the smallest volume that matches, or has one provisioned in the allowed
    topologies of its class (`can_provision`). Nothing is returned if neither is possible: the claim stays
    pending.
    """
    storage_class = snapshot.find(StorageClass, "", claim.storage_class)
    if claim.bound or (
        storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    ):
        return
    volume = _find_volume(claim, snapshot)
    if volume is not None:
        volume = _claimed(volume, claim)
    elif can_provision and not claim.spec.volume_name and Provisioning(claim, snapshot).is_supported:
        assert storage_class is not None, "it has a provisioner"
        affinity = _allowed_topologies(storage_class)
        volume = _provision(claim, storage_class.provisioner, affinity)
    if volume is not None:
        yield volume
        yield _bound(claim, volume.metadata.name)


def _find_volume(claim: PersistentVolumeClaim, snapshot: Snapshot) -> PersistentVolume | None:
    """Return the existing volume for a claim, if any; a claim may name it."""
    named = claim.spec.volume_name
    matching = find_matching_volumes(claim, snapshot.index(StorageIndex).volumes(claim.storage_class))
    if isinstance(matching, SelectorProblem):
        return None
    if named:
        return next((volume for volume in matching if volume.metadata.name == named), None)
    return matching.choose(lambda _: True)


def _allowed_topologies(storage_class: StorageClass) -> VolumeNodeAffinity | None:
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                NodeSelectorRequirement(key=each.key, operator="In", values=each.values)
                for each in term.match_label_expressions
            )
        )
        for term in storage_class.allowed_topologies
    )
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)) if terms else None


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a volume that is bound to a claim."""
    reference = ObjectReference.to_version(claim.metadata, "PersistentVolumeClaim")
    spec = replace(volume.spec, claim_ref=reference)
    return replace(volume, spec=spec, status=PersistentVolumeStatus(phase=BOUND))


def _bound(claim: PersistentVolumeClaim, volume: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    return replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations),
        spec=replace(claim.spec, volume_name=volume),
        status=PersistentVolumeClaimStatus(phase=BOUND),
    )


def _provision(
    claim: PersistentVolumeClaim, driver: str, affinity: VolumeNodeAffinity | None
) -> PersistentVolume:
    name = f"pvc-{claim.metadata.uid}"
    volume = PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"whatif/volume/{claim.metadata.uid}"),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: claim.size},
            access_modes=claim.spec.access_modes,
            storage_class_name=claim.storage_class,
            volume_mode=claim.spec.volume_mode,
            node_affinity=affinity,
            csi=CSIVolumeSource(driver=driver, volume_handle=name),
        ),
    )
    return _claimed(volume, claim)


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
