"""What follows from a decision, apart from the binding: pods are told, others are asked to go, claims let go.

Owns `Aftermath`. A pod that fits nowhere: a claim of its own with devices where the pod cannot go is released
(so that the next attempt may choose others), or else pods of lower priority are preempted; the pod is told
why it waits, by a condition and an event, and the log has a line. A pod that waits for a claim is held in
silence at first, and told when that takes long. Promises: nothing here keeps the loop waiting; whatever
fails is logged, and made again by the next attempt.

DIFF: a pod whose claim is missing is told so after a moment; upstream holds it without any condition or event
(test_a_pod_is_told_that_its_claim_is_missing).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.client import Client
from plimsoll.common.structured_log import log_event
from plimsoll.errors import ApiError, LeaseLostError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.bind import release_claim
from plimsoll.scheduler.binding.binding_conditions import waits_for_devices
from plimsoll.scheduler.binding.pod_conditions import (
    SCHEDULER_ERROR,
    Deallocation,
    failure_reason,
    render_unplaced,
)
from plimsoll.scheduler.binding.recovery import find_abandoned
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.process import evictor as evict
from plimsoll.scheduler.process.api_writer import ApiWriter, write_time
from plimsoll.scheduler.process.condition_writer import Notice, Notices
from plimsoll.scheduler.process.context import World, new_id
from plimsoll.scheduler.process.event_recorder import Recorder
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage
from plimsoll.scheduler.result import FitError, Placement

LOG = logging.getLogger("plimsoll.scheduler")


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that waits for a claim, and when it is told."""

    pod: Pod
    reason: NodeReason
    due: int


