"""Dry run: one line for each pending pod, no writes.

Each placement is assumed in the local snapshot, so that later pods take earlier ones into account.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.client import Client, ClientConfig
from plimsoll.common.structured_log import format_line, set_up_logging
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext, new_id
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement


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
        line, fine = _dry_run_pod(context, attempt)
        outcomes[attempt.key] = line
        if fine:
            write_line(line)
    for pod in context.queue:
        placed = False
        key = pod.metadata.uid or pod.metadata.full_name
        gates = ",".join(gate.name for gate in pod.spec.scheduling_gates)
        write_line(outcomes.get(key) or _format(context, "gated", pod=pod.metadata.full_name, gates=gates))
    return placed


def _dry_run_pod(context: SchedulerContext, attempt: QueuedPodInfo) -> tuple[str, bool]:
    """Schedule a pod; return its line, and whether it was placed."""
    pod, now = attempt.pod, context.now()
    outcome = context.schedule(pod)
    if isinstance(outcome, Placement):
        context.snapshot.assume(outcome)
        context.queue.done(attempt.key)
        bound = replace(pod, spec=replace(pod.spec, node_name=outcome.node))
        event = classify_change(pod, bound)
        if event is not None:
            context.queue.on_event(event, now)
        fields = {"pod": pod.metadata.full_name, "node": outcome.node, "devices": outcome.devices or None}
        return _format(context, "would-bind", **fields, feasible=outcome.feasible_nodes), True
    if isinstance(outcome, NodeReason):
        context.queue.hold(pod, outcome, now)
        return _format(context, "would-hold", pod=pod.metadata.full_name, why=render(outcome)), False
    context.queue.mark_unschedulable(attempt.key, outcome.rules, now)
    return _format_unschedulable(context, attempt, outcome), False


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
