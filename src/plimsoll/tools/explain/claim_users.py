"""Lookups shared by several explanations: pods that use a claim, and claims that hold a device."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.allocator import DeviceId
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.tools.cluster_state import ClusterState


def holders_of(cluster_state: ClusterState, devices: Collection[DeviceId]) -> dict[DeviceId, ResourceClaim]:
    """Return the first claim that holds each of the devices."""
    found: dict[DeviceId, ResourceClaim] = {}
    for claim in cluster_state.objects.all(ResourceClaim):
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


def users_of(cluster_state: ClusterState, namespace: str, claim: str) -> list[Pod]:
    """Return the pods that reference a claim, or for which it was generated, and that have not terminated."""
    return [
        pod
        for pod in cluster_state.pods
        if pod.metadata.namespace == namespace
        and pod.spec.resource_claims
        and claim in resolve_claim_names(pod).values()
    ]
