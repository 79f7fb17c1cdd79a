"""Fencing of writes in flight and recovery of interrupted bindings, from pods and claims alone.

Fencing: a scheduler that was killed, or that lost its lease, may have writes in flight that are applied
later. All of them are conditional on the resourceVersion of their object (`bind.py`), so that a new version
prevents them. An allocation is written only to a claim that has the finalizer; a release affects only claims
that are reserved for unscheduled pods (a pod that uses any other claim writes its reservation first); a
binding affects only unscheduled pods.

Recovery: an interrupted binding leaves at most a finalizer (needed by the next attempt), claims that are
allocated and reserved for an unscheduled pod (kept: the pod is scheduled to the node of its devices), and
charges in the status of such a pod. Nothing is released that an existing pod may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.forms import read_pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.scheduler.binding.writer import FINALIZER
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.result import FitError


@dataclass(frozen=True, slots=True)
class FenceTargets:
    """Claims and pods that need a new resourceVersion before pods are scheduled."""

    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] = ()

    def __len__(self) -> int:
        return len(self.claims) + len(self.pods)


def find_fence_targets(claims: Iterable[ResourceClaim], pods: Iterable[Pod]) -> FenceTargets:
    """Return the objects a previous leader may still be writing to; `pods` are all that have not terminated.

    Pods that are being deleted or have scheduling gates cannot be bound, but their claims can be written.
    """
    unbound = [pod for pod in pods if not pod.spec.node_name]
    uids = {pod.metadata.uid for pod in unbound}
    return FenceTargets(
        tuple(claim for claim in claims if _may_be_written(claim, uids)),
        tuple(
            pod
            for pod in unbound
            if pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates
        ),
    )


def _may_be_written(claim: ResourceClaim, unbound: set[str]) -> bool:
    if claim.status.allocation is None:
        return FINALIZER in claim.metadata.finalizers
    return any(consumer.uid in unbound for consumer in claim.status.reserved_for)


# -- recovery


@dataclass(frozen=True, slots=True)
class StaleReservation:
    """Claim with consumers that no longer exist; `deallocate` if it has no others."""

    claim: ResourceClaim
    consumers: tuple[ResourceClaimConsumerReference, ...]
    deallocate: bool


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Allocations to keep for pending pods, reservations to release, and charges to clear."""

    kept: tuple[tuple[ResourceClaim, Pod], ...] = ()
    released: tuple[StaleReservation, ...] = ()
    uncharged: tuple[Pod, ...] = ()


def plan_recovery(claims: Iterable[ResourceClaim], pods: Iterable[Pod]) -> RecoveryPlan:
    """Plan the recovery of interrupted bindings.

    Reservations of deleted pods are included, although the resource claim controller releases them: until it
    has, their devices count as allocated. Executed under the claim's resourceVersion, and only after the API
    confirmed that those pods are gone.
    """
    by_uid = {pod.metadata.uid: pod for pod in pods}
    kept: list[tuple[ResourceClaim, Pod]] = []
    released: list[StaleReservation] = []
    waiting: dict[str, set[str]] = {}  # UID of an unscheduled pod -> its allocated claims
    for claim in claims:
        if claim.status.allocation is None:
            continue
        gone = []
        for consumer in claim.status.reserved_for:
            if consumer.resource != "pods" or consumer.api_group:
                continue  # not a pod
            pod = by_uid.get(consumer.uid)
            if pod is None or pod.has_terminated:
                gone.append(consumer)
            elif not pod.spec.node_name:
                kept.append((claim, pod))
                waiting.setdefault(consumer.uid, set()).add(claim.metadata.name)
        if gone:
            released.append(StaleReservation(claim, tuple(gone), len(gone) == len(claim.status.reserved_for)))
    uncharged = tuple(
        pod
        for pod in by_uid.values()
        if not pod.spec.node_name
        and not pod.has_terminated
        and not {each.claim for each in read_pod(pod)} <= waiting.get(pod.metadata.uid, set())
    )
    return RecoveryPlan(tuple(kept), tuple(released), uncharged)


def find_releasable_claim(fit_error: FitError) -> ResourceClaim | None:
    """Return a claim of an unschedulable pod that can be released, because no other pod uses it.

    A claim for extended resources that an interrupted binding left is deleted, as in kube-scheduler. Another
    claim is deallocated. Either its devices are on nodes where the pod cannot run: the next attempt can
    choose others, as in kube-scheduler, which deallocates such a claim before it preempts. Or it is reserved
    for the pod by an interrupted binding, and the pod does not fit for other reasons.

    DIFF: kube-scheduler deallocates only the former, so that the devices of a pod whose binding was
    interrupted are unavailable while it is pending
    (test_an_unschedulable_pod_releases_its_reservations).
    """
    if fit_error.pod_info.stale_claim is not None:
        return fit_error.pod_info.stale_claim
    elsewhere = any(reason.message is DeviceMessage.CLAIM_ELSEWHERE for reason, _ in fit_error.reasons)
    pod = fit_error.pod_info.pod
    names = set(resolve_claim_names(pod).values())
    for claim in fit_error.pod_info.claims:
        if claim.status.allocation is None or claim.metadata.name not in names:
            continue
        consumers = claim.status.reserved_for
        if (elsewhere or consumers) and all(each.uid == pod.metadata.uid for each in consumers):
            return claim
    return None
