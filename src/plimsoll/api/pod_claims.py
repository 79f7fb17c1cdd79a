"""ResourceClaims of a pod: their names, owner and reservations.

KEP-5004: for the extended resources of a pod that device classes serve, the scheduler creates one claim,
which the pod owns and names in `status.extendedResourceClaimStatus`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.meta import OwnerReference
from plimsoll.api.resource import (
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import PersistentVolumeClaim

_SCHEDULING, _GROUPS = "scheduling.k8s.io", "podgroups"
#: Annotation, "true" on the claim that the scheduler creates for the extended resources of a pod.
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
#: Prefix of the extended resource that every DeviceClass has implicitly.
DEVICE_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"


class ClaimName(NamedTuple):
    """Claim of an entry of `spec.resourceClaims`."""

    name: str | None  #: None: not created yet, or not needed
    generated: bool = False  #: created from a template; its owner must be checked
    known: bool = True  #: whether the pod's spec or status names the claim


def claim_for_entry(pod: Pod, entry: PodResourceClaim) -> ClaimName:
    """Resolve an entry: a claim named in the spec, or recorded in the pod's status when it was created."""
    if entry.resource_claim_name is not None:
        return ClaimName(entry.resource_claim_name)
    if entry.resource_claim_template_name is not None:
        for status in pod.status.resource_claim_statuses:
            if status.name == entry.name:
                return ClaimName(status.resource_claim_name, generated=True)
        return ClaimName(None, generated=True, known=False)
    return ClaimName(None, known=False)


def resolve_claim_names(pod: Pod) -> dict[str, str]:
    """Map the pod claim names to ResourceClaim names; claims not generated yet are omitted.

    The claim for extended resources has no name in the pod and is listed under the empty name.
    """
    names = {}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or claim_for_entry(pod, entry).name
        if name:
            names[entry.name] = name
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        names[""] = extended.resource_claim_name
    return names


def uses_claims(pod: Pod) -> bool:
    """Return whether a pod has claims: in its spec, or for its extended resources."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def find_requesting_pod(claim: ResourceClaim) -> OwnerReference | None:
    """Return the pod whose extended resources a claim was created for."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    is_pod = owner is not None and (owner.api_version, owner.kind) == ("v1", "Pod")
    return owner if is_pod else None


def owner_pod(claim: ResourceClaim) -> tuple[str, str] | None:
    """Return name and UID of the pod that a claim was created for, or None."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.api_version == "v1" and owner.kind == "Pod":
            return owner.name, owner.uid
    return None


def is_owned_by(claim: ResourceClaim | PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether a pod is the controller of a claim."""
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owners)


def pod_group_of(pod: Pod) -> str:
    """Return the name of a pod's PodGroup, or ""."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def is_owned_by_group(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the PodGroup of a pod is the controller of a claim."""
    group = pod_group_of(pod)
    return bool(group) and any(
        owner.controller
        and owner.name == group
        and owner.kind == "PodGroup"
        and owner.api_version.startswith(f"{_SCHEDULING}/")
        for owner in claim.metadata.owner_references
    )


def is_generated_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a pod may use a generated claim: it or its PodGroup is the controller."""
    return is_owned_by(claim, pod) or is_owned_by_group(claim, pod)


def is_group_entry(entry: PodResourceClaim, group: PodGroup | None) -> bool:
    """Return whether an entry of a pod refers to a claim of its PodGroup: name and source are the same."""
    return group is not None and any(
        (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
        == (each.name, each.resource_claim_name, each.resource_claim_template_name)
        for each in group.spec.resource_claims
    )


def group_consumer(group: PodGroup) -> ResourceClaimConsumerReference:
    """Return the `reservedFor` entry of a PodGroup."""
    return ResourceClaimConsumerReference(
        api_group=_SCHEDULING, resource=_GROUPS, name=group.metadata.name, uid=group.metadata.uid
    )


def is_group(consumer: ResourceClaimConsumerReference) -> bool:
    """Return whether a claim is reserved for a PodGroup."""
    return (consumer.api_group, consumer.resource) == (_SCHEDULING, _GROUPS)


def owner_group(claim: ResourceClaim) -> tuple[str, str] | None:
    """Return name and UID of the PodGroup that a claim was created for, or None."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.kind == "PodGroup" and owner.api_version.startswith(f"{_SCHEDULING}/"):
            return owner.name, owner.uid
    return None


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim is reserved for a pod or its PodGroup."""
    uid, group = pod.metadata.uid, pod_group_of(pod)
    for consumer in claim.status.reserved_for:
        if consumer.uid == uid or (group and is_group(consumer) and consumer.name == group):
            return True
    return False


def device_requests(claim: ResourceClaim) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    """Yield the requests of a claim by name, subrequests as `request/subrequest`."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly
        for alternative in request.first_available:
            yield f"{request.name}/{alternative.name}", alternative
