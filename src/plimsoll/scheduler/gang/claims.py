"""Claims that are reserved for a pod group instead of its pods (DRAWorkloadResourceClaims)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import claim_for_entry, group_consumer, is_group_entry
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.group_members import GroupMembers
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def find_group_consumers(
    group: PodGroup, placements: Iterable[Placement], gates: Gates
) -> Mapping[str, ResourceClaimConsumerReference]:
    """Return the consumer of each claim that pods share with their group, by the claim's UID."""
    found: dict[str, ResourceClaimConsumerReference] = {}
    if not group.spec.resource_claims or not gates.enabled("DRAWorkloadResourceClaims"):
        return found
    for placement in placements:
        pod = placement.pod_info.pod
        names = {
            claim_for_entry(pod, entry).name
            for entry in pod.spec.resource_claims
            if is_group_entry(entry, group)
        }
        for claim in placement.pod_info.claims:
            if claim.metadata.name in names:
                found[claim.metadata.uid] = group_consumer(group)
    return found


def find_reserved_claims(group: PodGroup, snapshot: Snapshot) -> Iterator[ResourceClaim]:
    """Yield the allocated claims that are reserved for a group of which no pod is scheduled.

    An attempt that was bound in part, or not at all, left them; other devices may suit the next one.
    """
    if snapshot.index(GroupMembers).of(group.metadata.key):
        return
    names = {each.resource_claim_name for each in group.spec.resource_claims}
    names |= {each.resource_claim_name for each in group.status.resource_claim_statuses}
    for name in sorted(filter(None, names)):
        claim = snapshot.claim(group.metadata.namespace, name)
        if claim is None or claim.status.allocation is None:
            continue
        if any(consumer.uid == group.metadata.uid for consumer in claim.status.reserved_for):
            yield claim
