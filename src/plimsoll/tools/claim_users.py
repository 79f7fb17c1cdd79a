"""Lookups shared by several explanations: pods that use a claim, and claims that hold a device."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.allocator import DeviceId
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.pod_utils import claim_names
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects


def holders_of(cluster_state: ClusterState, devices: Collection[DeviceId]) -> dict[DeviceId, ResourceClaim]:
    """Return the first claim that holds each of the devices, unused claims first."""
    found: dict[DeviceId, ResourceClaim] = {}
    unused = {claim.metadata.key for claim in unused_claims(cluster_state)}
    claims = cluster_state.objects.all(ResourceClaim)
    for claim in sorted(claims, key=lambda claim: claim.metadata.key not in unused):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            device = DeviceId.of(result)
            if device in devices and not result.admin_access:
                found.setdefault(device, claim)
        if len(found) == len(devices):
            break
    return found


def pods_using(
    cluster_state: ClusterState, namespace: str, claim: str, but: Pod | None = None
) -> tuple[str, ...]:
    """Return the names of the pods a claim is reserved for or that use it on a node, except `but`."""
    found = cluster_state.objects.find(ResourceClaim, namespace, claim)
    names = {user.name for user in found.status.reserved_for} if found is not None else set()
    names |= {pod.metadata.name for pod in users_of(cluster_state, namespace, claim) if pod.spec.node_name}
    if but is not None:
        names.discard(but.metadata.name)
    return tuple(f"{namespace}/{name}" for name in sorted(names))


def unused_claims(cluster_state: ClusterState) -> list[ResourceClaim]:
    """Return the allocated claims that no existing pod uses or is reserved for, by name.

    Pods that have terminated do not count. Consumers of other kinds do: whether they exist is unknown.
    """
    pods = cluster_state.pods
    alive = {pod.metadata.uid for pod in pods}
    used = {
        (pod.metadata.namespace, name)
        for pod in pods
        if uses_claims(pod)
        for name in resolve_claim_names(pod).values()
    }
    found = [
        claim
        for claim in cluster_state.objects.all(ResourceClaim)
        if claim.status.allocation is not None
        and claim.metadata.key not in used
        and not any(user.resource != "pods" or user.uid in alive for user in claim.status.reserved_for)
    ]
    return sorted(found, key=lambda claim: claim.metadata.key)


def claims_of(objects: ClusterObjects, pod: Pod) -> list[ResourceClaim]:
    """Return the existing claims of a pod, each once."""
    found = (objects.find(ResourceClaim, pod.metadata.namespace, name) for name in claim_names(pod))
    return [claim for claim in found if claim is not None]


def users_of(cluster_state: ClusterState, namespace: str, claim: str) -> list[Pod]:
    """Return the pods that reference a claim, or for which it was generated, and that have not terminated."""
    return [
        pod
        for pod in cluster_state.pods
        if pod.metadata.namespace == namespace
        and uses_claims(pod)
        and claim in resolve_claim_names(pod).values()
    ]
