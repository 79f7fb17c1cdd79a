"""Objects that a previous leader may still be writing to.

A scheduler that was killed, or that lost its lease, may have writes in flight that are applied later. All of
them are conditional on the resourceVersion of their object (`bind.py`), so that a new version prevents them.
An allocation is written only to a claim that has the finalizer; a release affects only claims that are
reserved for unscheduled pods (a pod that uses any other claim writes its reservation first); a binding
affects only unscheduled pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.binding.writer import FINALIZER


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
