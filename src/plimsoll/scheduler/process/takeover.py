"""Takeover by a new leader, before it schedules anything.

A scheduler that was killed, or that lost its lease, may have left writes in flight that are applied at any
later time, and the caches may lag behind what it wrote. `take_over` first lists pods and claims again, then
gives every object that the previous leader may still be writing to a new resourceVersion
(`scheduler/binding/recovery.py`): the response shows whether the write was applied, and if not, it never will
be. Only then may devices and capacity be given to other pods. If the previous leader released its lease, it
had waited for all its writes, and fencing is not needed. `recover_bindings` then releases what interrupted
bindings left behind.

DIFF: kube-scheduler does neither, and can allocate a device twice when a write of its predecessor is delayed
(test_a_delayed_write_of_the_previous_leader_is_refused).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.api.storage import PersistentVolumeClaim
from plimsoll.common.structured_log import log_event
from plimsoll.errors import ApiError
from plimsoll.scheduler.binding.recovery import StaleReservation, find_fence_targets, plan_recovery
from plimsoll.scheduler.binding.volumes import find_volume_targets
from plimsoll.scheduler.binding.writer import retry_until_answered
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.informers import SchedulerInformers

LOG = logging.getLogger("plimsoll.scheduler")

T = TypeVar("T", Pod, ResourceClaim, PersistentVolumeClaim)

#: Objects fenced concurrently.
_CONCURRENCY = 32


async def take_over(
    informers: SchedulerInformers,
    claims: Callable[[], Sequence[ResourceClaim]],
    writer: ApiWriter,
    is_responsible: Callable[[Pod], bool],
    on_claim: Callable[[ResourceClaim], None],
    *,
    find_volume_claims: Callable[[Pod], Sequence[PersistentVolumeClaim]] = lambda pod: (),
    on_volume_claim: Callable[[PersistentVolumeClaim], None] = lambda claim: None,
    refresh: bool = True,
    fence: bool = True,
) -> None:
    """Refresh the caches and fence the writes of the previous leader; waits as long as necessary.

    `refresh` is not needed if the caches were filled after the previous leader had ended.
    """
    if refresh:
        await informers.refresh_allocations()
    if not fence:
        return
    pods = [pod for pod in informers.pods() if is_responsible(pod)]
    targets, volume_claims = find_fence_targets(claims(), pods), find_volume_targets(pods, find_volume_claims)
    if not targets and not volume_claims:
        return

    def on_pod(old: Pod, new: Pod | None) -> None:
        if new is not None and new.spec.node_name:
            informers.on_pod_event(old, new)

    def on_fenced_claim(old: ResourceClaim, new: ResourceClaim | None) -> None:
        if new is not None:
            on_claim(new)

    def on_fenced_volume_claim(old: PersistentVolumeClaim, new: PersistentVolumeClaim | None) -> None:
        if new is not None:
            on_volume_claim(new)

    limit = asyncio.Semaphore(_CONCURRENCY)
    try:
        async with asyncio.TaskGroup() as group:
            for claim in targets.claims:
                group.create_task(_fence(writer, writer.fence_claim, claim, on_fenced_claim, limit))
            fence_volume_claim = writer.volumes.fence_volume_claim
            for each in volume_claims:
                group.create_task(_fence(writer, fence_volume_claim, each, on_fenced_volume_claim, limit))
            for pod in targets.pods:
                group.create_task(_fence(writer, writer.fence_pod, pod, on_pod, limit))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None  # the lease was lost: all have this cause
    counts = {"claims": len(targets.claims), "pods": len(targets.pods)}
    log_event(LOG, "fenced", **counts, volume_claims=len(volume_claims) or None)


async def _fence(
    writer: ApiWriter,
    fence: Callable[[T], Awaitable[T | None]],
    target: T,
    on_answer: Callable[[T, T | None], None],
    limit: asyncio.Semaphore,
) -> None:
    """Fence one object; nothing may be scheduled before there is a response."""
    async with limit:
        fresh: T | None = await retry_until_answered(writer, fence, target)
        on_answer(target, fresh)


async def recover_bindings(
    claims: Iterable[ResourceClaim],
    pods: Iterable[Pod],
    writer: ApiWriter,
    on_claim: Callable[[ResourceClaim], None],
    is_responsible: Callable[[Pod], bool],
) -> None:
    """Release stale reservations and clear stale charges, once after a start."""
    plan = plan_recovery(claims, pods)
    for stale in plan.released:
        if is_kept(stale.claim.metadata):
            continue
        try:
            await _release_reservation(stale, writer, on_claim)
        except ApiError as error:
            LOG.debug("claim %s was not released: %s", stale.claim.metadata.name, error)
    for pod in plan.uncharged:
        if not is_responsible(pod):
            continue
        try:
            await writer.clear_charges(pod)
        except ApiError as error:
            LOG.debug("charges of pod %s were not cleared: %s", pod.metadata.name, error)


async def _release_reservation(
    stale: StaleReservation, writer: ApiWriter, on_claim: Callable[[ResourceClaim], None]
) -> None:
    """Remove the consumers of a claim that no longer exist."""
    claim = stale.claim
    gone = [each for each in stale.consumers if await _is_gone(each, claim.metadata.namespace, writer)]
    deallocate = stale.deallocate and len(gone) == len(stale.consumers)
    for consumer in gone[:1] if deallocate else gone:
        claim = await writer.unreserve(claim, consumer, deallocate=deallocate)
        on_claim(claim)
    if gone:
        log_event(LOG, "released", claim=claim.metadata.full_name, deallocated=deallocate)


async def _is_gone(consumer: ResourceClaimConsumerReference, namespace: str, writer: ApiWriter) -> bool:
    meta = ObjectMeta(name=consumer.name, namespace=namespace, uid=consumer.uid)
    pod = await writer.read_pod(Pod(metadata=meta))
    return pod is None or pod.has_terminated
