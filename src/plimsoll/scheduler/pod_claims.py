"""Checks of a pod's claims before any node is considered.

Each claim must exist, be owned by the pod if it was generated for it, not be terminating, not be assumed for
a pod in flight, have fewer than 256 consumers, and request existing, valid device classes. The checks and
their order are kube-scheduler's; see KEP-5517 (docs/spec/keps.md), "PreFilter".
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import read_device_class
from plimsoll.api.pod_claims import (
    claim_for_entry,
    device_requests,
    is_owned_by,
    is_owned_by_group,
    is_reserved_for,
    pod_group_of,
)
from plimsoll.api.resource import DeviceTaintRule, ResourceClaim
from plimsoll.scheduler.extended_resource_index import ExtendedResourceClaims, ExtendedResourceClasses
from plimsoll.scheduler.extended_resources import build_claim, without_claim
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule, SharedMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class ClaimMessage(ReasonMessage):
    """Messages of DynamicResources about a pod's claims."""

    IN_USE = "resourceclaim in use"
    PENDING = "resource claim {claim} is in the process of being allocated"
    MISSING = 'could not find ResourceClaim "{claim}"'
    NOT_CREATED = 'pod "{pod}": ResourceClaim not created yet'
    NOT_OWNED = "ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"
    NOT_OWNED_BY_EITHER = (
        "ResourceClaim {claim} was not created for Pod {pod} (neither Pod nor PodGroup {group} is the owner)"
    )
    DELETED = 'resourceclaim "{claim}" is being deleted'
    STALE = "cannot schedule extended resource claim"
    TAINTS_UNREADABLE = "the scheduler has no permission to list DeviceTaintRules"
    CLASS_MISSING = "request {request}: device class {device_class} does not exist"


_reason = partial(NodeReason.unresolvable, Rule.DEVICES)
#: Reason for a pod whose earlier binding left a claim for extended resources.
STALE_CLAIM = _reason(ClaimMessage.STALE)
#: Maximum number of consumers of a claim.
RESERVED_MAX = 256
#: Reasons that keep a pod out of the active queue until its claim changes.
PRE_ENQUEUE_REASONS = frozenset(
    {
        ClaimMessage.MISSING,
        ClaimMessage.NOT_CREATED,
        ClaimMessage.NOT_OWNED,
        ClaimMessage.NOT_OWNED_BY_EITHER,
        ClaimMessage.DELETED,
        ClaimMessage.PENDING,
    }
)


def read_pod_info(
    pod: Pod, snapshot: Snapshot, profile: SchedulerProfile | None = None, peers: Container[str] = ()
) -> PodInfo | NodeReason:
    """Return a pod with its claims, or the reason why it cannot be scheduled yet.

    A claim that is assumed for a pod in `peers` counts as allocated: both are scheduled together.
    """
    if not snapshot.gates.enabled("DynamicResourceAllocation"):
        return PodInfo(pod, (), snapshot.options, profile)
    claims: tuple[ResourceClaim, ...] = ()
    if pod.spec.resource_claims:
        found = find_claims(pod, snapshot)
        if isinstance(found, NodeReason):
            return found
        claims = tuple(_with_allocation_of(peers, claim, snapshot) for claim in found) if peers else found
    for claim in claims:
        problem = _in_use(claim, pod, snapshot) or _not_allocatable(claim, snapshot)
        if problem is not None:
            return problem
    if not snapshot.gates.enabled("DRAExtendedResource"):
        return PodInfo(pod, claims, snapshot.options, profile)
    return _read_extended_resources(pod, claims, snapshot, profile)


