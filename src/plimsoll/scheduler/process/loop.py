"""The scheduling loop: pods from the queue, decisions, and what follows from them.

`Loop` is the work of the leader: take a pod, read its claims, decide (`schedule_one`), assume the placement
at once and bind it in the background; or report why the pod is unschedulable, and look for pods to preempt.
Deciding never keeps the event loop for more than a few milliseconds at a time; the number of bindings under
way is bounded; whatever goes wrong with one pod concerns that pod alone. A loop that has ended is not started
again: bindings that were cancelled may still land, so their pods and devices stay assumed, and a new process
takes over (`takeover.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from plimsoll.api.core import Pod
from plimsoll.common.structured_log import log_event
from plimsoll.scheduler.binding.bind import Bound, Failed
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.events import make_release_event, node_capacity
from plimsoll.scheduler.pod_claims import PRE_ENQUEUE_REASONS, read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.binder import Bindings
from plimsoll.scheduler.process.context import World, new_id
from plimsoll.scheduler.process.failure_handler import Aftermath
from plimsoll.scheduler.process.filter_timing import SUCCESS, Probe
from plimsoll.scheduler.process.metrics import ERROR, UNSCHEDULABLE
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement

LOG = logging.getLogger("plimsoll.scheduler")

#: How long decisions are made before others get their turn (seconds).
_TURN = 0.004
#: The longest rest, if nothing happens meanwhile (seconds).
_REST = 1.0
UNRESOLVED, FAILURE = "Unschedulable", "ScheduleAttemptFailure"


@dataclass(frozen=True, slots=True)
class Flight:
    """A pod whose binding is under way."""

    attempt: QueuedPodInfo
    placement: Placement
    began: float


class Loop:
    """Schedules until it is asked to stop, or cancelled."""

    def __init__(
        self,
        world: World,
        aftermath: Aftermath,
        bindings: Callable[[Callable[[Placement, Bound | Failed], None]], Bindings],
        *,
        may_decide: Callable[[], bool] = lambda: True,
        turn: float = _TURN,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`may_decide` tells, at any moment, whether we still lead."""
        self._world = world
        self._aftermath = aftermath
        self._bindings = bindings(self._bound)
        self._turn = turn
        self._clock = clock
        self._flights: dict[str, Flight] = {}
        self._probe = Probe(world.metrics)
        self._stopping = False
        self._may_decide = may_decide
        #: How many bindings were cancelled before they had ended.
        self.cancelled = 0

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    def stop(self) -> None:
        """Take no more pods; `run` ends when the bindings under way have."""
        self._stopping = True
        self._world.stir.set()

    async def run(self, patience: float = 0.0) -> None:
        """Schedule; after `stop`, give the bindings under way so many seconds to end."""
        try:
            while not self._stopping:
                if self._work():
                    self._world.memory.busy()
                    await asyncio.sleep(0)
                else:
                    await self._rest()
            self.cancelled += await self._bindings.drain(patience)
        finally:
            self.cancelled += await self._bindings.drain(0)
            if self.cancelled:
                LOG.warning("%d bindings cancelled; the next leader resumes them", self.cancelled)
            self.cancelled += await self._aftermath.stop(patience if self._stopping else 0)

    async def _rest(self) -> None:
        """Wait until something happens, or until a pod's back-off is over."""
        world = self._world
        world.memory.idle()
        due = None if self._bindings.full else world.queue.next_due(world.now())
        seconds = _REST if due is None else min(_REST, max(0.0, due / 1000))
        world.stir.clear()
        try:
            async with asyncio.timeout(seconds):
                await world.stir.wait()
        except TimeoutError:
            pass

    # -- deciding

    def _work(self) -> bool:
        """Decide about pods for a while; whether there was one."""
        queue, now = self._world.queue, self._world.now
        until, worked = self._clock() + self._turn, False
        while not self._bindings.full and self._clock() < until and self._may_decide():
            attempt = queue.pop(now())
            if attempt is None:
                break
            worked = True
            began = self._clock()
            try:
                self._attempt(attempt, began)
            except Exception as error:  # one pod must not stop all others
                LOG.exception("pod %s: no decision", full_name(attempt.pod))
                self._world.snapshot.forget(attempt.key)
                self._fail(attempt, began, f"{type(error).__name__}: {error}")
        return worked

    def _attempt(self, attempt: QueuedPodInfo, began: float) -> None:
        world = self._world
        if world.snapshot.find_pod(attempt.key) is not None:
            world.queue.done(attempt.key, world.now())  # it has its place already
            return
        outcome = decide(world, attempt.pod, self._probe)
        if isinstance(outcome, NodeReason):
            world.queue.hold(attempt.pod, outcome, world.now())
            self._aftermath.hold(attempt.pod, outcome)
            return
        world.metrics.decided(self._clock() - began)
        if isinstance(outcome, Placement):
            self._place(attempt, outcome, began)
        else:
            profile = attempt.pod.spec.scheduler_name
            self._aftermath.release_abandoned(
                attempt, outcome, partial(self._unschedulable, attempt, outcome)
            )
            world.metrics.failed(UNSCHEDULABLE, profile, self._clock() - began)
            world.metrics.refused(attempt.key, outcome.rules, profile)
            start = self._clock()
            self._aftermath.refuse(attempt, outcome)
            point = world.metrics.extension_point.at("PostFilter", UNRESOLVED, profile)
            point.observe(self._clock() - start)

    def _unschedulable(self, attempt: QueuedPodInfo, outcome: FitError) -> None:
        """Have a pod wait for an event that can help it."""
        world = self._world
        world.queue.mark_unschedulable(
            attempt.key, outcome.rules, world.now(), needs_capacity=needs_capacity(outcome)
        )
        world.joined(attempt.key, FAILURE)
        world.stir.set()

    # -- binding

    def _place(self, attempt: QueuedPodInfo, placement: Placement, began: float) -> None:
        world, key = self._world, attempt.key
        world.snapshot.assume(placement)
        world.nominations.drop(key)
        world.metrics.cleared(key)
        self._aftermath.leave(key)
        self._flights[key] = Flight(attempt, placement, began)
        self._aftermath.placed(placement)
        self._bindings.start(placement)

    def _bound(self, placement: Placement, outcome: Bound | Failed) -> None:
        """A binding has come to an end."""
        world = self._world
        flight = self._flights.pop(placement.pod_info.key)
        attempt = flight.attempt
        if isinstance(outcome, Bound):
            self._done(flight)
        elif outcome.over:
            self._release(flight)
            world.queue.done(attempt.key, world.now())
        else:
            self._release(flight)
            world.metrics.steps.add(outcome.step.value)
            self._fail(attempt, flight.began, outcome.error)
        world.stir.set()

    def _done(self, flight: Flight) -> None:
        world, attempt, placement = self._world, flight.attempt, flight.placement
        world.queue.done(attempt.key)
        world.snapshot.confirm(attempt.key)
        now, seconds = world.now(), self._clock() - flight.began
        waited = (now - attempt.queued_at) / 1000
        world.metrics.scheduled(attempt.pod.spec.scheduler_name, seconds, waited, attempt.attempts)
        world.metrics.extension_point.at("Bind", SUCCESS, attempt.pod.spec.scheduler_name).observe(seconds)
        self._aftermath.scheduled(placement)
        log_event(
            LOG,
            "bound",
            pod=full_name(attempt.pod),
            node=placement.node,
            devices=devices_of(placement) or None,
            attempts=attempt.attempts,
            waited_ms=now - attempt.queued_at,
            bind_ms=round(seconds * 1000, 1),
        )

    def _fail(self, attempt: QueuedPodInfo, began: float, error: str) -> None:
        """Something went wrong that is nobody's refusal: try again, later."""
        world = self._world
        world.queue.retry(attempt.key, world.now())
        world.joined(attempt.key, FAILURE)
        world.metrics.failed(ERROR, attempt.pod.spec.scheduler_name, self._clock() - began)
        self._aftermath.fail(attempt, error)

    def _release(self, flight: Flight) -> None:
        """A pod does not go where it was assumed: others may."""
        world, placement = self._world, flight.placement
        world.snapshot.forget(flight.attempt.key)
        room = node_capacity(world.snapshot, placement.node)
        world.queue.on_event(make_release_event(placement.pod_info.pod, room), world.now())


def decide(world: World, pod: Pod, probe: Probe | None = None) -> Placement | FitError | NodeReason:
    """A place for a pod, or why there is none, or why it is not worth an attempt yet."""
    pod_info = read_pod_info(pod, world.snapshot)
    if isinstance(pod_info, NodeReason):
        if pod_info.message in PRE_ENQUEUE_REASONS:
            return pod_info
        return FitError(PodInfo(pod, (), world.snapshot.options), len(world.snapshot), ((pod_info, 0),))
    profile = world.profile(pod)
    if probe is not None and probe.due:
        probe.measure(pod_info, world.snapshot, profile)
    return schedule_one(pod_info, world.snapshot, profile, new_id, world.nominations)


def devices_of(placement: Placement) -> list[str]:
    """The devices a placement gives out, as driver/pool/device."""
    return [
        f"{result.driver}/{result.pool}/{result.device}"
        for allocation in placement.allocations.values()
        for result in allocation.devices.results
    ]


def full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
