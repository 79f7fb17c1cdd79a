"""Carrying a preemption out: promises withdrawn, victims told and deleted.

Owns `carry_out`, the writes that follow from a `Preemption`. Promises: every write names the UID it is meant
for, so that a new pod of the same name is never hit; whoever is gone or on the way out already is left alone;
it may be called again with the same preemption and goes on where it broke off; one write that fails does not
keep the others from being made, and what failed is told. Victims learn why they go (the condition
DisruptionTarget, reason PreemptionByScheduler) before they are deleted, with the grace period they ask for.

Around it, in this order: `Nominations.nominate(pod, node, victims)` when the plan is made, so that nobody
takes the room and the pod does not preempt again while they are there; `carry_out`; if it is not `complete`,
`Nominations.drop(key)`, and the pod is tried again. The pod's own `nominatedNodeName` is written with its
condition.
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
from plimsoll.scheduler.preemption.plan import BY_SCHEDULER, DISRUPTION_TARGET
from plimsoll.scheduler.preemption.result import Preemption

#: How many victims are dealt with at once.
_AT_ONCE = 16
#: How often a status is patched that others are changing at the same time.
_TRIES = 3
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to be recorded about a pod."""

    regarding: Pod
    related: Pod
    type: str
    reason: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """Who was asked to go, and which writes failed."""

    evicted: tuple[Pod, ...]
    errors: tuple[ApiError, ...] = ()  #: of victims: they have not been deleted
    warnings: tuple[ApiError, ...] = ()  #: of promises that could not be withdrawn; nothing depends on them

    @property
    def complete(self) -> bool:
        """Whether all victims are gone or on their way."""
        return not self.errors


async def carry_out(
    preemption: Preemption,
    client: Client,
    record: Callable[[Notice], None],
    *,
    now: Callable[[], str],
) -> CarriedOut:
    """Make room on the node: withdraw promises to lesser pods, tell victims, delete them.

    `now` gives the time as the API writes it.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def evict(victim: Pod) -> Pod | ApiError | None:
        if victim.metadata.deletion_timestamp is not None:
            return None
        async with gate:
            try:
                if not await _delete(victim, preemption, client, now()):
                    return None
            except ApiError as error:
                return error
        record(_notice(victim, preemption))
        return victim

    async def withdraw(pod: Pod) -> ApiError | None:
        async with gate:
            try:
                await _patch_status(pod, {"nominatedNodeName": None}, client)
            except ApiError as error:
                return error
        return None

    withdrawn = await asyncio.gather(*map(withdraw, preemption.outbid))
    answers = await asyncio.gather(*map(evict, preemption.victims))
    return CarriedOut(
        tuple(answer for answer in answers if isinstance(answer, Pod)),
        tuple(answer for answer in answers if isinstance(answer, ApiError)),
        tuple(answer for answer in withdrawn if answer is not None),
    )


async def _delete(victim: Pod, preemption: Preemption, client: Client, now: str) -> bool:
    """Tell a victim why it goes, and delete it; False if it was gone."""
    condition = plan_disruption(victim, preemption, now)
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
    """Patch the status of this very pod; False if it is gone."""
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid}, "status": status}
    for attempt in range(1, _TRIES + 1):
        try:
            await client.patch(PODS, meta.name, patch, meta.namespace, subresource="status", type="strategic")
            return True
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return False
            if error.code not in (_CONFLICT, _INVALID):
                raise
            if not await _is_there(pod, client):
                return False  # another pod has its name
            if error.code == _INVALID or attempt == _TRIES:
                raise
    return True


async def _is_there(pod: Pod, client: Client) -> bool:
    try:
        tree = await client.get(PODS, pod.metadata.name, pod.metadata.namespace)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return False
        raise
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and metadata.get("uid") == pod.metadata.uid


def plan_disruption(victim: Pod, preemption: Preemption, now: str) -> dict[str, Any] | None:
    """The condition that tells a victim why it goes; None if it says so already."""
    message = f"{preemption.pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
    known = next((each for each in victim.status.conditions if each.type == DISRUPTION_TARGET), None)
    if known is not None and (known.status, known.reason, known.message) == ("True", BY_SCHEDULER, message):
        return None
    since = known.last_transition_time if known is not None and known.status == "True" else None
    condition: dict[str, Any] = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": since or now,
    }
    if victim.metadata.generation:
        condition["observedGeneration"] = victim.metadata.generation
    return condition


def _notice(victim: Pod, preemption: Preemption) -> Notice:
    note = f"Preempted by pod {preemption.pod.metadata.uid} on node {preemption.node}"
    return Notice(victim, preemption.pod, "Normal", "Preempted", "Preempting", note)
