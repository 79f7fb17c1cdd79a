"""Scheduling of pod groups in the scheduling loop: from the queue to the bindings of all members.

When one pod of a group is popped, the others that can be attempted are taken along. Either enough of them are
assumed at once and bound under one permit, or none is: then preemption is tried for the group, and every
member waits for an event. An error affects only the group.

An attempt may take several turns of the event loop, so that a large gang, a search or a preemption does not
delay watches, leases and bindings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.common.structured_log import log_event
from plimsoll.scheduler.binding.permit import BindPermit
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.cycle import reject_pod
from plimsoll.scheduler.gang.claims import find_group_consumers, find_reserved_claims
from plimsoll.scheduler.gang.conditions import (
    OTHER_POD_FAILED,
    SCHEDULED,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    WAITING_FOR_PREEMPTION,
    WAITING_MEMBER,
    GroupCondition,
    describe_min_count,
    is_disruption_target,
)
from plimsoll.scheduler.gang.cycle import GroupResult, group_turns, schedule_group
from plimsoll.scheduler.gang.members import GangMessage, hold_reason
from plimsoll.scheduler.gang.preemption import (
    PREEMPTION_DISABLED,
    GroupPreemption,
    preemption_turns,
)
from plimsoll.scheduler.preemption.plan import DISRUPTION_TARGET, NEVER
from plimsoll.scheduler.process import metrics
from plimsoll.scheduler.process.context import SchedulerContext, new_id
from plimsoll.scheduler.process.failure_handler import FailureHandler
from plimsoll.scheduler.process.gang_permit import GangPermit
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.group_members import GroupKey

LOG = logging.getLogger("plimsoll.scheduler")

T = TypeVar("T")
#: Work that is done in turns of the event loop; True is sent to it to end a search.
Turns: TypeAlias = Generator[None, bool | None, T]
#: Time slice of an attempt before the event loop continues, and time after which a search ends (seconds).
TURN_SECONDS = 0.05
SEARCH_SECONDS = 0.5


class _Bind(Protocol):
    def __call__(
        self, attempt: QueuedPodInfo, placement: Placement, started: float, permit: BindPermit | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupActions:
    """Steps of the scheduling loop that a group takes for each of its pods."""

    bind: _Bind
    hold: Callable[[QueuedPodInfo, NodeReason], None]
    mark_unschedulable: Callable[[QueuedPodInfo, FitError], None]
    retry: Callable[[QueuedPodInfo], None]
    fail: Callable[[QueuedPodInfo, float, str], None]
    is_binding: Callable[[str], bool]


class GroupCycle:
    """Scheduler of pod groups."""

    def __init__(
        self,
        context: SchedulerContext,
        failure_handler: FailureHandler,
        actions: GroupActions,
        clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._failure_handler = failure_handler
        self._actions = actions
        self._clock = clock
        self._turns: Turns[None] | None = None
        self._ends_at = 0.0

    def schedule(self, key: GroupKey, attempt: QueuedPodInfo, started: float) -> None:
        """Attempt the group of a pod that was popped from the queue."""
        context = self._context
        reason = hold_reason(key, context.snapshot, context.queue.members(key))
        group = context.snapshot.find(PodGroup, *key)
        if reason is not None or group is None:
            assert reason is not None, "a missing group is a reason"
            self._actions.hold(attempt, reason)
            return
        attempts = self._take_members(key, attempt)
        self._turns = self._attempt(group, attempts, started)
        self._ends_at = started + SEARCH_SECONDS
        next(self._turns)
        self.resume()

    @property
    def is_busy(self) -> bool:
        """True if an attempt is to be resumed; no other pod is scheduled meanwhile."""
        return self._turns is not None

    def resume(self) -> None:
        """Continue the attempt for one time slice of the event loop."""
        turns, until = self._turns, self._clock() + TURN_SECONDS
        try:
            while turns is not None:
                turns.send(self._clock() >= self._ends_at)
                if self._clock() >= until:
                    return
        except StopIteration:
            self._turns = None

    def close(self) -> None:
        """Give up an attempt that is not finished, and forget what it assumed."""
        if self._turns is not None:
            self._turns.close()
            self._turns = None

    def _attempt(self, group: PodGroup, attempts: list[QueuedPodInfo], started: float) -> Turns[None]:
        yield
        try:
            yield from self._schedule(group, attempts, started)
        except Exception as error:  # one group must not stop all others
            LOG.exception("scheduling pod group %s failed", group.metadata.full_name)
            message = f"{type(error).__name__}: {error}"
            self._fail(group, [each for each in attempts if not self._is_handled(each)], started, message)

    def _take_members(self, key: GroupKey, attempt: QueuedPodInfo) -> list[QueuedPodInfo]:
        """Return the members to attempt, by priority and then by their first attempt."""
        context = self._context
        found = []
        for each in (attempt, *context.queue.pop_members(key, context.now())):
            if context.snapshot.find_pod(each.key) is None:
                found.append(each)
            else:
                context.queue.done(each.key, context.now())  # already assumed or bound
        return sorted(found, key=lambda each: (-each.pod.priority, each.first_tried_at))

    def _is_handled(self, attempt: QueuedPodInfo) -> bool:
        """Return whether a member left the attempt: it is being bound, or was queued again."""
        return self._actions.is_binding(attempt.key) or not self._context.queue.is_in_flight(attempt.key)

    def _schedule(self, group: PodGroup, attempts: list[QueuedPodInfo], started: float) -> Turns[None]:
        context = self._context
        members = [each.pod for each in attempts]
        result = yield from group_turns(
            group, members, context.snapshot, context.profile, new_id, context.nominations
        )
        context.metrics.decided(self._clock() - started)
        context.metrics.group_algorithm.at().observe(self._clock() - started)
        if result.reason is not None and result.reason.message is GangMessage.SCHEDULER_NAMES:
            self._fail(group, attempts, started, render(result.reason))
        elif result.is_scheduled:
            self._bind(group, attempts, result, started)
        elif result.error is not None:
            message = f"{OTHER_POD_FAILED}: {render_fit_error(result.error)}"
            own = {
                key: render_fit_error(failure)
                for key, failure in result.failures.items()
                if isinstance(failure, FitError) and failure.is_error
            }
            self._fail(group, attempts, started, message, own)
        else:
            yield from self._refuse(group, attempts, result, started)

    def _place(self, group: PodGroup, members: list[Pod], steps: int) -> GroupResult:
        context = self._context
        return schedule_group(
            group, members, context.snapshot, context.profile, new_id, context.nominations, steps=steps
        )

    # -- results

    def _bind(
        self, group: PodGroup, attempts: list[QueuedPodInfo], result: GroupResult, started: float
    ) -> None:
        """Assume all placements and bind them together; members that do not fit wait on their own."""
        by_key = {each.key: each for each in attempts}
        consumers = find_group_consumers(group, result.placements, self._context.snapshot.gates)
        permit = GangPermit(result.placements, result.needed, consumers)
        for placement in result.placements:
            self._actions.bind(by_key[placement.pod_info.key], placement, started, permit)
        self._failure_handler.report_group(group, GroupCondition("True", SCHEDULED))
        if is_disruption_target(group):
            self._failure_handler.report_group(
                group, GroupCondition("False", SCHEDULED, type=DISRUPTION_TARGET)
            )
        log_event(
            LOG,
            "scheduled group",
            group=group.metadata.full_name,
            pods=len(result.placements),
            unschedulable=len(result.failures) or None,
            searched=result.searched or None,
        )
        for key, failure in result.failures.items():
            retries = self._may_preempt(by_key[key].pod, failure)
            self._refuse_member(by_key[key], failure, started, retries=retries)
        self._observe(metrics.SCHEDULED, attempts, started)

    def _refuse(
        self, group: PodGroup, attempts: list[QueuedPodInfo], result: GroupResult, started: float
    ) -> Turns[None]:
        """Queue all members again, after trying preemption for the group."""
        plan = yield from self._preempt(group, attempts, result)
        nodes: dict[str, str] = {}
        reason = self._describe_min_count(group, attempts, result)
        if isinstance(plan, GroupPreemption):
            message = WAITING_FOR_PREEMPTION
            nodes = {each.pod_info.key: each.node for each in plan.result.placements}
        else:
            message = ", ".join(filter(None, (GangMessage.UNSCHEDULABLE.value, reason, plan)))
            if result.reason is not None:
                message = f"{message}: {render(result.reason)}"
        for each in attempts:
            failure = result.failures.get(each.key)
            if failure is not None and each.key not in nodes:
                self._refuse_member(each, failure, started)
                continue
            text = message if nodes or reason or result.reason is not None else WAITING_MEMBER
            self._wait_for_group(each, text, nodes.get(each.key), started)
        self._failure_handler.report_group(group, GroupCondition("False", UNSCHEDULABLE, message))
        log_event(
            LOG,
            "refused group",
            group=group.metadata.full_name,
            fit=len(result.placements),
            needed=result.needed,
            gave_up=result.gave_up or None,
            preempting=len(plan.victims) if isinstance(plan, GroupPreemption) else None,
        )
        is_preempting = isinstance(plan, GroupPreemption)
        outcome = metrics.WAITING_ON_PREEMPTION if is_preempting else metrics.UNSCHEDULABLE
        self._observe(outcome, attempts, started)
        if isinstance(plan, GroupPreemption):
            self._failure_handler.preempt_for_group(plan)
        for claim in find_reserved_claims(group, self._context.snapshot):
            self._failure_handler.release_group_claim(claim, group, attempts[0].pod)

    def _describe_min_count(self, group: PodGroup, attempts: list[QueuedPodInfo], result: GroupResult) -> str:
        """Return why a gang cannot be scheduled, in the words of 1.37; "" on older servers."""
        if self._context.server_minor < 37 or not result.needed or result.reason is not None:
            return ""
        fitting = {each.pod_info.key for each in result.placements}
        scheduled = group.min_count - result.needed
        return describe_min_count(group.min_count, scheduled, (each.key in fitting for each in attempts))

    def _preempt(
        self, group: PodGroup, attempts: list[QueuedPodInfo], result: GroupResult
    ) -> Turns[GroupPreemption | str]:
        """Plan a preemption for the group; return why there is none."""
        context = self._context
        members = [each.pod for each in attempts]
        if result.reason is not None:
            return ""
        if not context.profile(members[0]).preemption:
            return PREEMPTION_DISABLED
        if any(self._is_terminating(each.key) for each in attempts):
            return "not eligible due to a terminating pod on the nominated node."
        context.metrics.preemptions.add()
        return (
            yield from preemption_turns(
                group,
                members,
                context.snapshot,
                lambda steps: self._place(group, members, steps),
                context.snapshot.all(PodDisruptionBudget),
            )
        )

    def _is_terminating(self, key: str) -> bool:
        """Return whether victims of an earlier preemption for a member have not left their node yet."""
        nomination = self._context.nominations.get(key)
        victims = nomination.victims if nomination is not None else frozenset[str]()
        return any(self._context.snapshot.find_pod(victim) is not None for victim in victims)

    # -- members

    def _may_preempt(self, pod: Pod, failure: FitError | NodeReason) -> bool:
        """Return whether preemption may help a member beyond minCount, which takes an attempt of its own."""
        if isinstance(failure, NodeReason) or failure.resolvable is None:
            return False
        may_preempt = self._context.profile(pod).preemption and pod.spec.preemption_policy != NEVER
        return may_preempt and bool(failure.resolvable.any())

    def _refuse_member(
        self,
        attempt: QueuedPodInfo,
        failure: FitError | NodeReason,
        started: float,
        *,
        retries: bool = False,
    ) -> None:
        """Queue a member that does not fit, until an event can help it; or retry it after its backoff."""
        if isinstance(failure, NodeReason):
            self._actions.hold(attempt, failure)
            return
        if failure.is_error:
            self._actions.fail(attempt, started, render_fit_error(failure))
            return
        self._count(attempt, failure, started)

        def requeue() -> None:
            if retries:
                self._actions.retry(attempt)
            else:
                self._actions.mark_unschedulable(attempt, failure)

        self._failure_handler.release_unused_claim(attempt, failure, requeue)
        self._failure_handler.report_member(attempt.pod, render_fit_error(failure))

    def _wait_for_group(
        self, attempt: QueuedPodInfo, message: str, nominated: str | None, started: float
    ) -> None:
        """Queue a member that fits; any event may help the group."""
        any_event = FitError(reject_pod(attempt.pod, self._context.snapshot, _WAITING).pod_info, 0, ())
        self._count(attempt, any_event, started)
        self._actions.mark_unschedulable(attempt, any_event)
        self._failure_handler.report_member(attempt.pod, message, nominated)

    def _observe(self, result: str, attempts: Sequence[QueuedPodInfo], started: float) -> None:
        """Observe an attempt of the group."""
        if attempts:
            profile = attempts[0].pod.spec.scheduler_name
            self._context.metrics.group_attempted(result, profile, self._clock() - started)

    def _count(self, attempt: QueuedPodInfo, failure: FitError, started: float) -> None:
        profile, context = attempt.pod.spec.scheduler_name, self._context
        context.metrics.failed(metrics.UNSCHEDULABLE, profile, self._clock() - started)
        context.metrics.refused(attempt.key, failure.rules, profile)

    def _fail(
        self,
        group: PodGroup,
        attempts: list[QueuedPodInfo],
        started: float,
        message: str,
        own: Mapping[str, str] | None = None,
    ) -> None:
        """Retry members, after their backoff, after an error; some of them may have messages of their own."""
        for each in attempts:
            self._context.snapshot.forget(each.key)
            self._actions.fail(each, started, (own or {}).get(each.key, message))
        self._failure_handler.report_group(group, GroupCondition("False", SCHEDULER_ERROR, message))
        self._observe(metrics.ERROR, attempts, started)


_WAITING = NodeReason.unresolvable(Rule.GANG, GangMessage.WAITING)