class Aftermath:
    """Tells pods, events and the log; to be used on one loop."""

    def __init__(
        self,
        world: World,
        client: Client,
        writer: ApiWriter,
        recorder: Recorder,
        heard: Callable[[ResourceClaim], None],
    ) -> None:
        self._world = world
        self._client = client
        self._writer = writer
        self._recorder = recorder
        self._heard = heard
        self.notices = Notices(writer)
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._releasing: set[str] = set()  # UIDs of claims
        self._offset = 0

    # -- pods

    def placed(self, placement: Placement) -> None:
        """A pod is about to be bound; it is told if its devices have to be made ready first."""
        if any(map(waits_for_devices, placement.allocations.values())):
            self._recorder.awaiting_devices(placement.pod_info.pod, placement.node)

    def scheduled(self, placement: Placement) -> None:
        self._recorder.scheduled(placement.pod_info.pod, placement.node)

    def release_abandoned(
        self, attempt: QueuedPodInfo, fit_error: FitError, then: Callable[[], None]
    ) -> None:
        """Release a claim whose devices are where the pod cannot go, if there is one, and call `then`.

        `then` puts the pod back into the queue: not before the release is done, so that the pod is not tried
        with a claim that is about to change. A claim is released once at a time.
        """
        claim = find_abandoned(fit_error)
        if claim is None or claim.metadata.uid in self._releasing:
            then()
            return
        self._releasing.add(claim.metadata.uid)
        self._start(self._release(claim, attempt.pod, then), "releasing a claim")

    def refuse(self, attempt: QueuedPodInfo, fit_error: FitError) -> None:
        """A pod fits nowhere: say so, and look for pods to preempt unless a claim of it is released."""
        pod = attempt.pod
        if find_abandoned(fit_error) is not None:
            message = f"{render_unplaced(fit_error)} {Deallocation.DONE.value}"
            self._tell(pod, failure_reason(fit_error), message)
            return
        message, nominated = self._preempt(pod, fit_error)
        self._tell(pod, failure_reason(fit_error), message, nominated)

    def fail(self, attempt: QueuedPodInfo, error: str) -> None:
        """Something went wrong with a pod that is no refusal."""
        self._tell(attempt.pod, SCHEDULER_ERROR, error, level=logging.WARNING)

    def hold(self, pod: Pod, reason: NodeReason) -> None:
        """A pod waits for a claim; it is told so if that takes long."""
        key, settings = pod_key(pod), self._world.settings
        generated = reason.message is ReasonMessage.CLAIM_NOT_MADE
        seconds = settings.generated_seconds if generated else settings.named_seconds
        known = self._held.get(key)
        due = known.due if known is not None else self._world.now() + round(seconds * 1000)
        self._held[key] = Held(pod, reason, due)

    def leave(self, key: str) -> None:
        """A pod waits no longer."""
        self._held.pop(key, None)
        self.notices.drop(key)
        self._world.metrics.cleared(key)

    def tell_held(self) -> None:
        """Tell the pods that have waited for a claim too long; to be called every now and then."""
        now, world = self._world.now(), self._world
        for key in [key for key, held in self._held.items() if held.due <= now]:
            held = self._held.pop(key)
            task = PodInfo(held.pod, (), world.snapshot.options)
            fit_error = FitError(task, len(world.snapshot), ((held.reason, 0),))
            self._tell(held.pod, failure_reason(fit_error), render_unplaced(fit_error))

    async def stop(self, seconds: float) -> int:
        """Give what is under way so much time, then cancel it; returns how many writes that were."""
        if self._tasks and seconds > 0:
            await asyncio.wait(self._tasks, timeout=seconds)
        cancelled = list(self._tasks)
        for task in cancelled:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.notices.stop(seconds)
        return len(cancelled)

    # -- inside

    def _tell(
        self, pod: Pod, reason: str, message: str, nominated: str | None = None, level: int = logging.INFO
    ) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        log_event(LOG, "refused", level, pod=name, reason=reason, nominated=nominated, why=message)
        self.notices.tell(Notice(pod, reason, message, nominated))
        self._recorder.failed_scheduling(pod, message)

    def _preempt(self, pod: Pod, fit_error: FitError) -> tuple[str, str | None]:
        """Look for pods to remove; the message for the pod, and the node it is promised."""
        world, key = self._world, pod_key(pod)
        world.metrics.preemptions.add()
        plan = plan_preemption(
            fit_error,
            world.snapshot,
            world.profile(pod),
            world.snapshot.all(PodDisruptionBudget),
            new_id,
            world.nominations,
            offset=self._offset,
        )
        if isinstance(plan, Preemption):
            self._offset = plan.row + 1
            world.metrics.victims.at().observe(len(plan.victims))
            world.nominations.nominate(pod, plan.node, plan.victims)
            self._start(self._evict(plan, key), "preempting")
            return render_unplaced(fit_error), plan.node
        nominated = None
        if plan.clears:
            nominated = "" if pod.status.nominated_node_name else None
            world.nominations.drop(key)
        return render_unplaced(fit_error, plan.text), nominated

    async def _evict(self, plan: Preemption, key: str) -> None:
        pod = plan.pod
        log_event(
            LOG,
            "preempting",
            pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=plan.node,
            victims=[f"{each.metadata.namespace}/{each.metadata.name}" for each in plan.victims],
            broken_budgets=plan.broken_budgets or None,
        )
        done = await evict.carry_out(
            plan,
            self._client,
            lambda notice: self._recorder.preempted(notice.regarding, notice.related, plan.node),
            now=lambda: write_time(datetime.now(UTC)),
        )
        if not done.complete:
            self._world.nominations.drop(key)
            LOG.warning("preemption on %s is not complete: %s", plan.node, done.errors[0])
        if not done.complete or not done.evicted:
            self._world.queue.activate([key], self._world.now())
            self._world.stir.set()

    async def _release(self, claim: ResourceClaim, pod: Pod, then: Callable[[], None]) -> None:
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        log_event(LOG, "released", claim=name, pod=f"{pod.metadata.namespace}/{pod.metadata.name}")
        try:
            await release_claim(claim, pod, self._writer, self._heard)
        finally:
            self._releasing.discard(claim.metadata.uid)
            then()

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.get_running_loop().create_task(_carefully(work, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _carefully(work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        await work
    except LeaseLostError:
        pass  # the next leader decides anew
    except ApiError as error:
        if error.code not in (404, 409):  # gone or changed meanwhile: the next attempt sees what there is
            LOG.warning("%s: %s", what, error)
    except Exception:
        LOG.exception("%s", what)
