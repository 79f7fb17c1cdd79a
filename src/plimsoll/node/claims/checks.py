"""Checks of a pod's claims before any driver is called.

The order and messages are the kubelet's: created yet, exists, created for this pod, reserved for it,
allocated. Pure. Guarantees that nothing has changed if a check fails, so that a pod whose claims cannot be
prepared can be deleted without a driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.pod_claims import (
    claim_for_entry,
    is_generated_for,
    is_reserved_for,
    pod_group_of,
)
from plimsoll.api.resource import (
    ALL_NODE_OPERATIONS,
    NODE_PREPARE,
    NODE_UNPREPARE,
    OPTIONAL_NODE_OPERATIONS,
    ResourceClaim,
)
from plimsoll.node.claim_info import AllocatedDevice, ClaimRef
from plimsoll.node.claims.faults import (
    NOT_ALLOCATED,
    NOT_CREATED,
    NOT_FOUND,
    NOT_RESERVED,
    UNSUPPORTED,
    WRONG_POD,
    ClaimFault,
)

#: Pod-local name of the claim that was created for extended resources; it has none.
EXTENDED = ""


@dataclass(frozen=True)
class ClaimToPrepare:
    """Claim to be prepared: its drivers, and the devices each may return.

    `exclusive` are the devices that no other claim may hold at the same time: all but those of admin access.
    `prepare_skipped` and `unprepare_skipped` are the drivers that need no such call: all of their devices in
    the claim skip it. `consumers` are the UIDs of the pods and groups for which the claim is reserved.
    """

    ref: ClaimRef
    drivers: Mapping[str, frozenset[AllocatedDevice]]
    exclusive: Mapping[str, frozenset[AllocatedDevice]]
    prepare_skipped: frozenset[str] = frozenset()
    unprepare_skipped: frozenset[str] = frozenset()
    consumers: frozenset[str] = frozenset()


def read_claims(
    pod: Pod, claims: Mapping[str, ResourceClaim], *, optional_operations: bool = False
) -> tuple[tuple[ClaimToPrepare, ...], tuple[ClaimFault, ...]]:
    """Return the claims of a pod, each once, and their faults; `claims` is keyed by pod-local name.

    `optional_operations` is the feature gate DRAOptionalNodeOperations.
    """
    wanted: dict[str, ClaimToPrepare] = {}
    faults: list[ClaimFault] = []
    for own, name, generated in named_claims(pod):
        if isinstance(name, ClaimFault):
            faults.append(name)
        elif name is not None:
            read = _read_claim(pod, claims.get(own), name, generated)
            if isinstance(read, ClaimFault):
                faults.append(read)
            elif not optional_operations and (read.prepare_skipped or read.unprepare_skipped):
                text = f"ResourceClaim {name}: {OPTIONAL_NODE_OPERATIONS} feature gate is disabled on kubelet"
                faults.append(ClaimFault(name, UNSUPPORTED, text))
            else:
                wanted[read.ref.uid] = read
    return tuple(wanted.values()), tuple(faults)


def named_claims(pod: Pod) -> Iterator[tuple[str, str | ClaimFault | None, bool]]:
    """Yield the pod-local names of a pod's claims, the claim names (None: no claim is needed), and whether
    they were generated; the claim created for extended resources comes last.
    """
    for reference in pod.spec.resource_claims:
        yield reference.name, *_resolve(pod, reference)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        yield EXTENDED, extended.resource_claim_name, False


def _resolve(pod: Pod, reference: PodResourceClaim) -> tuple[str | ClaimFault | None, bool]:
    name, generated, known = claim_for_entry(pod, reference)
    if known:
        return name, generated
    meta = pod.metadata
    if reference.resource_claim_template_name is None:
        text = (
            f'pod "{meta.full_name}", spec.resourceClaim "{reference.name}": '
            "none of the supported fields are set"
        )
        return ClaimFault(reference.name, UNSUPPORTED, text), False
    text = f'pod "{meta.full_name}": ResourceClaim not created yet'
    return ClaimFault(reference.name, NOT_CREATED, text), False


def _read_claim(
    pod: Pod, claim: ResourceClaim | None, name: str, generated: bool
) -> ClaimToPrepare | ClaimFault:
    if claim is None or claim.metadata.name != name:
        text = f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
        return ClaimFault(name, NOT_FOUND, text)
    if problem := _not_for(pod, claim, generated):
        return ClaimFault(name, WRONG_POD, problem)
    meta, uid = pod.metadata, claim.metadata.uid
    if not is_reserved_for(claim, pod):
        text = f"pod {meta.name} ({meta.uid}) is not allowed to use ResourceClaim {name} ({uid})"
        return ClaimFault(name, NOT_RESERVED, text)
    if claim.status.allocation is None:
        return ClaimFault(name, NOT_ALLOCATED, f"ResourceClaim {name}: not allocated")
    return claim_to_prepare(claim)


def claim_to_prepare(claim: ResourceClaim) -> ClaimToPrepare:
    """Return what the drivers of an allocated claim are to prepare, results with admin access included."""
    drivers: dict[str, set[AllocatedDevice]] = {}
    exclusive: dict[str, set[AllocatedDevice]] = {}
    needed: dict[str, set[str]] = {NODE_PREPARE: set(), NODE_UNPREPARE: set()}
    for result in claim.allocation_results:
        for operation, callers in needed.items():
            if not {operation, ALL_NODE_OPERATIONS} & set(result.skip_node_operations):
                callers.add(result.driver)
        device = AllocatedDevice(result.pool, result.device, result.share_id)
        drivers.setdefault(result.driver, set()).add(device)
        own = exclusive.setdefault(result.driver, set())
        if not result.admin_access:
            own.add(device)
    ref = ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
    return ClaimToPrepare(
        ref,
        _frozen(drivers),
        _frozen(exclusive),
        prepare_skipped=frozenset(drivers) - needed[NODE_PREPARE],
        unprepare_skipped=frozenset(drivers) - needed[NODE_UNPREPARE],
        consumers=frozenset(consumer.uid for consumer in claim.status.reserved_for),
    )


def _frozen(devices: Mapping[str, set[AllocatedDevice]]) -> dict[str, frozenset[AllocatedDevice]]:
    return {driver: frozenset(devices[driver]) for driver in sorted(devices)}


def _not_for(pod: Pod, claim: ResourceClaim, generated: bool) -> str:
    """Return why a claim was not created for this pod or its pod group, or ""."""
    mine = pod.metadata.full_name
    theirs = claim.metadata.full_name
    if claim.metadata.namespace != pod.metadata.namespace:
        return f"ResourceClaim {theirs} is not in the same namespace as Pod {mine}"
    if not generated or is_generated_for(claim, pod):
        return ""
    group = pod_group_of(pod)
    if not group:
        return f"ResourceClaim {theirs} was not created for Pod {mine} (Pod is not owner)"
    return (
        f"ResourceClaim {theirs} was not created for Pod {mine} "
        f"(neither Pod nor PodGroup {group} is the owner)"
    )
