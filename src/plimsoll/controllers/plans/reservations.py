"""Reservations of claims given back, and claims deallocated and deleted, when their pods are done.

Owns what is done for a claim (upstream's resource claim controller; document 000, "ResourceClaim"):

* an entry of `status.reservedFor` goes when its pod is gone, was replaced, has finished, or was deleted
  before it had a node; entries of other kinds stay;
* when the last entry goes, the allocation goes with it, and then the finalizer that protects it;
* a claim that is being deleted and is not reserved loses its allocation and the finalizer;
* a claim that was made for a pod which is done is deleted as soon as it is not reserved.

A claim that was never reserved keeps its allocation: whoever allocated it may reserve it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ClaimConsumer, ResourceClaim
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.controllers.actions import Action, Delete, Patch, Plan
from plimsoll.controllers.plans.pods import is_done, is_pod, owning_pod

#: Keeps a claim while it is allocated.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: How long a finalizer without an allocation is left alone: the scheduler writes one just before the other.
SETTLED_AFTER = 60.0


def find_doubtful(claim: ResourceClaim, pods: Mapping[str, Pod], deleted: frozenset[str]) -> list[str]:
    """The pods that only the API can tell about: the cache may lag behind the claim that names them."""
    return [
        consumer.name
        for consumer in claim.status.reserved_for
        if is_pod(consumer) and consumer.uid not in deleted and not _is_known(consumer, pods)
    ]


def _is_known(consumer: ClaimConsumer, pods: Mapping[str, Pod]) -> bool:
    pod = pods.get(consumer.name)
    return pod is not None and pod.metadata.uid == consumer.uid


def plan_claim(
    claim: ResourceClaim,
    pods: Mapping[str, Pod],
    live: Mapping[str, str] | None = None,
    deleted: frozenset[str] = frozenset(),
    *,
    quiet: float = 0.0,
) -> Plan:
    """What to do for a claim.

    `pods` are the cached ones of its namespace by name; `live` tells of each doubtful one the UID that the
    API has under its name, "" for none; `deleted` are UIDs of pods that were seen to go; `quiet` is for how
    many seconds nobody has changed the claim.

    DIFF: a finalizer that was left without an allocation goes after a minute
    (test_a_finalizer_left_behind_goes_when_the_claim_is_quiet); upstream, if it stops between the two writes,
    leaves it until the claim is deleted.
    """
    reserved = claim.status.reserved_for
    kept = tuple(consumer for consumer in reserved if _stays(consumer, pods, live or {}, deleted))
    protected = FINALIZER in claim.metadata.finalizers
    deleting = claim.metadata.deletion_timestamp is not None
    allocated = claim.status.allocation is not None
    actions: list[Action] = []
    again: float | None = None
    if len(kept) < len(reserved):
        deallocate = not kept and protected and allocated
        actions.append(_patch_status(claim, kept, deallocate=deallocate))
        if protected and (deallocate or not allocated):
            actions.append(_unprotect(claim, chained=True))
    elif protected and not kept:
        if deleting and allocated:
            actions.append(_patch_status(claim, kept, deallocate=True))
            actions.append(_unprotect(claim, chained=True))
        elif deleting or (not allocated and quiet >= SETTLED_AFTER):
            actions.append(_unprotect(claim))
        elif not allocated:
            again = SETTLED_AFTER - quiet
    if not kept and not deleting and _owner_is_done(claim, pods):
        metadata = claim.metadata
        actions.append(Delete(RESOURCE_CLAIMS, metadata.name, metadata.namespace, uid=metadata.uid))
    return Plan(tuple(actions), again=again)


def _stays(
    consumer: ClaimConsumer, pods: Mapping[str, Pod], live: Mapping[str, str], deleted: frozenset[str]
) -> bool:
    if not is_pod(consumer):
        return True
    if consumer.uid in deleted:
        return False
    if _is_known(consumer, pods):
        return not is_done(pods[consumer.name])
    return live.get(consumer.name) == consumer.uid


def _owner_is_done(claim: ResourceClaim, pods: Mapping[str, Pod]) -> bool:
    """Whether the pod a claim was made for is done; one that is gone is for the garbage collector."""
    owner = owning_pod(claim)
    if owner is None:
        return False
    name, uid = owner
    pod = pods.get(name)
    return pod is not None and (pod.metadata.uid != uid or is_done(pod))


def _patch_status(claim: ResourceClaim, kept: tuple[ClaimConsumer, ...], *, deallocate: bool) -> Patch:
    status: dict[str, Any] = {"reservedFor": [codec.to_tree(consumer) for consumer in kept] or None}
    if deallocate:
        status["allocation"] = None
    return Patch(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status},
        namespace=claim.metadata.namespace,
        subresource="status",
    )


def _unprotect(claim: ResourceClaim, *, chained: bool = False) -> Patch:
    kept = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
    metadata: dict[str, Any] = {"finalizers": kept or None}
    if not chained:
        metadata["resourceVersion"] = claim.metadata.resource_version
    return Patch(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {"metadata": metadata},
        namespace=claim.metadata.namespace,
        chained=chained,
    )
