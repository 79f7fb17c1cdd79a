"""What time brings about: pods that wait too long are told, and what a restart finds half done is mended.

Owns the rounds beside the loop, while we lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.common.structured_log import log_event
from plimsoll.errors import ApiError
from plimsoll.scheduler.binding.recovery import Leftover, recover
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.failure_handler import Aftermath
from plimsoll.scheduler.snapshot.snapshot import TERMINAL_PHASES

LOG = logging.getLogger("plimsoll.scheduler")

#: How often held pods are looked at (seconds).
_ROUND = 0.5


async def keep_up(aftermath: Aftermath) -> None:
    """Go round until cancelled."""
    while True:
        await asyncio.sleep(_ROUND)
        try:
            aftermath.tell_held()
        except Exception:
            LOG.exception("telling pods that wait for claims")


async def mend(
    claims: Iterable[ResourceClaim],
    pods: Iterable[Pod],
    writer: ApiWriter,
    heard: Callable[[ResourceClaim], None],
    ours: Callable[[Pod], bool],
) -> None:
    """Release what nobody uses any more and take back charges that stand for nothing, once after a start."""
    found = recover(claims, pods)
    for leftover in found.released:
        try:
            await _release(leftover, writer, heard)
        except ApiError as error:
            LOG.debug("claim %s was not released: %s", leftover.claim.metadata.name, error)
    for pod in found.uncharged:
        if not ours(pod):
            continue
        try:
            await writer.clear_charges(pod)
        except ApiError as error:
            LOG.debug("charges of pod %s were not cleared: %s", pod.metadata.name, error)


async def _release(leftover: Leftover, writer: ApiWriter, heard: Callable[[ResourceClaim], None]) -> None:
    """Take consumers out of a claim that are really gone."""
    claim = leftover.claim
    gone = [each for each in leftover.consumers if await _is_gone(each, claim.metadata.namespace, writer)]
    deallocate = leftover.deallocate and len(gone) == len(leftover.consumers)
    for consumer in gone[:1] if deallocate else gone:
        claim = await writer.unreserve(claim, consumer, deallocate=deallocate)
        heard(claim)
    if gone:
        log_event(
            LOG, "released", claim=f"{claim.metadata.namespace}/{claim.metadata.name}", deallocated=deallocate
        )


async def _is_gone(consumer: ResourceClaimConsumerReference, namespace: str, writer: ApiWriter) -> bool:
    meta = ObjectMeta(name=consumer.name, namespace=namespace, uid=consumer.uid)
    pod = await writer.read_pod(Pod(metadata=meta))
    return pod is None or pod.status.phase in TERMINAL_PHASES
