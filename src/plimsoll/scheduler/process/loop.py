"""Scheduling loop of the leader: pods from the queue through the cycle to their binding.

For each pod: run the scheduling cycle (`scheduler/cycle.py`), assume the placement and bind it in the
background, or pass it to the failure handler. The event loop is never blocked for more than a few
milliseconds, and the number of concurrent bindings is bounded. An error affects only its pod. A loop that
has ended is not restarted: cancelled writes may still be applied, so their pods and devices stay assumed, and
a new process takes over (`takeover.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from plimsoll.common.structured_log import log_event
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.binding.permit import BindPermit
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.binding.recovery import find_releasable_claim
from plimsoll.scheduler.binding.result import BindFailure, BindStep, BindSuccess
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.events import make_release_event, node_capacity
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.process.binder import PodBinder
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.failure_handler import FailureHandler
from plimsoll.scheduler.process.group_cycle import GroupActions, GroupCycle
from plimsoll.scheduler.process.metrics import ERROR, UNSCHEDULABLE
from plimsoll.scheduler.process.plugin_timer import (
    POST_FILTER,
    RESERVE,
    SUCCESS,
    PluginTimer,
    record_point,
)
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement

LOG = logging.getLogger("plimsoll.scheduler")

#: Time slice of scheduling before the event loop continues (seconds).
_BATCH_SECONDS = 0.004
FAILURE = "ScheduleAttemptFailure"


@dataclass(frozen=True, slots=True)
class InFlightBinding:
    """Pod whose binding is in progress."""

    attempt: QueuedPodInfo
    placement: Placement
    started: float


class SchedulingLoop:
    """Loop that schedules until it is stopped or cancelled."""

    def __init__(
        self,
        context: SchedulerContext,
        failure_handler: FailureHandler,
        make_binder: Callable[[Callable[[Placement, BindSuccess | BindFailure], None]], PodBinder],
        *,
        may_decide: Callable[[], bool] = lambda: True,
        batch_seconds: float = _BATCH_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create a loop; `may_decide` returns whether this process still leads."""
        self._context = context
        self._failure_handler = failure_handler
        self._binder = make_binder(self._on_binding_finished)
        self._batch_seconds = batch_seconds
        self._clock = clock
        self._in_flight: dict[str, InFlightBinding] = {}
        self._timer = PluginTimer(context.metrics)
        self._groups = GroupCycle(
            context,
            failure_handler,
            GroupActions(
                self._assume_and_bind,
                self._hold,
                self._mark_unschedulable,
                self._retry,
                self._on_error,
                self._is_binding,
            ),
            clock,
        )
        self._stopping = False
        self.may_decide = may_decide
        #: Number of bindings cancelled before they had ended.
        self.cancelled = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def stop(self) -> None:
        """Take no more pods; `run` ends when the bindings in progress have."""
        self._stopping = True
        self._context.wake_event.set()

    async def run(self, timeout: float = 0.0) -> None:
        """Schedule; after `stop`, wait at most `timeout` seconds for the bindings in progress."""
        try:
            while not self._stopping:
                if self.schedule_batch():
                    self._context.gc_control.on_busy()
                    await asyncio.sleep(0)
                else:
                    self._context.gc_control.on_idle()
                    await self._context.wait_for_work(takes_pods=not self._binder.is_full)
            self._groups.close()
            self.cancelled += await self._binder.drain(timeout)
        finally:
            self._groups.close()
            self.cancelled += await self._binder.drain(0)
            if self.cancelled:
                LOG.warning("%d bindings cancelled; the next leader resumes them", self.cancelled)
            self.cancelled += await self._failure_handler.stop(timeout if self._stopping else 0)

    # -- scheduling

    def schedule_batch(self) -> bool:
        """Schedule pods for one time slice; return whether there was one."""
        queue, now = self._context.queue, self._context.now
        until, worked = self._clock() + self._batch_seconds, False
        while not self._binder.is_full and self._clock() < until and self.may_decide():
            if self._groups.is_busy:
                self._groups.resume()
                return True
            attempt = queue.pop(now())
            if attempt is None:
                break
            worked = True
            started = self._clock()
            try:
                self._schedule_one(attempt, started)
            except Exception as error:  # one pod must not stop all others
                LOG.exception("scheduling pod %s failed", attempt.pod.metadata.full_name)
                self._context.snapshot.forget(attempt.key)
                self._on_error(attempt, started, f"{type(error).__name__}: {error}")
        return worked

    def _schedule_one(self, attempt: QueuedPodInfo, started: float) -> None:
        context = self._context
        if context.snapshot.find_pod(attempt.key) is not None:
            context.queue.done(attempt.key, context.now())  # already assumed or bound
            return
        group = group_key(attempt.pod, context.snapshot.gates)
        if group is not None:
            self._groups.schedule(group, attempt, started)
            return
        timer = self._timer.start()
        outcome = context.schedule(attempt.pod, timer)
        if timer is not None:
            timer.finish(attempt.pod.spec.scheduler_name, outcome)
        if isinstance(outcome, NodeReason):
            self._hold(attempt, outcome)
            return
        context.metrics.decided(self._clock() - started)
        if isinstance(outcome, Placement):
            self._assume_and_bind(attempt, outcome, started)
        elif outcome.is_error:
            self._on_error(attempt, started, render_fit_error(outcome))
        else:
            profile = attempt.pod.spec.scheduler_name
            self._failure_handler.release_unused_claim(
                attempt, outcome, partial(self._mark_unschedulable, attempt, outcome)
            )
            context.metrics.failed(UNSCHEDULABLE, profile, self._clock() - started)
            context.metrics.refused(attempt.key, outcome.rules, profile)
            start = self._clock()
            nominated = self._failure_handler.handle_unschedulable(attempt, outcome)
            rule = Rule.PREEMPTION if find_releasable_claim(outcome) is None else Rule.DEVICES
            record_point(
                context.metrics,
                POST_FILTER,
                rule.value,
                profile,
                self._clock() - start,
                SUCCESS if nominated else VerdictCode.UNSCHEDULABLE.value,
            )

    def _hold(self, attempt: QueuedPodInfo, reason: NodeReason) -> None:
        """Hold a pod that must not be attempted yet, and report it if it is still held after a while."""
        self._context.queue.hold(attempt.pod, reason, self._context.now())
        self._failure_handler.report_later(attempt.pod, reason)

    def _mark_unschedulable(self, attempt: QueuedPodInfo, outcome: FitError) -> None:
        """Move a pod to the unschedulable pods, until an event can help it."""
        context = self._context
        context.queue.mark_unschedulable(
            attempt.key, outcome.rules, context.now(), needs_capacity=needs_capacity(outcome)
        )
        context.count_queued(attempt.key, FAILURE)
        context.wake_event.set()

    # -- binding

    def _is_binding(self, key: str) -> bool:
        return key in self._in_flight

    def _assume_and_bind(
        self,
        attempt: QueuedPodInfo,
        placement: Placement,
        started: float,
        permit: BindPermit | None = None,
    ) -> None:
        context, key = self._context, attempt.key
        start = self._clock()
        context.snapshot.assume(placement)
        if placement.pod_info.claims:
            profile, seconds = attempt.pod.spec.scheduler_name, self._clock() - start
            record_point(context.metrics, RESERVE, Rule.DEVICES.value, profile, seconds)
        context.nominations.drop(key)
        context.metrics.cleared(key)
        self._failure_handler.forget(key)
        self._in_flight[key] = InFlightBinding(attempt, placement, started)
        self._failure_handler.on_assumed(placement)
        self._binder.start(placement, permit)

    def _on_binding_finished(self, placement: Placement, outcome: BindSuccess | BindFailure) -> None:
        """Handle the end of a binding."""
        context = self._context
        binding = self._in_flight.pop(placement.pod_info.key)
        attempt = binding.attempt
        if isinstance(outcome, BindSuccess):
            self._on_bound(binding)
        elif outcome.final:
            self._forget(binding)
            context.queue.done(attempt.key, context.now())
        else:
            self._forget(binding)
            context.metrics.steps.add(outcome.step.value)
            if outcome.step is BindStep.PLACEHOLDERS and outcome.cause is None:
                context.on_rejected(attempt.key, placement.node)
            self._on_error(attempt, binding.started, outcome.error)
        context.wake_event.set()

    def _on_bound(self, binding: InFlightBinding) -> None:
        context, attempt, placement = self._context, binding.attempt, binding.placement
        now, seconds = context.now(), self._clock() - binding.started
        context.queue.done(attempt.key, now)
        context.snapshot.confirm(attempt.key)
        waited = (now - attempt.queued_at) / 1000
        context.metrics.scheduled(attempt.pod.spec.scheduler_name, seconds, waited, attempt.attempts)
        self._failure_handler.on_bound(placement)
        log_event(
            LOG,
            "bound",
            pod=attempt.pod.metadata.full_name,
            node=placement.node,
            devices=placement.devices or None,
            attempts=attempt.attempts,
            waited_ms=now - attempt.queued_at,
            bind_ms=round(seconds * 1000, 1),
        )

    def _retry(self, attempt: QueuedPodInfo) -> None:
        """Requeue a pod; it is attempted again after its backoff."""
        self._context.queue.retry(attempt.key, self._context.now())
        self._context.count_queued(attempt.key, FAILURE)

    def _on_error(self, attempt: QueuedPodInfo, started: float, error: str) -> None:
        """Requeue a pod after an error that is not a scheduling failure."""
        context = self._context
        self._retry(attempt)
        context.metrics.failed(ERROR, attempt.pod.spec.scheduler_name, self._clock() - started)
        self._failure_handler.handle_error(attempt, error)

    def _forget(self, binding: InFlightBinding) -> None:
        """Forget the placement of a pod, and wake pods that fit into the freed capacity."""
        context, placement = self._context, binding.placement
        context.snapshot.forget(binding.attempt.key)
        room = node_capacity(context.snapshot, placement.node)
        context.queue.on_event(make_release_event(placement.pod_info.pod, room), context.now())
