"""Scheduling loop: fairness, limits, and results of bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from plimsoll.api.core import Pod
from plimsoll.scheduler.binding.result import BindFailure, BindStep, BindSuccess
from plimsoll.scheduler.process.binder import PodBinder
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.failure_handler import FailureHandler
from plimsoll.scheduler.process.loop import SchedulingLoop
from plimsoll.scheduler.queue import QueuedPodInfo, QueueState
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import node, pod

Done = Callable[[Placement, BindSuccess | BindFailure], None]


class FakeFailureHandler:
    """Failure handler that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def on_assumed(self, placement: Placement) -> None:
        pass

    def on_bound(self, placement: Placement) -> None:
        self.calls.append(("scheduled", placement.pod_info.pod.metadata.name))

    def handle_unschedulable(self, attempt: QueuedPodInfo, fit_error: FitError) -> bool:
        self.calls.append(("refused", attempt.pod.metadata.name))
        return False

    def handle_error(self, attempt: QueuedPodInfo, error: str) -> None:
        self.calls.append((error, attempt.pod.metadata.name))

    def report_later(self, pod: Pod, reason: NodeReason) -> None:
        self.calls.append(("held", pod.metadata.name))

    def forget(self, key: str) -> None:
        pass

    def release_unused_claim(
        self, attempt: QueuedPodInfo, fit_error: FitError, then: Callable[[], None]
    ) -> None:
        then()

    async def stop(self, seconds: float) -> int:
        self.calls.append(("stopped", ""))
        return 0


class FakeBinder:
    """Binder whose bindings end on request."""

    def __init__(self, done: Done, limit: int) -> None:
        self.done = done
        self.limit = limit
        self.placements: list[Placement] = []

    @property
    def is_full(self) -> bool:
        return len(self.placements) >= self.limit

    def start(self, placement: Placement, permit: Any = None) -> None:
        self.placements.append(placement)

    def end(self, outcome: BindSuccess | BindFailure) -> None:
        self.done(self.placements.pop(0), outcome)

    async def drain(self, seconds: float) -> int:
        left, self.placements = len(self.placements), []
        return left


def make(
    count: int, *, limit: int = 1000, batch_seconds: float = 1e9, clock: Callable[[], float] = lambda: 0.0
) -> tuple[SchedulerContext, SchedulingLoop, FakeBinder, FakeFailureHandler]:
    context = SchedulerContext.create(SchedulerSettings())
    context.informers.synced = True
    context.informers.on_event(None, node("n1", cpu="4"))
    for number in range(count):
        context.informers.on_pod_event(None, pod(f"p{number}", cpu="1", scheduler_name="plimsoll"))
    binders: list[FakeBinder] = []

    def binder(done: Any) -> PodBinder:
        binders.append(FakeBinder(done, limit))
        return cast(PodBinder, binders[0])

    failures = FakeFailureHandler()
    loop = SchedulingLoop(
        context, cast(FailureHandler, failures), binder, batch_seconds=batch_seconds, clock=clock
    )
    return context, loop, binders[0], failures


def test_the_loop_yields_to_other_tasks() -> None:
    times = iter(range(10_000))
    _, loop, binder, _ = make(4, batch_seconds=10.0, clock=lambda: float(next(times)))
    assert loop.schedule_batch()
    assert 0 < len(binder.placements) < 4, "every look at the clock takes a second"
    while loop.schedule_batch():
        pass
    assert len(binder.placements) == 4


def test_no_scheduling_after_the_lease_is_lost() -> None:
    _, loop, binder, _ = make(2, limit=3)
    leading = iter((True, False))
    loop.may_decide = lambda: next(leading, False)
    assert loop.schedule_batch()
    assert len(binder.placements) == 1
    assert not loop.schedule_batch()


def test_no_more_bindings_than_allowed() -> None:
    context, loop, binder, _ = make(4, limit=3)
    loop.schedule_batch()
    assert loop.in_flight == 3
    assert not loop.schedule_batch()
    binder.end(BindSuccess("n1"))
    loop.schedule_batch()
    assert loop.in_flight == 3
    assert context.queue.lengths()["active"] == 0


def test_results_of_bindings() -> None:
    context, loop, binder, failures = make(5)
    loop.schedule_batch()
    assert failures.calls == [("refused", "p4")], "four fit"
    assert context.queue.state_of("uid-p4") is QueueState.UNSCHEDULABLE
    binder.end(BindSuccess("n1"))
    assert failures.calls[1:] == [("scheduled", "p0")]
    assert "uid-p0" not in context.queue
    binder.end(BindFailure(BindStep.ALLOCATION, "it broke"))
    assert failures.calls[2:] == [("it broke", "p1")]
    assert context.queue.state_of("uid-p1") is QueueState.BACKOFF
    assert context.queue.state_of("uid-p4") is not QueueState.UNSCHEDULABLE, "there is room again"
    binder.end(BindFailure(BindStep.BINDING, "it is on another node", final=True))
    assert "uid-p2" not in context.queue
    assert len(failures.calls) == 3
    assert context.metrics.steps.values == {("allocation",): 1}
    assert set(context.snapshot.assumed) == {"uid-p0", "uid-p3"}
    assert verify(context.snapshot) == []


def test_cancelled_bindings_stay_assumed() -> None:
    """Their writes may still take effect: their resources stay assumed in this process."""
    context, loop, _, failures = make(3)

    async def scenario() -> None:
        task = asyncio.create_task(loop.run(5.0))
        while loop.in_flight < 3:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    assert len(context.snapshot.assumed) == 3
    assert loop.cancelled == 3
    assert context.queue.lengths()["active"] == context.queue.lengths()["backoff"] == 0
    assert failures.calls == [("stopped", "")]
    assert verify(context.snapshot) == []


def test_a_pod_re_added_during_its_binding_is_queued_at_the_time_of_the_result() -> None:
    context, loop, binder, _ = make(1)
    loop.schedule_batch()
    context.queue.remove("uid-p0")
    context.queue.add(pod("p0", cpu="1", scheduler_name="plimsoll"), context.now())
    began = context.now()
    binder.end(BindSuccess("n1"))
    attempt = context.queue.pop(context.now())
    assert attempt is not None
    assert attempt.queued_at >= began > 0


def test_a_bound_pod_is_left_alone() -> None:
    context, loop, binder, failures = make(1)
    loop.schedule_batch()
    binder.end(BindSuccess("n1"))
    context.queue.add(pod("p0", cpu="1", scheduler_name="plimsoll"), context.now())
    assert loop.schedule_batch()
    assert len(context.queue) == 0
    assert set(context.snapshot.assumed) == {"uid-p0"}
    assert failures.calls == [("scheduled", "p0")]
