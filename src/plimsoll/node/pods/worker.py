"""Pod worker: one task per pod that observes, decides, acts and reports until nothing is left.

Observing, deciding and reporting never block. Slow work runs in the background: one task at a time (claims,
sandbox, starting containers, cleanup), and one for each container being stopped, so that a worker always
reacts to a deletion. Guarantees that claims are prepared before the sandbox is created and released after the
last container is gone; that nothing that runs is started again, by this worker or its successor; that a pod
is reported terminated only when none of its containers runs; that a deleted pod is removed from the API only
after everything of it is gone from the node; and that without an API server everything on the node continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

from plimsoll.api.core import Container, Pod
from plimsoll.api.timestamps import parse_time
from plimsoll.node.containers import ContainerInfo, ContainerPhase, RuntimeFault, SandboxInfo
from plimsoll.node.pods import steps
from plimsoll.node.pods.backoff import Failure, Wait, fail, next_wait
from plimsoll.node.pods.components import Parts
from plimsoll.node.pods.decisions import CRASH_LOOP, decide, name_pod
from plimsoll.node.pods.history import lost_states, restarts_of
from plimsoll.node.pods.hooks import POST_START_SECONDS, post_start_of, pre_stop_of, run_hook
from plimsoll.node.pods.phases import TERMINAL
from plimsoll.node.pods.pod_state import (
    Action,
    Begin,
    Cause,
    Decision,
    Ending,
    Launch,
    Remove,
    RunSandbox,
    Situation,
    Stop,
    TerminationRequest,
    Waiting,
)
from plimsoll.node.pods.probes import Probing
from plimsoll.node.pods.resizing import PodResize
from plimsoll.node.pods.status import build_status, device_health, reject_status, tell
from plimsoll.node.pods.status_input import Seen, Tree, text
from plimsoll.node.pods.termination import pod_grace
from plimsoll.node.pods.writer import LOG, WARNING

T = TypeVar("T")
Work: TypeAlias = "Callable[[], Coroutine[Any, Any, None]]"

_REJECTED = "Pod was rejected: "


class PodWorker:
    """Lifecycle of one pod on this node."""

    def __init__(self, pod: Pod, parts: Parts, *, rejected: TerminationRequest | None = None) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.parts = parts
        #: Nothing of the pod is left, neither on the node nor in the API.
        self.finished = False
        self.done = asyncio.Event()
        #: Its containers are gone and its claims are released.
        self.released = asyncio.Event()
        #: Status reported last; empty before the first.
        self.status: Tree = {}
        self._rejected = rejected
        self._order: TerminationRequest | None = rejected
        self._vanished = False
        self._ending: Ending | None = None
        self._closed = False
        self._lost: tuple[ContainerInfo, ...] = ()
        self._waits: dict[str, Wait] = {}
        self._failures: dict[str, Failure] = {}
        self._trouble: Failure | None = None  #: failure of a termination step
        self._resize = PodResize(pod, parts)
        self._waiting: dict[str, Waiting] = {}
        self._stopping: dict[str, float] = {}
        self._stops: set[asyncio.Task[None]] = set()
        self._work: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._probing = Probing(pod, parts, self._wake.set)
        self._wake_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    # -- public interface

    def start(self) -> PodWorker:
        """Start the worker; the runtime has already adopted running containers."""
        now = self.parts.clock()
        self._lost = lost_states(self.pod, self.parts.runtime.containers(self.uid), now)
        self._task = asyncio.create_task(self._run(), name=f"pod {self.pod.metadata.name}")
        return self

    async def stop(self) -> None:
        """Stop the worker; containers keep running, and the next worker takes over."""
        tasks = [task for task in (self._task, self._work, *self._stops) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._probing.stop()
        self._task = self._work = None
        self._stops.clear()

    def update(self, pod: Pod) -> None:
        """Handle a change of the pod in the API."""
        self.pod = pod
        self.parts.writer.observe(pod)
        self._resize.invalidate()
        self._wake.set()

    def vanish(self) -> None:
        """Handle the removal of the pod from the API."""
        self._vanished = True
        self._wake.set()

    def poke(self) -> None:
        """Sync the pod: a container, the health of a device or the room for a resize may have changed."""
        self._resize.invalidate()
        self._wake.set()

    def claims_released(self, uids: frozenset[str]) -> None:
        """Retry at once the steps that wait for the devices of released claims."""
        waiting = [name for name, failure in self._failures.items() if failure.waits_for & uids]
        for name in waiting:
            del self._failures[name]
        if waiting:
            self._wake.set()

    def terminate(self, request: TerminationRequest) -> None:
        """Request the termination of the pod as Failed (an eviction). The first request counts."""
        if self._order is None:
            self._order = request
            self._wake.set()

    @property
    def waits_for_room(self) -> bool:
        """Whether its resize is deferred until other pods release resources."""
        return self._resize.waits_for_room

    @property
    def ending(self) -> Ending | None:
        return self._ending

    @property
    def closed(self) -> bool:
        """Whether its containers are gone and its claims are released, so that its resources are free."""
        return self._closed

    @property
    def active(self) -> bool:
        """Whether the pod has not terminated yet."""
        phase = text(self.status, "phase") or self.pod.status.phase
        return not self._closed and phase not in TERMINAL

    # -- sync loop

    async def _run(self) -> None:
        while not self.finished:
            self._wake.clear()
            try:
                self._turn()
            except Exception:
                LOG.exception("pod %s: sync failed", name_pod(self.pod))
                self._wake_at = self.parts.clock() + self.parts.timing.retry_most
            if not self.finished:
                await self._sleep()
        await self._probing.stop()
        self.done.set()

    async def _sleep(self) -> None:
        if self._wake_at is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, self._wake_at - self.parts.clock())):
                await self._wake.wait()
        except TimeoutError:
            return

    def _turn(self) -> None:
        at = self._look()
        decision = decide(at)
        self._ending = decision.ending
        self._announce(decision)
        self._waiting = dict(decision.waiting)
        self._wake_at = decision.wake_at
        for stop in decision.stops:
            self._start_stop(stop)
        if self._work is None:
            work = self._next_work(at, decision)
            if work is not None:
                self._work = asyncio.create_task(self._do(work), name=f"work on {self.pod.metadata.name}")
        self._tell(at)

    def _look(self) -> Situation:
        started = text(self.status, "startTime") or self.pod.status.start_time
        states = self.parts.runtime.containers(self.uid)
        self._probing.follow(self.pod, states, ending=self._ending is not None)
        return Situation(
            pod=self.pod,
            now=self.parts.clock(),
            timing=self.parts.timing,
            sandbox=self._sandbox(),
            states=(*self._lost, *states),
            restarts=restarts_of(self.pod),
            waits=self._waits,
            failures=self._failures,
            probes=self._probing.probed,
            order=self._order,
            vanished=self._vanished,
            started_at=parse_time(started),
            ending=self._ending,
            forced=self._resize.restarting,
            stopping=self._stopping,
        )

    def _sandbox(self) -> SandboxInfo | None:
        return next((each for each in self.parts.runtime.sandboxes() if each.uid == self.uid), None)

    def _announce(self, decision: Decision) -> None:
        for name, waiting in decision.waiting.items():
            if waiting.reason == CRASH_LOOP and self._waiting.get(name) != waiting:
                message = f"Back-off restarting failed container {name} in pod {name_pod(self.pod)}"
                self._say_failed("BackOff", message, name)

    def _next_work(self, at: Situation, decision: Decision) -> Work | None:
        if decision.ending is None:
            if decision.others:
                return partial(self._perform, decision.others)
            return self._next_resize(at)
        if any(state.phase is ContainerPhase.RUNNING for state in at.states) or self._stops:
            return None
        if self._trouble is not None:
            again = self._trouble.again_at(self.parts.timing)
            if again > at.now:
                self._wake_at = again
                return None
        if not self._closed:
            return self._close
        if self._vanished or self.pod.metadata.deletion_timestamp is not None:
            return self._bury
        return None

    def _next_resize(self, at: Situation) -> Work | None:
        self._resize.settle(self.pod, at.states)
        if at.sandbox is not None and self._resize.wants(self.pod, at.states, at.now):
            return partial(self._apply_resize, at)
        if self._resize.again_at is not None:
            again = self._resize.again_at
            self._wake_at = again if self._wake_at is None else min(self._wake_at, again)
        return None

    async def _apply_resize(self, at: Situation) -> None:
        for state in await self._resize.work(self.pod, at.states):
            grace = pod_grace(self.pod, self.parts.timing.grace_default)
            message = f"Container {state.name} resize requires restart"
            self._start_stop(Stop(state.id, state.name, grace, message))

    async def _do(self, work: Work) -> None:
        try:
            await work()
        except Exception as error:
            LOG.exception("pod %s: a step failed", name_pod(self.pod))
            self._trouble = fail(self._trouble, "Error", str(error), self.parts.clock())
            self._failures[""] = fail(self._failures.get(""), "Error", str(error), self.parts.clock())
        finally:
            self._work = None
            self._wake.set()

    # -- starting

    def _ends(self) -> bool:
        """Return whether nothing may be started any more."""
        deleted = self.pod.metadata.deletion_timestamp is not None
        return deleted or self._vanished or self._order is not None or self._ending is not None

    async def _perform(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Remove):
                await self.parts.runtime.remove_container(action.id)
            elif self._ends():
                return
            elif isinstance(action, RunSandbox):
                await self._make_sandbox(action)
            elif isinstance(action, Begin):
                await self._begin(action)
            elif isinstance(action, Launch):
                await self._launch(action)

    async def _make_sandbox(self, action: RunSandbox) -> None:
        pod = self._given()
        fault = steps.check_volumes(pod, self.parts)
        if fault is None:
            fault = await steps.prepare_claims(pod, self.parts)
        if fault is None:
            if self._ends():
                return
            fault = await steps.make_sandbox(pod, self.parts, stale=action.stale)
        if fault is None:
            self._failures.pop("", None)
            return
        self._note_failure("", fault)
        self.parts.events.say(self.pod, fault.reason, fault.message, type=WARNING)

    async def _begin(self, action: Begin) -> None:
        name = action.container.name
        spec = await steps.specify(self._given(), action, self.parts)
        if isinstance(spec, RuntimeFault):
            self._fail(name, spec)
            return
        if self._ends():
            return
        if action.replaces:
            await self.parts.runtime.remove_container(action.replaces)
        fault = await self.parts.runtime.create(spec)
        if fault is not None:
            self._fail(name, fault)
            return
        if action.ended_at is not None:
            known = self._waits.get(name)
            self._waits[name] = next_wait(known, action.ended_at, self.parts.clock(), self.parts.timing)
        self._resize.restarting.discard(name)
        self.parts.events.say(self.pod, "Created", "Container created", container=name)
        await self._start(action.container, spec.id)

    async def _launch(self, action: Launch) -> None:
        await self._start(action.container, action.id)

    async def _start(self, container: Container, id: str) -> None:
        name = container.name
        fault = await self.parts.runtime.start_container(id)
        if fault is not None:
            self._fail(name, fault)
            return
        self.parts.events.say(self.pod, "Started", "Container started", container=name)
        handler = post_start_of(container)
        if handler is not None:
            work = run_hook(handler, container, id, self.pod, self.parts, POST_START_SECONDS)
            outcome = await self._until(self._ends, work)
            if outcome is not None and not outcome.ok:
                self._say_failed("FailedPostStartHook", "PostStartHook failed", name)
                await self.parts.runtime.stop_container(
                    id, pod_grace(self.pod, self.parts.timing.grace_default)
                )
                self._fail(name, RuntimeFault("PostStartHookError", outcome.text))
                return
        self._failures.pop(name, None)

    def _say_failed(self, reason: str, message: str, container: str) -> None:
        self.parts.events.say(self.pod, reason, message, type=WARNING, container=container)

    def _fail(self, name: str, fault: RuntimeFault) -> None:
        self._note_failure(name, fault)
        self._say_failed("Failed", f"Error: {fault.message}", name)

    def _note_failure(self, name: str, fault: RuntimeFault) -> None:
        known, now = self._failures.get(name), self.parts.clock()
        self._failures[name] = fail(known, fault.reason, fault.message, now, fault.waits_for)

    def _given(self) -> Pod:
        """Return the pod with its allocated resources, which a pending resize does not change."""
        return self.pod if self.parts.resizes is None else self.parts.resizes.allocated(self.pod)

    # -- stopping

    def _start_stop(self, stop: Stop) -> None:
        first = stop.id not in self._stopping
        deadline = self.parts.clock() + stop.grace
        self._stopping[stop.id] = deadline
        if first:
            self.parts.events.say(self.pod, "Killing", stop.message, container=stop.name)
        work = self._stop_container(stop, deadline, first=first)
        task = asyncio.create_task(work, name=f"stop of {stop.name}")
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _stop_container(self, stop: Stop, deadline: float, *, first: bool) -> None:
        try:
            # DIFF: a kubelet runs the preStop hooks of sidecars at once, while the containers they serve
            # still run: test_the_hook_of_a_sidecar_waits_for_its_turn.
            hook = pre_stop_of(self.pod, stop.name) if first else None
            if hook is not None:
                container, handler = hook
                outcome = await run_hook(handler, container, stop.id, self.pod, self.parts, stop.grace)
                if not outcome.ok:
                    self._say_failed("FailedPreStopHook", "PreStopHook failed", stop.name)
            grace = max(deadline - self.parts.clock(), min(stop.grace, self.parts.timing.grace_least))
            await self.parts.runtime.stop_container(stop.id, grace)
            if any(
                s.id == stop.id and s.phase is ContainerPhase.RUNNING
                for s in self.parts.runtime.containers(self.uid)
            ):
                LOG.warning("pod %s: container %s does not terminate", name_pod(self.pod), stop.name)
                await asyncio.sleep(self.parts.timing.retry_first)
        except Exception:
            LOG.exception("pod %s: container %s cannot be stopped", name_pod(self.pod), stop.name)
            await asyncio.sleep(self.parts.timing.retry_first)
        finally:
            if self._stopping.get(stop.id) == deadline:
                del self._stopping[stop.id]
            # The task itself still counts among the stops until its callback has run.
            asyncio.get_running_loop().call_soon(self._wake.set)

    # -- termination

    async def _close(self) -> None:
        """Stop the sandbox and release the claims, once all containers are gone."""
        states = self.parts.runtime.containers(self.uid)
        for state in states:
            if state.phase is ContainerPhase.CREATED:
                await self.parts.runtime.remove_container(state.id)
        await self.parts.runtime.stop_sandbox(self.uid)
        fault = await steps.release_claims(self.uid, self.parts)
        if fault is not None:
            LOG.warning("pod %s: %s", name_pod(self.pod), fault.message)
            self._trouble = fail(self._trouble, fault.reason, fault.message, self.parts.clock())
            self.parts.events.say(self.pod, fault.reason, fault.message, type=WARNING)
            return
        self._trouble = None
        self._closed = True
        self.released.set()

    async def _bury(self) -> None:
        """Remove what is left of the pod, and delete it from the API."""
        if not self._vanished:
            await self._until(self._is_gone, self.parts.writer.settle(self.uid))
        await self.parts.runtime.remove_sandbox(self.uid)
        if not self._vanished:
            gone = await self._until(self._is_gone, self.parts.writer.delete(self.pod))
            self._vanished = self._vanished or bool(gone)
            if not self._vanished:
                await self._heed(self._is_gone)
        self.parts.writer.forget(self.uid)
        self.finished = True

    async def _until(self, condition: Callable[[], bool], work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of the work, or None if the condition becomes true first."""
        task = asyncio.create_task(work)
        watch = asyncio.create_task(self._heed(condition))
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, watch):
                each.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _heed(self, condition: Callable[[], bool]) -> None:
        # The sync loop runs concurrently and clears the event; waiters are woken all the same.
        while not condition():
            await self._wake.wait()
            await asyncio.sleep(0)

    def _is_gone(self) -> bool:
        return self._vanished

    # -- status

    def _tell(self, at: Situation) -> None:
        if self._vanished or self._is_settled():
            return
        if self._rejected is not None:
            order = self._rejected
            self.status = reject_status(self.pod, order.reason, _REJECTED + order.message, at.now)
        else:
            self.status = build_status(self._see(at))
        self.parts.writer.put(self.pod, self.status)

    def _is_settled(self) -> bool:
        """Return whether the pod had terminated before this worker started, and nothing of it is
        known here.
        """
        ended = self._ending is not None and self._ending.cause is Cause.TERMINAL
        return ended and not self.status and not self.parts.runtime.containers(self.uid)

    def _see(self, at: Situation) -> Seen:
        return Seen(
            pod=self.pod,
            now=at.now,
            before=self.status or tell(self.pod),
            states=self.parts.runtime.containers(self.uid),
            sandbox=at.sandbox,
            probes=self._probing.probed,
            waiting=self._waiting,
            ending=self._ending,
            terminal=self._closed,
            disruption=self._order.disruption if self._order is not None else "",
            runtime=self.parts.runtime.name,
            host_ips=self.parts.facts().host_ips,
            allocated={c.name: c.resources for c in _containers(self._given())},
            whole=self._given().spec.resources,
            actual=self._resize.actual,
            health=self._health(),
            resize=self._resize.conditions,
        )

    def _health(self) -> dict[str, list[Tree]]:
        prepared = self.parts.claim_cache.claims_of_pod(self.uid)
        if not prepared:
            return {}
        found = {
            c.name: device_health(self.pod, c, prepared, self.parts.health) for c in self.pod.spec.containers
        }
        return {name: health for name, health in found.items() if health}


def reject(pod: Pod, reason: str, message: str, parts: Parts) -> PodWorker:
    """Fail a pod that the node rejected; the worker stays until the pod is gone from the API."""
    parts.events.say(pod, reason, message, type=WARNING)
    return PodWorker(pod, parts, rejected=TerminationRequest(reason, message)).start()


def _containers(pod: Pod) -> tuple[Any, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)
