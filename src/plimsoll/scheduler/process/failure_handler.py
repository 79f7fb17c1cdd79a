"""Failure handler: conditions, events, preemption and release of claims for pods that were not scheduled.

If an unschedulable pod has a claim that is allocated where it cannot run, the claim is released, so that the
next attempt can choose other devices; otherwise preemption is tried. The pod gets a condition and an event. A
pod that waits for a claim is reported only after a delay. Nothing here blocks the scheduling loop; errors are
logged, and the next attempt repeats the work.

DIFF: a pod whose claim is missing gets a condition after a delay; upstream sets no condition or event
(test_a_missing_claim_is_reported_on_the_pod).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import group_consumer
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.timestamps import format_time
from plimsoll.client.client import Client
from plimsoll.client.endpoints import POD_GROUPS
from plimsoll.common.structured_log import log_event
from plimsoll.common.tasks import start_task
from plimsoll.errors import ApiError, LeaseLostError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.bind import release_claim, release_group_claim
from plimsoll.scheduler.binding.binding_conditions import has_binding_conditions
from plimsoll.scheduler.binding.pod_conditions import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    Deallocation,
    failure_reason,
    render_fit_error,
)
from plimsoll.scheduler.binding.recovery import find_releasable_claim
from plimsoll.scheduler.cycle import reject_pod
from plimsoll.scheduler.gang.conditions import GroupCondition, plan_group_condition
from plimsoll.scheduler.gang.preemption import GroupPreemption
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.preemption.plan import BY_SCHEDULER, DISRUPTION_TARGET
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.condition_writer import ConditionUpdate, ConditionWriter
from plimsoll.scheduler.process.context import SchedulerContext, new_id
from plimsoll.scheduler.process.event_recorder import SchedulerEventRecorder
from plimsoll.scheduler.process.evictor import disruption_message, evict_victims
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement

LOG = logging.getLogger("plimsoll.scheduler")

#: Period of the check for overdue reports (seconds).
_REPORT_PERIOD = 0.5


@dataclass(frozen=True, slots=True)
class DelayedReport:
    """Report about a pod that waits for a claim, and when it is due."""

    pod: Pod
    reason: NodeReason
    due: int


class FailureHandler:
    """Handler of scheduling failures, on one event loop."""

    def __init__(
        self,
        context: SchedulerContext,
        client: Client,
        writer: ApiWriter,
        recorder: SchedulerEventRecorder,
        on_claim: Callable[[ResourceClaim], None],
    ) -> None:
        self._context = context
        self._client = client
        self._writer = writer
        self._recorder = recorder
        self._on_claim = on_claim
        self.condition_writer = ConditionWriter(writer)
        self._delayed: dict[str, DelayedReport] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._releasing: set[str] = set()  # UIDs of claims
        self._offset = 0

    # -- pods

    def on_assumed(self, placement: Placement) -> None:
        """Record an event if devices of an assumed pod must meet binding conditions first."""
        if any(map(has_binding_conditions, placement.allocations.values())):
            self._recorder.awaiting_devices(placement.pod_info.pod, placement.node)

    def on_bound(self, placement: Placement) -> None:
        self._recorder.scheduled(placement.pod_info.pod, placement.node)

    def release_unused_claim(
        self, attempt: QueuedPodInfo, fit_error: FitError, on_released: Callable[[], None]
    ) -> None:
        """Release a claim whose devices are on nodes where the pod cannot run, then call `on_released`.

        `on_released` requeues the pod: only after the release, so that the pod is not attempted with a claim
        that is about to change. Without such a claim it is called at once. A claim is released once at a
        time.
        """
        claim = find_releasable_claim(fit_error)
        if claim is None or claim.metadata.uid in self._releasing:
            on_released()
            return
        self._releasing.add(claim.metadata.uid)
        self._spawn(self._release(claim, attempt.pod, on_released), "releasing a claim")

    def handle_unschedulable(self, attempt: QueuedPodInfo, fit_error: FitError) -> bool:
        """Report an unschedulable pod, and try preemption unless one of its claims is released.

        Return whether it can be scheduled soon: after the release, or on a nominated node.
        """
        pod = attempt.pod
        if find_releasable_claim(fit_error) is not None:
            is_deleted = fit_error.pod_info.stale_claim is not None
            done = Deallocation.DELETED if is_deleted else Deallocation.DONE
            message = f"{render_fit_error(fit_error)} {done.value}"
            self._report(pod, failure_reason(fit_error), message)
            return True
        message, nominated = self._preempt(pod, fit_error)
        self._report(pod, failure_reason(fit_error), message, nominated)
        return bool(nominated)

    def report_member(self, pod: Pod, message: str, nominated: str | None = None) -> None:
        """Report a pod of an unschedulable pod group."""
        self._report(pod, UNSCHEDULABLE, message, nominated)

    def report_group(self, group: PodGroup, condition: GroupCondition) -> None:
        """Write the condition of a pod group, unless it has it already."""
        patch = plan_group_condition(group, condition, format_time(time.time()))
        if patch is not None:
            self._spawn(self._patch_group(group, patch), "writing the condition of a pod group")

    async def _patch_group(self, group: PodGroup, patch: dict[str, Any]) -> None:
        name, namespace = group.metadata.name, group.metadata.namespace
        await self._client.patch(POD_GROUPS, name, patch, namespace, subresource="status", type="strategic")

    def release_group_claim(self, claim: ResourceClaim, group: PodGroup, pod: Pod) -> None:
        """Release a claim that is reserved for a group of which no pod is scheduled."""
        if claim.metadata.uid in self._releasing:
            return
        self._releasing.add(claim.metadata.uid)

        async def release() -> None:
            log_event(LOG, "released", claim=claim.metadata.full_name, group=group.metadata.full_name)
            try:
                consumer = group_consumer(group)
                await release_group_claim(claim, consumer, pod, self._writer, self._on_claim)
            finally:
                self._releasing.discard(claim.metadata.uid)

        self._spawn(release(), "releasing a claim")

    def preempt_for_group(self, plan: GroupPreemption) -> None:
        """Nominate the members of a group to their nodes and evict the victims."""
        victims = {each.node: each.victims for each in plan.nodes}
        for placement in plan.result.placements:
            pod = placement.pod_info.stored
            self._context.nominations.nominate(pod, placement.node, victims.get(placement.node, ()))
        self._context.metrics.victims.at().observe(len(plan.victims))
        for each in plan.nodes:
            self._spawn(self._evict_victims(each, pod_key(each.pod)), "preempting")

    def handle_error(self, attempt: QueuedPodInfo, error: str) -> None:
        """Report an error that is not a scheduling failure."""
        self._report(attempt.pod, SCHEDULER_ERROR, error, level=logging.WARNING)

    def report_later(self, pod: Pod, reason: NodeReason) -> None:
        """Report a pod that waits for a claim, unless the claim appears in time."""
        key, settings = pod_key(pod), self._context.settings
        generated = reason.message is ClaimMessage.NOT_CREATED
        timeout = settings.generated_seconds if generated else settings.named_seconds
        known = self._delayed.get(key)
        due = known.due if known is not None else self._context.now() + round(timeout * 1000)
        self._delayed[key] = DelayedReport(pod, reason, due)

    def forget(self, key: str) -> None:
        """Drop pending reports about a pod."""
        self._delayed.pop(key, None)
        self.condition_writer.drop(key)
        self._context.metrics.cleared(key)

    def report_due(self) -> None:
        """Report the pods that have waited for a claim for too long."""
        now, context = self._context.now(), self._context
        for key in [key for key, report in self._delayed.items() if report.due <= now]:
            report = self._delayed.pop(key)
            fit_error = reject_pod(report.pod, context.snapshot, report.reason)
            self._report(report.pod, failure_reason(fit_error), render_fit_error(fit_error))

    async def run(self) -> None:
        """Report pods that have waited for a claim for too long, until cancelled."""
        while True:
            await asyncio.sleep(_REPORT_PERIOD)
            try:
                self.report_due()
            except Exception:
                LOG.exception("reporting pods that wait for claims")

    async def stop(self, timeout: float) -> int:
        """Wait at most `timeout` seconds for writes in progress, then cancel them; return how many were."""
        if self._tasks and timeout > 0:
            await asyncio.wait(self._tasks, timeout=timeout)
        cancelled = list(self._tasks)
        for task in cancelled:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.condition_writer.stop(timeout)
        return len(cancelled)

    # -- internals

    def _report(
        self, pod: Pod, reason: str, message: str, nominated: str | None = None, level: int = logging.INFO
    ) -> None:
        self._delayed.pop(pod_key(pod), None)  # it no longer waits for a claim
        name = pod.metadata.full_name
        log_event(LOG, "refused", level, pod=name, reason=reason, nominated=nominated, why=message)
        self.condition_writer.enqueue(ConditionUpdate(pod, reason, message, nominated))
        self._recorder.failed_scheduling(pod, message)

    def _preempt(self, pod: Pod, fit_error: FitError) -> tuple[str, str | None]:
        """Plan a preemption; return the message for the pod and its nominated node."""
        context, key = self._context, pod_key(pod)
        context.metrics.preemptions.add()
        plan = plan_preemption(
            fit_error,
            context.snapshot,
            context.profile(pod),
            context.snapshot.all(PodDisruptionBudget),
            new_id,
            context.nominations,
            offset=self._offset,
        )
        if isinstance(plan, Preemption):
            self._offset = plan.row + 1
            context.metrics.victims.at().observe(len(plan.victims))
            context.nominations.nominate(pod, plan.node, plan.victims)
            self._spawn(self._evict_victims(plan, key), "preempting")
            return render_fit_error(fit_error, minor=context.server_minor), plan.node
        nominated = None
        if plan.clears_nomination:
            nominated = "" if pod.status.nominated_node_name else None
            context.nominations.drop(key)
        return render_fit_error(fit_error, plan.text, minor=context.server_minor), nominated

    async def _evict_victims(self, plan: Preemption, key: str) -> None:
        pod = plan.pod
        log_event(
            LOG,
            "preempting",
            pod=pod.metadata.full_name,
            node=plan.node,
            victims=[each.metadata.full_name for each in plan.victims],
            pdb_violations=plan.pdb_violations or None,
        )
        for group in plan.groups:
            message = disruption_message(plan)
            condition = GroupCondition("True", BY_SCHEDULER, message, DISRUPTION_TARGET)
            self.report_group(group, condition)
        done = await evict_victims(
            plan,
            self._client,
            lambda victim: self._recorder.preempted(victim, plan),
            now=lambda: format_time(time.time()),
        )
        if not done.complete:
            self._context.nominations.drop(key)
            LOG.warning("preemption on %s failed: %s", plan.node, done.errors[0])
        if not done.complete or not done.evicted:
            self._context.queue.activate([key], self._context.now())
            self._context.wake_event.set()

    async def _release(self, claim: ResourceClaim, pod: Pod, on_released: Callable[[], None]) -> None:
        name = claim.metadata.full_name
        log_event(LOG, "released", claim=name, pod=pod.metadata.full_name)
        try:
            await release_claim(claim, pod, self._writer, self._on_claim)
        finally:
            self._releasing.discard(claim.metadata.uid)
            on_released()

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        start_task(self._tasks, _log_errors(work, what))


async def _log_errors(work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        await work
    except LeaseLostError:
        pass  # the next leader repeats the work
    except ApiError as error:
        if error.code not in (404, 409):  # gone or changed: the next attempt sees the current state
            LOG.warning("%s: %s", what, error)
    except Exception:
        LOG.exception("%s", what)