def _read_extended_resources(
    pod: Pod, claims: tuple[ResourceClaim, ...], snapshot: Snapshot, profile: SchedulerProfile | None
) -> PodInfo | NodeReason:
    """Return a pod with its claims and the one for its extended resources that device classes serve."""
    stale_claim = snapshot.index(ExtendedResourceClaims).find(pod)
    classes = snapshot.index(ExtendedResourceClasses).serving(pod)
    if not classes:
        unclaimed = without_claim(pod)
        return PodInfo(unclaimed, claims, snapshot.options, profile, stored=pod, stale_claim=stale_claim)
    claimed, claim = build_claim(pod, classes)
    if claim is not None:
        if (problem := _not_allocatable(claim, snapshot)) is not None:
            return problem
        claims = (*claims, claim)
    return PodInfo(
        claimed,
        claims,
        snapshot.options,
        profile,
        stored=pod,
        extended_classes=classes,
        stale_claim=stale_claim,
    )


def find_claims(pod: Pod, snapshot: Snapshot) -> tuple[ResourceClaim, ...] | NodeReason:
    """Return the distinct claims of a pod, or the reason for the first that is missing or not owned by it.

    A pod for which this returns a reason is not queued (kube-scheduler's PreEnqueue).
    """
    found: dict[str, ResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        name, generated, known = claim_for_entry(pod, entry)
        if not known:
            return _reason(ClaimMessage.NOT_CREATED, pod=pod.metadata.name)
        if not name:
            continue  # the claim controller decided that no claim is needed
        claim = snapshot.claim(pod.metadata.namespace, name)
        if claim is None:
            return _reason(ClaimMessage.MISSING, claim=name)
        if claim.metadata.deletion_timestamp is not None:
            return _reason(ClaimMessage.DELETED, claim=name)
        if generated and not is_owned_by(claim, pod):
            in_group = snapshot.gates.enabled("DRAWorkloadResourceClaims")
            if not (in_group and is_owned_by_group(claim, pod)):
                group = pod_group_of(pod) if in_group else ""
                return _reason(
                    ClaimMessage.NOT_OWNED_BY_EITHER if group else ClaimMessage.NOT_OWNED,
                    claim=claim.metadata.full_name,
                    pod=pod.metadata.full_name,
                    group=group,
                )
        found[name] = claim
    return tuple(found.values())


def _with_allocation_of(peers: Container[str], claim: ResourceClaim, snapshot: Snapshot) -> ResourceClaim:
    """Return a claim with the allocation that is assumed for one of the peers, if there is one."""
    if (
        claim.status.allocation is not None
        or snapshot.allocations.assumed_by(claim.metadata.uid) not in peers
    ):
        return claim
    allocation = snapshot.allocations.assumed(claim.metadata.uid)
    return replace(claim, status=replace(claim.status, allocation=allocation))


def uses_devices(pod: Pod) -> bool:
    """Return whether a pod may need devices: it has claims, or resources that a DeviceClass may serve."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return bool(pod.spec.resource_claims) or any(
        "/" in name for container in containers for name in container.resources.requests
    )


def _in_use(claim: ResourceClaim, pod: Pod, snapshot: Snapshot) -> NodeReason | None:
    if claim.status.allocation is None:
        if snapshot.allocations.assumed(claim.metadata.uid) is not None:
            return _reason(ClaimMessage.PENDING, claim=claim.metadata.full_name)
        return None
    if len(claim.status.reserved_for) >= RESERVED_MAX and not is_reserved_for(claim, pod):
        return _reason(ClaimMessage.IN_USE)
    return None


def _not_allocatable(claim: ResourceClaim, snapshot: Snapshot) -> NodeReason | None:
    if claim.status.allocation is not None:
        return None
    if DeviceTaintRule in snapshot.unreadable:
        return _reason(ClaimMessage.TAINTS_UNREADABLE)
    for request, body in device_requests(claim):
        name = body.device_class_name
        found = snapshot.classes.get(name)
        if found is None:
            return _reason(ClaimMessage.CLASS_MISSING, request=request, device_class=name)
        if snapshot.profile.annotations and (problem := read_device_class(found).problem):
            return _reason(SharedMessage.TEXT, text=f"request {request}: {problem}")
    return None
