"""Dry run: one line for each pending pod, no writes.

Each placement is assumed in the local snapshot, so that later pods take earlier ones into account.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.client import Client, ClientConfig
from plimsoll.common.structured_log import format_line, set_up_logging
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.gang.conditions import WAITING_MEMBER
from plimsoll.scheduler.gang.cycle import schedule_group
from plimsoll.scheduler.gang.members import group_key, hold_reason
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext, new_id
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.group_members import GroupKey

#: Key of a pod, its line, and whether it was placed.
DryRunResult = tuple[str, str, bool]


async def run_dry(
    config: ClientConfig, settings: SchedulerSettings, write_line: Callable[[str], None]
) -> bool:
    """Report where each pending pod would be scheduled; return whether all of them would be."""
    set_up_logging(settings.log.format, verbose=settings.log.verbose)
    context = SchedulerContext.create(settings)
    async with Client.connect(config.interactive()) as client:
        await context.informers.list_once(client)
    return report_pending(context, write_line)


def report_pending(context: SchedulerContext, write_line: Callable[[str], None]) -> bool:
    """Report the pending pods of a context."""
    placed = True
    outcomes: dict[str, str] = {}
    while (attempt := context.queue.pop(context.now())) is not None:
        group = group_key(attempt.pod, context.snapshot.gates)
        results = (
            [_dry_run_pod(context, attempt)] if group is None else _dry_run_group(context, group, attempt)
        )
        for key, line, fine in results:
            outcomes[key] = line
            if fine:
                write_line(line)
    for pod in context.queue:
        placed = False
        key = pod.metadata.uid or pod.metadata.full_name
        gates = ",".join(gate.name for gate in pod.spec.scheduling_gates)
        write_line(outcomes.get(key) or _format(context, "gated", pod=pod.metadata.full_name, gates=gates))
    return placed


def _dry_run_pod(context: SchedulerContext, attempt: QueuedPodInfo) -> DryRunResult:
    """Schedule a pod."""
    outcome = context.schedule(attempt.pod)
    if isinstance(outcome, Placement):
        return _assume(context, attempt, outcome)
    if isinstance(outcome, NodeReason):
        return _hold(context, attempt, outcome)
    context.queue.mark_unschedulable(attempt.key, outcome.rules, context.now())
    return attempt.key, _format_unschedulable(context, attempt, outcome), False


def _dry_run_group(context: SchedulerContext, key: GroupKey, attempt: QueuedPodInfo) -> list[DryRunResult]:
    """Schedule the pods of a pod group together."""
    reason = hold_reason(key, context.snapshot, context.queue.members(key))
    group = context.snapshot.find(PodGroup, *key)
    if reason is not None or group is None:
        assert reason is not None, "a missing group is a reason"
        return [_hold(context, attempt, reason)]
    attempts = {each.key: each for each in (attempt, *context.queue.pop_members(key, context.now()))}
    members = [each.pod for each in attempts.values()]
    result = schedule_group(group, members, context.snapshot, context.profile, new_id, context.nominations)
    placed = result.placements if result.is_scheduled else ()
    found = [_assume(context, attempts.pop(each.pod_info.key), each) for each in placed]
    for each in attempts.values():
        failure = result.failures.get(each.key)
        if isinstance(failure, NodeReason):
            found.append(_hold(context, each, failure))
            continue
        context.queue.mark_unschedulable(each.key, frozenset({Rule.GANG}), context.now())
        why = WAITING_MEMBER if failure is None else render_fit_error(failure)
        why = render(result.reason) if result.reason is not None else why
        name = each.pod.metadata.full_name
        found.append((each.key, _format(context, "would-refuse", pod=name, why=why), False))
    return found


def _assume(context: SchedulerContext, attempt: QueuedPodInfo, placement: Placement) -> DryRunResult:
    """Assume a placement, so that later pods take it into account."""
    pod = attempt.pod
    context.snapshot.assume(placement)
    context.queue.done(attempt.key, context.now())
    bound = replace(pod, spec=replace(pod.spec, node_name=placement.node))
    event = classify_change(pod, bound)
    if event is not None:
        context.queue.on_event(event, context.now())
    fields = {"pod": pod.metadata.full_name, "node": placement.node, "devices": placement.devices or None}
    return attempt.key, _format(context, "would-bind", **fields, feasible=placement.feasible_nodes), True


def _hold(context: SchedulerContext, attempt: QueuedPodInfo, reason: NodeReason) -> DryRunResult:
    context.queue.hold(attempt.pod, reason, context.now())
    name = attempt.pod.metadata.full_name
    return attempt.key, _format(context, "would-hold", pod=name, why=render(reason)), False


def _format_unschedulable(context: SchedulerContext, attempt: QueuedPodInfo, fit_error: FitError) -> str:
    budgets = context.snapshot.all(PodDisruptionBudget)
    profile = context.profile(attempt.pod)
    plan = plan_preemption(fit_error, context.snapshot, profile, budgets, new_id, context.nominations)
    name = attempt.pod.metadata.full_name
    if isinstance(plan, Preemption):
        victims = [victim.metadata.full_name for victim in plan.victims]
        why = render_fit_error(fit_error)
        return _format(context, "would-preempt", pod=name, node=plan.node, victims=victims, why=why)
    return _format(context, "would-refuse", pod=name, why=render_fit_error(fit_error, plan.text))


def _format(context: SchedulerContext, what: str, **fields: object) -> str:
    return format_line(what, fields, context.settings.log.format)
