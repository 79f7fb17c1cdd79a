"""What the scheduler would do, and nothing else: one line for each pod that waits, no writes.

Owns `report_all`. Everything is read as by the real thing; each decision is assumed on our own snapshot, so
that the lines belong together: the second pod is told about a node on which the first has its place already.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.client import Client, ClientConfig
from plimsoll.common.structured_log import format_line, set_up_logging
from plimsoll.scheduler.binding.pod_conditions import render_unplaced
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import World, new_id
from plimsoll.scheduler.process.loop import decide, devices_of, full_name
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement


async def report_all(config: ClientConfig, settings: SchedulerSettings, say: Callable[[str], None]) -> bool:
    """Say where each pod that waits would go; whether all of them would go somewhere."""
    set_up_logging(settings.log_format, verbose=settings.verbose)
    world = World.make(settings)
    async with Client.connect(config.interactive()) as client:
        await world.feed.read(client)
    return report(world, say)


def report(world: World, say: Callable[[str], None]) -> bool:
    """The same for what is known already."""
    placed = True
    outcomes: dict[str, str] = {}
    while (attempt := world.queue.pop(world.now())) is not None:
        line, fine = _judge(world, attempt)
        outcomes[attempt.key] = line
        if fine:
            say(line)
    for pod in world.queue:
        placed = False
        key = pod.metadata.uid or full_name(pod)
        gates = ",".join(gate.name for gate in pod.spec.scheduling_gates)
        say(outcomes.get(key) or _line(world, "gated", pod=full_name(pod), gates=gates))
    return placed


def _judge(world: World, attempt: QueuedPodInfo) -> tuple[str, bool]:
    """Decide about a pod; the line for it, and whether it has a place."""
    pod, now = attempt.pod, world.now()
    outcome = decide(world, pod)
    if isinstance(outcome, Placement):
        world.snapshot.assume(outcome)
        world.queue.done(attempt.key)
        bound = replace(pod, spec=replace(pod.spec, node_name=outcome.node))
        happening = classify_change(pod, bound)
        if happening is not None:
            world.queue.on_event(happening, now)
        facts = {"pod": full_name(pod), "node": outcome.node, "devices": devices_of(outcome) or None}
        return _line(world, "would-bind", **facts, feasible=outcome.feasible_nodes), True
    if isinstance(outcome, NodeReason):
        world.queue.hold(pod, outcome, now)
        return _line(world, "would-hold", pod=full_name(pod), why=render(outcome)), False
    world.queue.mark_unschedulable(attempt.key, outcome.rules, now)
    return _refusal(world, attempt, outcome), False


def _refusal(world: World, attempt: QueuedPodInfo, fit_error: FitError) -> str:
    budgets = world.snapshot.all(PodDisruptionBudget)
    profile = world.profile(attempt.pod)
    plan = plan_preemption(fit_error, world.snapshot, profile, budgets, new_id, world.nominations)
    name = full_name(attempt.pod)
    if isinstance(plan, Preemption):
        victims = [full_name(victim) for victim in plan.victims]
        why = render_unplaced(fit_error)
        return _line(world, "would-preempt", pod=name, node=plan.node, victims=victims, why=why)
    return _line(world, "would-refuse", pod=name, why=render_unplaced(fit_error, plan.text))


def _line(world: World, what: str, **facts: object) -> str:
    return format_line(what, facts, world.settings.log_format)
