"""Execution of a preemption: clears nominations of lower-priority pods, then deletes the victims.

Every write has the UID as precondition, so that a new pod of the same name is never affected. Pods that are
gone or being deleted are skipped, so that a call can be repeated. A failed write does not block the others.
Victims get the condition DisruptionTarget (reason PreemptionByScheduler) before they are deleted with their
grace period.

The caller nominates the pod first (`Nominations.nominate`), which reserves the capacity and prevents further
preemption; if the eviction is not `complete`, it drops the nomination and retries the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.errors import ApiError
from plimsoll.scheduler.binding.pod_conditions import change_condition
from plimsoll.scheduler.preemption.plan import BY_SCHEDULER, DISRUPTION_TARGET
from plimsoll.scheduler.preemption.result import Preemption

#: Victims evicted concurrently.
_CONCURRENCY = 16
#: Attempts to patch a status on conflicts.
_ATTEMPTS = 3
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422


@dataclass(frozen=True, slots=True)
class PreemptionEvictionResult:
    """Pods that were evicted, and failed writes."""

    evicted: tuple[Pod, ...]
    errors: tuple[ApiError, ...] = ()  #: victims that were not deleted
    warnings: tuple[ApiError, ...] = ()  #: nominations that were not cleared; nothing depends on them

    @property
    def complete(self) -> bool:
        """True if all victims are gone or being deleted."""
        return not self.errors


async def evict_victims(
    preemption: Preemption,
    client: Client,
    on_evicted: Callable[[Pod], None],
    *,
    now: Callable[[], str],
) -> PreemptionEvictionResult:
    """Clear nominations of lower-priority pods and delete the victims.

    `on_evicted` is called for each victim that was deleted; `now` returns the time in API format.
    """
    limit = asyncio.Semaphore(_CONCURRENCY)

    async def evict(victim: Pod) -> Pod | ApiError | None:
        if victim.metadata.deletion_timestamp is not None:
            return None
        async with limit:
            try:
                if not await _evict(victim, preemption, client, now()):
                    return None
            except ApiError as error:
                return error
        on_evicted(victim)
        return victim

    async def clear_nomination(pod: Pod) -> ApiError | None:
        async with limit:
            try:
                await _patch_status(pod, {"nominatedNodeName": None}, client)
            except ApiError as error:
                return error
        return None

    cleared = await asyncio.gather(*map(clear_nomination, preemption.lower_nominated))
    results = await asyncio.gather(*map(evict, preemption.victims))
    return PreemptionEvictionResult(
        tuple(result for result in results if isinstance(result, Pod)),
        tuple(result for result in results if isinstance(result, ApiError)),
        tuple(result for result in cleared if result is not None),
    )


async def _evict(victim: Pod, preemption: Preemption, client: Client, now: str) -> bool:
    """Set the condition of a victim and delete it; return False if it was gone."""
    condition = plan_disruption_condition(victim, preemption, now)
    if condition is not None and not await _patch_status(victim, {"conditions": [condition]}, client):
        return False
    meta = victim.metadata
    try:
        await client.delete(PODS, meta.name, meta.namespace, uid=meta.uid or None)
    except ApiError as error:
        if error.code in (_NOT_FOUND, _CONFLICT):
            return False  # gone, or another pod has its name
        raise
    return True


async def _patch_status(pod: Pod, status: dict[str, Any], client: Client) -> bool:
    """Patch the status of a pod; return False if it is gone."""
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid}, "status": status}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await client.patch(PODS, meta.name, patch, meta.namespace, subresource="status", type="strategic")
            return True
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return False
            if error.code not in (_CONFLICT, _INVALID):
                raise
            if not await _exists(pod, client):
                return False  # another pod has its name
            if error.code == _INVALID or attempt == _ATTEMPTS:
                raise
    return True


async def _exists(pod: Pod, client: Client) -> bool:
    try:
        tree = await client.get(PODS, pod.metadata.name, pod.metadata.namespace)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return False
        raise
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and metadata.get("uid") == pod.metadata.uid


def plan_disruption_condition(victim: Pod, preemption: Preemption, now: str) -> dict[str, Any] | None:
    """Build the condition DisruptionTarget of a victim; None if it is set already."""
    message = disruption_message(preemption)
    return change_condition(victim, DISRUPTION_TARGET, "True", BY_SCHEDULER, message, now)


def disruption_message(preemption: Preemption) -> str:
    """Return the message of DisruptionTarget."""
    name, type = preemption.pod.spec.scheduler_name, preemption.preemptor_type
    return f"{name}: preempting to accommodate a higher priority {type}"
