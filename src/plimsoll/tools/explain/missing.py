"""Fixes for problems of the pod itself: scheduling gates, missing claims and classes, unbound volumes."""

from __future__ import annotations

from difflib import get_close_matches

from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.scheduler.filters.volume_binding import VolumeBindingMessage
from plimsoll.scheduler.filters.volume_zone import VolumeZoneMessage
from plimsoll.scheduler.filters.volumes import VolumeMessage
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.fixes.fix import Fix, FixStep
from plimsoll.tools.explain.text import FixKind

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
}


def fix_gates(pod: Pod) -> Fix:
    gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
    return Fix((FixStep(FixKind.REMOVE_GATES, {"gates": gates}, gates),), proven=False)


def fix_scheduler(cluster_state: ClusterState, pod: Pod) -> Fix:
    """Propose another schedulerName: those that bound pods use."""
    known = {other.spec.scheduler_name for other in cluster_state.pods if other.spec.node_name} - {""}
    names = tuple(sorted(known)) or ("default-scheduler",)
    return Fix((FixStep(FixKind.NAME_SCHEDULER, {"names": names}, pod.spec.scheduler_name),))


def fix_missing(cluster_state: ClusterState, pod: Pod, reason: NodeReason) -> Fix | None:
    """Return the fix for a reason that applies to all nodes."""
    step = _step(cluster_state, pod, reason)
    return None if step is None else Fix((step,))


def _step(cluster_state: ClusterState, pod: Pod, reason: NodeReason) -> FixStep | None:
    facts, namespace = reason.facts, pod.metadata.namespace
    if reason.message is VolumeBindingMessage.CLAIM_UNBOUND:
        return FixStep(FixKind.VOLUME, {"text": _unbound_text(cluster_state, pod)})
    if reason.message in _VOLUMES:
        return FixStep(FixKind.VOLUME, {"text": _VOLUMES[reason.message].format_map(facts)})
    match reason.message:
        case ClaimMessage.NOT_CREATED:
            return _template(cluster_state, pod)
        case ClaimMessage.MISSING:
            name = str(facts["claim"])
            near = near_text(name, _names(cluster_state, ResourceClaim, namespace))
            return FixStep(FixKind.CREATE_CLAIM, {"claim": name, "namespace": namespace, "near": near}, name)
        case ClaimMessage.DELETED:
            claim = cluster_state.objects.find(ResourceClaim, namespace, str(facts["claim"]))
            users = tuple(f"pod {user.name}" for user in claim.status.reserved_for) if claim else ()
            held = users or (tuple(claim.metadata.finalizers) if claim else ()) or ("no pod",)
            return FixStep(FixKind.WAIT_DELETION, {"claim": facts["claim"], "why": held})
        case ClaimMessage.NOT_OWNED:
            name = str(facts["claim"]).rpartition("/")[2]
            claim = cluster_state.objects.find(ResourceClaim, namespace, name)
            owners = claim.metadata.owner_references if claim is not None else ()
            owner = ", ".join(f"{each.kind} {each.name} ({each.uid})" for each in owners) or "no owner"
            return FixStep(FixKind.RENAME_OWNER, {"claim": facts["claim"], "owner": owner})
        case ClaimMessage.CLASS_MISSING:
            name = str(facts["device_class"])
            known = [each.metadata.name for each in cluster_state.objects.all(DeviceClass)]
            nearest = nearest_name(name, known)
            if nearest:
                return FixStep(FixKind.USE_CLASS, {"device_class": name, "near": nearest}, name)
            return FixStep(FixKind.CREATE_CLASS, {"device_class": name, "near": _all_text(known)}, name)
    return None


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
    known = [each.metadata.name for each in cluster_state.objects.all(StorageClass)]
    if name not in known:
        near = nearest_name(name, known)
        return f'StorageClass "{name}" does not exist' + (f' (similar: "{near}")' if near else "")
    return f'the provisioner of StorageClass "{name}" has not created a volume'


def _template(cluster_state: ClusterState, pod: Pod) -> FixStep:
    made = {status.name for status in pod.status.resource_claim_statuses}
    namespace = pod.metadata.namespace
    wanted = next(
        reference.resource_claim_template_name or ""
        for reference in pod.spec.resource_claims
        if reference.resource_claim_name is None and reference.name not in made
    )
    facts: dict[str, object] = {"template": wanted, "namespace": namespace}
    if cluster_state.objects.find(ResourceClaimTemplate, namespace, wanted) is not None:
        return FixStep(FixKind.MAKE_CLAIM, facts)
    near = near_text(wanted, _names(cluster_state, ResourceClaimTemplate, namespace))
    return FixStep(FixKind.CREATE_TEMPLATE, facts | {"near": near}, wanted)


def _names(
    cluster_state: ClusterState, kind: type[ResourceClaim | ResourceClaimTemplate], namespace: str
) -> list[str]:
    return [
        each.metadata.name for each in cluster_state.objects.all(kind) if each.metadata.namespace == namespace
    ]


def nearest_name(name: str, known: list[str]) -> str:
    """Return the existing name that is most similar, regardless of case; "" if none is."""
    plain = {each.lower(): each for each in sorted(known)}
    lower = name.lower()
    close = get_close_matches(lower, list(plain), 1)
    if close:
        return plain[close[0]]
    # A part of a name, such as gpu for gpu.example.com, if only one has it.
    parts = [each for each in plain if lower in each or each in lower]
    return plain[parts[0]] if len(parts) == 1 else ""


def near_text(name: str, known: list[str]) -> str:
    """List existing names that are similar."""
    near = get_close_matches(name, sorted(known), 3)
    return f" (similar: {', '.join(near)})" if near else ""


def _all_text(known: list[str]) -> str:
    return f" (existing: {', '.join(sorted(known))})" if 0 < len(known) <= 5 else ""
