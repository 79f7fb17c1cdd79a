"""Release of claims: reservations, deallocation and deletion when pods are done.

As in kube-controller-manager's resource claim controller:

* An entry of `status.reservedFor` is removed when its pod is gone, was replaced, has terminated, or was
  deleted before it was scheduled, or when its PodGroup is gone or was replaced; entries of other kinds stay.
* When the last entry is removed, so is the allocation, and then the finalizer that protects it.
* A claim that is being deleted and is not reserved loses its allocation and the finalizer.
* A claim created for a pod that is done is deleted as soon as it is not reserved.

A claim that was never reserved keeps its allocation: it may be reserved later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import is_group, owner_pod
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.api.scheduling import PodGroup
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.controllers.actions import Action, ActionPlan, DeleteAction, PatchAction
from plimsoll.controllers.pod_utils import is_done, is_pod

#: Finalizer of allocated claims.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: Seconds for which a finalizer without an allocation is kept: the scheduler writes it just before the
#: allocation.
SETTLED_AFTER = 60.0


def find_uncertain_consumers(
    claim: ResourceClaim, pods: Mapping[str, Pod], deleted: frozenset[str]
) -> list[str]:
    """Return the consumers that only the API can resolve: the cache may lag behind the claim."""
    return [
        consumer.name
        for consumer in claim.status.reserved_for
        if is_pod(consumer) and consumer.uid not in deleted and not _is_cached(consumer, pods)
    ]


def find_uncertain_groups(
    claim: ResourceClaim, groups: Mapping[str, PodGroup], deleted: frozenset[str]
) -> list[str]:
    """Return the PodGroups among the consumers that only the API can resolve."""
    return [
        consumer.name
        for consumer in claim.status.reserved_for
        if is_group(consumer) and consumer.uid not in deleted and consumer.name not in groups
    ]


def _is_cached(consumer: ResourceClaimConsumerReference, pods: Mapping[str, Pod]) -> bool:
    pod = pods.get(consumer.name)
    return pod is not None and pod.metadata.uid == consumer.uid


def plan_claim(
    claim: ResourceClaim,
    pods: Mapping[str, Pod],
    live: Mapping[str, str] | None = None,
    deleted: frozenset[str] = frozenset(),
    *,
    live_groups: Mapping[str, str] | None = None,
    unchanged_for: float = 0.0,
) -> ActionPlan:
    """Plan for a claim.

    `pods` are the cached pods of its namespace by name; `live` maps each uncertain consumer to the UID that
    the API has under its name, "" for none; `deleted` are UIDs of pods known to be deleted; `unchanged_for`
    is the number of seconds since the claim last changed. `live_groups` maps the PodGroups among the
    consumers to their UIDs, "" for those that are gone; None if PodGroups are not served.

    DIFF: a finalizer that was left without an allocation is removed after a minute
    (test_a_leftover_finalizer_is_removed_from_an_idle_claim); upstream, if it stops between the two writes,
    leaves it until the claim is deleted.
    """
    reserved = claim.status.reserved_for
    kept = tuple(
        consumer
        for consumer in reserved
        if (
            _keeps_group(consumer, live_groups, deleted)
            if is_group(consumer)
            else _keeps_reservation(consumer, pods, live or {}, deleted)
        )
    )
    protected = FINALIZER in claim.metadata.finalizers
    deleting = claim.metadata.deletion_timestamp is not None
    allocated = claim.status.allocation is not None
    actions: list[Action] = []
    requeue_after: float | None = None
    if len(kept) < len(reserved):
        deallocate = not kept and protected and allocated
        actions.append(_patch_status(claim, kept, deallocate=deallocate))
        if protected and (deallocate or not allocated):
            actions.append(_remove_finalizer(claim, chained=True))
    elif protected and not kept:
        if deleting and allocated:
            actions.append(_patch_status(claim, kept, deallocate=True))
            actions.append(_remove_finalizer(claim, chained=True))
        elif deleting or (not allocated and unchanged_for >= SETTLED_AFTER):
            actions.append(_remove_finalizer(claim))
        elif not allocated:
            requeue_after = SETTLED_AFTER - unchanged_for
    if not kept and not deleting and _owner_is_done(claim, pods):
        metadata = claim.metadata
        actions.append(DeleteAction(RESOURCE_CLAIMS, metadata.name, metadata.namespace, uid=metadata.uid))
    return ActionPlan(tuple(actions), requeue_after=requeue_after)


def _keeps_reservation(
    consumer: ResourceClaimConsumerReference,
    pods: Mapping[str, Pod],
    live: Mapping[str, str],
    deleted: frozenset[str],
) -> bool:
    if not is_pod(consumer):
        return True
    if consumer.uid in deleted:
        return False
    if _is_cached(consumer, pods):
        return not is_done(pods[consumer.name])
    return live.get(consumer.name) == consumer.uid


def _keeps_group(
    consumer: ResourceClaimConsumerReference, live: Mapping[str, str] | None, deleted: frozenset[str]
) -> bool:
    return live is None or (consumer.uid not in deleted and live.get(consumer.name) == consumer.uid)


def _owner_is_done(claim: ResourceClaim, pods: Mapping[str, Pod]) -> bool:
    """Return whether the pod a claim was created for is done; absent pods are left to the garbage
    collector.
    """
    owner = owner_pod(claim)
    if owner is None:
        return False
    name, uid = owner
    pod = pods.get(name)
    return pod is not None and (pod.metadata.uid != uid or is_done(pod))


def _patch_status(
    claim: ResourceClaim, kept: tuple[ResourceClaimConsumerReference, ...], *, deallocate: bool
) -> PatchAction:
    status: dict[str, Any] = {"reservedFor": [codec.to_tree(consumer) for consumer in kept] or None}
    if deallocate:
        status["allocation"] = None
    return PatchAction(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status},
        namespace=claim.metadata.namespace,
        subresource="status",
    )


def _remove_finalizer(claim: ResourceClaim, *, chained: bool = False) -> PatchAction:
    kept = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
    metadata: dict[str, Any] = {"finalizers": kept or None}
    if not chained:
        metadata["resourceVersion"] = claim.metadata.resource_version
    return PatchAction(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {"metadata": metadata},
        namespace=claim.metadata.namespace,
        chained=chained,
    )
