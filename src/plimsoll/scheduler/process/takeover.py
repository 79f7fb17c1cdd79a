"""Takeover: what a new leader does before it decides anything.

A scheduler that was killed, or that lost its lease, may have left writes under way that land at any later
time, and our own caches may lag behind what it wrote. `take_over` first lists pods and claims anew, then
gives every object that the previous leader may still be writing to a new resourceVersion
(`scheduler/binding/fencing.py`): the answer shows whether the write has landed, and if not, it never will.
Only then may a device or the capacity of a node be given to others. Where the previous leader released its
lease, it had waited for all its writes, and fencing is not needed.

DIFF: kube-scheduler does neither, and can allocate a device twice when a write of its predecessor is delayed
(test_a_delayed_write_of_the_previous_leader_is_refused).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.common.structured_log import log_event
from plimsoll.scheduler.binding.fencing import find_fence_targets
from plimsoll.scheduler.binding.writes import ask_until_answered
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.informers import Feed

LOG = logging.getLogger("plimsoll.scheduler")

T = TypeVar("T", Pod, ResourceClaim)

#: How many objects are fenced at once.
_AT_ONCE = 32


async def take_over(
    feed: Feed,
    claims: Callable[[], Sequence[ResourceClaim]],
    writer: ApiWriter,
    is_ours: Callable[[Pod], bool],
    on_claim: Callable[[ResourceClaim], None],
    *,
    refresh: bool = True,
    fence: bool = True,
) -> None:
    """Bring the caches up to date and end the writes of the previous leader; takes as long as it takes.

    `refresh` is not needed where the caches were filled after the previous leader had ended.
    """
    if refresh:
        await feed.refresh_allocations()
    if not fence:
        return
    targets = find_fence_targets(claims(), [pod for pod in feed.pods() if is_ours(pod)])
    if not targets:
        return

    def on_pod(old: Pod, new: Pod | None) -> None:
        if new is not None and new.spec.node_name:
            feed.hear_pod(old, new)

    def on_fenced_claim(old: ResourceClaim, new: ResourceClaim | None) -> None:
        if new is not None:
            on_claim(new)

    limit = asyncio.Semaphore(_AT_ONCE)
    try:
        async with asyncio.TaskGroup() as group:
            for claim in targets.claims:
                group.create_task(_fence(writer, writer.fence_claim, claim, on_fenced_claim, limit))
            for pod in targets.pods:
                group.create_task(_fence(writer, writer.fence_pod, pod, on_pod, limit))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None  # the lease was lost: once is enough to tell
    log_event(LOG, "fenced", claims=len(targets.claims), pods=len(targets.pods))


async def _fence(
    writer: ApiWriter,
    fence: Callable[[T], Awaitable[T | None]],
    target: T,
    on_answer: Callable[[T, T | None], None],
    limit: asyncio.Semaphore,
) -> None:
    """Fence one object; nothing may be decided before there is an answer."""
    async with limit:
        fresh: T | None = await ask_until_answered(writer, fence, target)
        on_answer(target, fresh)
