"""Hints: changes that cannot be tried, because their content is unknown or outside the cluster's objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plimsoll.allocator import AllocationFault, Refusal, SearchAborted
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice, expressions_of
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.ledger.units import is_dra_extended_resource
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityMessage
from plimsoll.scheduler.filters.node_declared_features import needed_features
from plimsoll.scheduler.filters.volume_binding import VolumeBindingMessage
from plimsoll.scheduler.filters.volume_zone import VolumeZoneMessage
from plimsoll.scheduler.filters.volumes import VolumeMessage
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.claim_users import pods_using
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.fixes.fix import Hint, HintKind
from plimsoll.tools.fixes.node_steps import affinity_term_facts
from plimsoll.tools.fixes.similar import near_text
from plimsoll.tools.fixes.trial import FixTrial

_REACH = "free capacity on a node from which its volumes can be reached"
_VOLUMES = {
    VolumeMessage.CLAIM_MISSING: 'create PersistentVolumeClaim "{claim}"',
    VolumeBindingMessage.CLAIM_NOT_CREATED: "wait for kube-controller-manager's ephemeral volume controller",
    VolumeBindingMessage.CLAIM_LOST: 'restore volume "{volume}" of claim "{claim}", or use another claim',
    VolumeBindingMessage.CLAIM_DELETED: 'wait until claim "{claim}" is deleted, then recreate it',
    VolumeBindingMessage.CLAIM_NOT_OWNED: "delete claim {claim}: it was created for another pod",
    VolumeBindingMessage.INVALID_SELECTOR: "recreate claim {claim} with a valid selector",
    VolumeZoneMessage.VOLUME_MISSING: 'restore PersistentVolume "{volume}", or use another claim',
    VolumeBindingMessage.CLASS_WITHOUT_BINDING_MODE: (
        'set volumeBindingMode of StorageClass "{storage_class}"'
    ),
    VolumeBindingMessage.NO_VOLUME: 'make room for a volume of claim "{claim}" on node {node}',
    VolumeBindingMessage.NO_CAPACITY: 'make room for a volume of claim "{claim}" on node {node}',
    VolumeBindingMessage.AFFINITY: _REACH,
    VolumeZoneMessage.ZONE: _REACH,
}


def hint_scheduler(cluster_state: ClusterState, pod: Pod) -> Hint:
    """Name other schedulers: those that bound pods use."""
    known = {other.spec.scheduler_name for other in cluster_state.pods if other.spec.node_name} - {""}
    names = tuple(sorted(known - {pod.spec.scheduler_name})) or ("default-scheduler",)
    return Hint(HintKind.NAME_SCHEDULER, {"names": names})


def hints_for_pod(
    cluster_state: ClusterState, pod: Pod, reason: NodeReason, node: str = ""
) -> Iterator[Hint]:
    """Yield hints for a reason that is about the pod itself, or about its volumes on a node."""
    facts, namespace = {**reason.facts, "node": node}, pod.metadata.namespace
    if reason.message is VolumeBindingMessage.CLAIM_UNBOUND:
        yield Hint(HintKind.VOLUME, {"text": _unbound_text(cluster_state, pod)})
    elif reason.message in _VOLUMES:
        yield Hint(HintKind.VOLUME, {"text": _VOLUMES[reason.message].format_map(facts)})
    match reason.message:
        case ClaimMessage.NOT_CREATED:
            yield _hint_template(cluster_state, pod)
        case ClaimMessage.MISSING:
            name = str(facts["claim"])
            near = _near(cluster_state, ResourceClaim, name, namespace)
            yield Hint(HintKind.CREATE_CLAIM, {"claim": name, "namespace": namespace, "near": near})
        case ClaimMessage.DELETED:
            claim = cluster_state.objects.find(ResourceClaim, namespace, str(facts["claim"]))
            users = tuple(f"pod {user.name}" for user in claim.status.reserved_for) if claim else ()
            held = users or (tuple(claim.metadata.finalizers) if claim else ()) or ("no pod",)
            yield Hint(HintKind.WAIT_DELETION, {"claim": facts["claim"], "why": held})
        case ClaimMessage.NOT_OWNED | ClaimMessage.NOT_OWNED_BY_EITHER:
            name = str(facts["claim"]).rpartition("/")[2]
            claim = cluster_state.objects.find(ResourceClaim, namespace, name)
            owners = claim.metadata.owner_references if claim is not None else ()
            owner = ", ".join(f"{each.kind} {each.name} ({each.uid})" for each in owners) or "no owner"
            yield Hint(HintKind.RENAME_OWNER, {"claim": facts["claim"], "owner": owner})
        case ClaimMessage.CLASS_MISSING:
            yield _hint_class(cluster_state.snapshot, str(facts["device_class"]))


def hints_on_node(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[Hint]:
    """Yield hints for the refusal of a node."""
    for reason in reasons:
        yield from hints_for_pod(trial.cluster_state, trial.pod, reason, trial.name)
        cause = reason.cause
        if reason.rule is Rule.DECLARED_FEATURES:
            missing = needed_features(trial.pod).difference(trial.node.status.declared_features)
            yield Hint(HintKind.UPGRADE_NODE, {"node": trial.name, "wanted": tuple(sorted(missing))})
        elif reason.message is InterPodAffinityMessage.AFFINITY:
            yield from _hint_affinity(trial.pod)
        elif isinstance(cause, SearchAborted):
            yield Hint(HintKind.RAISE_STEPS, {"steps": cause.steps})
        elif isinstance(cause, AllocationFault):
            yield Hint(HintKind.CORRECT, {"text": str(cause)})
        elif isinstance(cause, Refusal):
            yield from _hint_drivers(trial, cause)
        elif isinstance(cause, Reason):
            yield from _hint_amount(trial, cause)


def _hint_affinity(pod: Pod) -> Iterator[Hint]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
    for term in affinity.required if affinity is not None else ():
        yield Hint(HintKind.MEET, affinity_term_facts(term))


def _hint_amount(trial: FixTrial, cause: Reason) -> Iterator[Hint]:
    """Yield hints for a claim in use."""
    if cause.cause in (Cause.SHARED_BY_SEVERAL, Cause.USED_BY_ANOTHER, Cause.MAPPED_DEVICE_SHARED):
        pods = pods_using(trial.cluster_state, cause.namespace, cause.claim, trial.pod)
        facts = {"claim": f"{cause.namespace}/{cause.claim}", "pods": pods or "the other pod"}
        yield Hint(HintKind.WAIT_CLAIM, facts)


def unprovided_resources(pod_info: PodInfo, snapshot: Snapshot) -> list[str]:
    """Return the extended resources of a pod that no DeviceClass serves and no node advertises."""
    wanted = [name for name in pod_info.requests if is_dra_extended_resource(name)]
    provided = (
        {name for row in snapshot.rows() for name in snapshot.ledger(row).allocatable} if wanted else {}
    )
    return [name for name in wanted if name not in provided and name not in pod_info.extended_classes]


def hint_unprovided(snapshot: Snapshot, resource: str) -> Hint:
    """Return what may provide an extended resource that nothing in the cluster does."""
    implicit = resource.removeprefix(DEVICE_CLASS_RESOURCE)
    if implicit == resource:
        return Hint(HintKind.NO_RESOURCE, {"resource": resource})
    return _hint_class(snapshot, implicit)


def _hint_class(snapshot: Snapshot, name: str) -> Hint:
    near = near_text(name, snapshot.classes)
    return Hint(HintKind.CREATE_CLASS, {"device_class": name, "near": near})


def _hint_drivers(trial: FixTrial, refusal: Refusal) -> Iterator[Hint]:
    """Yield hints for classes that match no device of the cluster, and for drivers that published before."""
    snapshot = trial.snapshot
    publishing = {each.spec.driver for each in snapshot.all(ResourceSlice)}
    published = any(each.spec.devices for each in snapshot.all(ResourceSlice))
    for request, _, body in trial.unserved(refusal):
        found = snapshot.classes.get(body.device_class_name)
        if found is None:
            continue
        if not published:
            yield Hint(HintKind.NO_DRIVER, {"request": request.request})
            continue
        if trial.find_device(found) is not None:
            continue
        selectors = expressions_of(found.spec.selectors)
        results = (result for claim in snapshot.all(ResourceClaim) for result in claim.allocation_results)
        former = sorted({(each.driver, each.pool) for each in results if each.driver not in publishing})
        for driver, pool in [each for each in former if any(each[0] in text for text in selectors)][:1]:
            yield Hint(HintKind.CHECK_DRIVER, {"driver": driver, "node": pool})
        if not any(driver in text for driver in publishing for text in selectors):
            yield Hint(HintKind.INSTALL_DRIVER, {"device_class": body.device_class_name})


# -- volumes and templates


def _unbound_text(cluster_state: ClusterState, pod: Pod) -> str:
    """Name the unbound volume claims of a pod, and what each needs."""
    texts = []
    for used in volume_claims(pod):
        claim = cluster_state.objects.find(PersistentVolumeClaim, pod.metadata.namespace, used.name)
        if claim is not None and not claim.bound:
            texts.append(f'bind PersistentVolumeClaim "{used.name}": {_volume_source(cluster_state, claim)}')
    return "; ".join(texts) or "bind the volume claims of the pod"


def _volume_source(cluster_state: ClusterState, claim: PersistentVolumeClaim) -> str:
    """Describe where the volume of an unbound claim should come from."""
    name, volume = claim.storage_class, claim.spec.volume_name
    if volume:
        found = cluster_state.objects.find(PersistentVolume, "", volume)
        return f'volume "{volume}" {"is not bound to it" if found is not None else "does not exist"}'
    if not name:
        return "it has no storage class, and no PersistentVolume is bound to it"
    if cluster_state.objects.find(StorageClass, "", name) is None:
        return f'StorageClass "{name}" does not exist{_near(cluster_state, StorageClass, name)}'
    return f'the provisioner of StorageClass "{name}" has not created a volume'


def _hint_template(cluster_state: ClusterState, pod: Pod) -> Hint:
    made = {status.name for status in pod.status.resource_claim_statuses}
    namespace = pod.metadata.namespace
    wanted = next(
        reference.resource_claim_template_name or ""
        for reference in pod.spec.resource_claims
        if reference.resource_claim_name is None and reference.name not in made
    )
    facts: dict[str, object] = {"template": wanted, "namespace": namespace}
    if cluster_state.objects.find(ResourceClaimTemplate, namespace, wanted) is not None:
        return Hint(HintKind.MAKE_CLAIM, facts)
    near = _near(cluster_state, ResourceClaimTemplate, wanted, namespace)
    return Hint(HintKind.CREATE_TEMPLATE, facts | {"near": near})


def _near(cluster_state: ClusterState, kind: type[Any], name: str, namespace: str = "") -> str:
    """List existing objects of a kind with similar names."""
    known = cluster_state.objects.all(kind)
    return near_text(name, [each.metadata.name for each in known if each.metadata.namespace == namespace])
