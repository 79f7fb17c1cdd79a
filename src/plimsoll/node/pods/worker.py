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
from typing import Any, TypeAlias

from plimsoll.api.core import Container, Pod
from plimsoll.api.timestamps import parse_time
from plimsoll.common.json_tree import text
from plimsoll.common.tasks import cancel_tasks, run_until, wait_until
from plimsoll.node.containers import ContainerInfo, ContainerPhase, RuntimeFault, SandboxInfo
from plimsoll.node.pods import steps
from plimsoll.node.pods.backoff import RestartBackoff, StepFailure, next_backoff, record_failure
from plimsoll.node.pods.container_stopper import ContainerStopper
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.lifecycle_hooks import POST_START_SECONDS, post_start_of, run_hook
from plimsoll.node.pods.lost_containers import lost_states, restarts_of
from plimsoll.node.pods.phases import TERMINAL
from plimsoll.node.pods.pod_actions import CRASH_LOOP, compute_pod_actions, format_pod
from plimsoll.node.pods.pod_resize import PodResize
from plimsoll.node.pods.pod_state import (
    Action,
    CreateContainer,
    PodActions,
    PodState,
    RemoveContainer,
    RunSandbox,
    StartContainer,
    StopContainer,
    Termination,
    TerminationCause,
    TerminationRequest,
    WaitingReason,
)
from plimsoll.node.pods.probes import ProbeManager
from plimsoll.node.pods.status import build_status, device_health, reject_status, reported_status
from plimsoll.node.pods.status_input import StatusInput, Tree
from plimsoll.node.pods.termination import pod_grace
from plimsoll.node.pods.writer import LOG, WARNING

Work: TypeAlias = "Callable[[], Coroutine[Any, Any, None]]"

_REJECTED = "Pod was rejected: "


class PodWorker:
    """Lifecycle of one pod on this node."""

    def __init__(
        self, pod: Pod, deps: WorkerDependencies, *, rejected: TerminationRequest | None = None
    ) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.deps = deps
        #: Nothing of the pod is left, neither on the node nor in the API.
        self.finished = False
        self.done = asyncio.Event()
        #: Its containers are gone and its claims are released.
        self.released = asyncio.Event()
        #: Status reported last; empty before the first.
        self.status: Tree = {}
        self._rejected = rejected
        self._termination_request: TerminationRequest | None = rejected
        self._removed = False
        self._termination: Termination | None = None
        self._is_released = False
        self._lost: tuple[ContainerInfo, ...] = ()
        self._backoffs: dict[str, RestartBackoff] = {}
        self.failures: dict[str, StepFailure] = {}
        self._termination_failure: StepFailure | None = None  #: failure of a termination step
        self._resize = PodResize(pod, deps)
        self._waiting: dict[str, WaitingReason] = {}
        self.work: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.stopper = ContainerStopper(lambda: self.pod, deps, self._wake.set)
        self._probe_manager = ProbeManager(pod, deps, self._wake.set)
        self._wake_at: float | None = None
        self.task: asyncio.Task[None] | None = None

    # -- public interface

    def start(self) -> PodWorker:
        """Start the worker; the runtime has already adopted running containers."""
        now = self.deps.clock()
        if self.deps.volumes is not None and self._sandbox() is not None:
            self.deps.volumes.adopt(self.pod)
        self._lost = lost_states(self.pod, self.deps.runtime.containers(self.uid), now)
        self.task = asyncio.create_task(self._run(), name=f"pod {self.pod.metadata.name}")
        return self

    async def stop(self) -> None:
        """Stop the worker; containers keep running, and the next worker takes over."""
        tasks = [task for task in (self.task, self.work, *self.stopper.tasks) if task is not None]
        await cancel_tasks(tasks)
        await self._probe_manager.stop()
        self.task = self.work = None
        self.stopper.tasks.clear()

    def update(self, pod: Pod) -> None:
        """Handle a change of the pod in the API."""
        self.pod = pod
        self.deps.writer.observe(pod)
        if self.deps.volumes is not None:
            self.deps.volumes.update(pod)
        self._resize.invalidate()
        self._wake.set()

    def mark_removed(self) -> None:
        """Handle the removal of the pod from the API."""
        self._removed = True
        self._wake.set()

    def notify(self) -> None:
        """Sync the pod: a container, the health of a device or the room for a resize may have changed."""
        self._resize.invalidate()
        self._wake.set()

    def claims_released(self, uids: frozenset[str]) -> None:
        """Retry at once the steps that wait for the devices of released claims."""
        waiting = [name for name, failure in self.failures.items() if failure.waits_for & uids]
        for name in waiting:
            del self.failures[name]
        if waiting:
            self._wake.set()

    def devices_changed(self) -> None:
        """Retry at once the steps that wait for devices of device plugins."""
        waiting = [name for name, failure in self.failures.items() if failure.reason == steps.DEVICES_FAILED]
        for name in waiting:
            del self.failures[name]
        if waiting:
            self._wake.set()

    def terminate(self, request: TerminationRequest) -> bool:
        """Request the termination of the pod as Failed (an eviction). Return whether it is the first request,
        which counts.
        """
        if self._termination_request is not None:
            return False
        self._termination_request = request
        self._wake.set()
        return True

    @property
    def deferred_since(self) -> float | None:
        """Time since which its resize is deferred until other pods release resources; None if it is not."""
        return self._resize.deferred_since

    @property
    def termination(self) -> Termination | None:
        return self._termination

    @property
    def active(self) -> bool:
        """True until the pod has terminated."""
        phase = text(self.status, "phase") or self.pod.status.phase
        return not self._is_released and phase not in TERMINAL

    # -- sync loop

    async def _run(self) -> None:
        while not self.finished:
            self._wake.clear()
            try:
                self._sync()
            except Exception:
                LOG.exception("pod %s: sync failed", format_pod(self.pod))
                self._wake_at = self.deps.clock() + self.deps.timing.retry_max
            if not self.finished:
                await self._sleep()
        await self._probe_manager.stop()
        self.done.set()

    async def _sleep(self) -> None:
        if self._wake_at is None:
            await self._wake.wait()
            return
        try:
            # Not longer than a retry takes, because the wall clock may have been set back.
            wait = min(max(0.0, self._wake_at - self.deps.clock()), self.deps.timing.retry_max)
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            return

    def _sync(self) -> None:
        pod_state = self._observe()
        actions = compute_pod_actions(pod_state)
        self._termination = actions.termination
        if actions.termination is not None:
            self._probe_manager.begin_termination()
        self._report_backoff(actions)
        self._waiting = dict(actions.waiting)
        self._wake_at = actions.wake_at
        for stop in actions.stops:
            self.stopper.stop(stop, pod_state.now)
        if self.work is None:
            work = self._next_work(pod_state, actions)
            if work is not None:
                self.work = asyncio.create_task(
                    self._run_work(work), name=f"work on {self.pod.metadata.name}"
                )
        self._report_status(pod_state)

    def _observe(self) -> PodState:
        started = text(self.status, "startTime") or self.pod.status.start_time
        states = self.deps.runtime.containers(self.uid)
        self._probe_manager.sync(self.pod, states, terminating=self._termination is not None)
        return PodState(
            pod=self.pod,
            now=self.deps.clock(),
            timing=self.deps.timing,
            sandbox=self._sandbox(),
            states=(*self._lost, *states),
            restarts=restarts_of(self.pod),
            backoffs=self._backoffs,
            failures=self.failures,
            probes=self._probe_manager.probed,
            termination_request=self._termination_request,
            removed=self._removed,
            started_at=parse_time(started),
            termination=self._termination,
            forced=self._resize.restarting,
            stopping=self.stopper.deadlines,
        )

    def _sandbox(self) -> SandboxInfo | None:
        return next((each for each in self.deps.runtime.sandboxes() if each.uid == self.uid), None)

    def _report_backoff(self, actions: PodActions) -> None:
        for name, waiting in actions.waiting.items():
            if waiting.reason == CRASH_LOOP and self._waiting.get(name) != waiting:
                message = f"Back-off restarting failed container {name} in pod {format_pod(self.pod)}"
                self._emit_warning("BackOff", message, name)

    def _next_work(self, pod_state: PodState, actions: PodActions) -> Work | None:
        if actions.termination is None:
            if actions.others:
                return partial(self._run_actions, actions.others)
            return self._next_resize(pod_state)
        if any(state.phase is ContainerPhase.RUNNING for state in pod_state.states) or self.stopper.tasks:
            return None
        if self._termination_failure is not None:
            again = self._termination_failure.waits_until(pod_state.now, self.deps.timing)
            if again is not None:
                self._wake_at = again
                return None
        if not self._is_released:
            return self._release_resources
        if self._removed or self.pod.metadata.deletion_timestamp is not None:
            return self._finalize_deletion
        return None

    def _next_resize(self, pod_state: PodState) -> Work | None:
        self._resize.drop_stopped(self.pod, pod_state.states)
        if pod_state.sandbox is not None and self._resize.needs_work(
            self.pod, pod_state.states, pod_state.now
        ):
            return partial(self._apply_resize, pod_state)
        if self._resize.retry_at is not None:
            again = self._resize.retry_at
            self._wake_at = again if self._wake_at is None else min(self._wake_at, again)
        return None

    async def _apply_resize(self, pod_state: PodState) -> None:
        for state in await self._resize.sync(self.pod, pod_state.states):
            grace = pod_grace(self.pod, self.deps.timing.grace_default)
            message = f"Container {state.name} resize requires restart"
            self.stopper.stop(StopContainer(state.id, state.name, grace, message), pod_state.now)

    async def _run_work(self, work: Work) -> None:
        try:
            await work()
        except Exception as error:
            LOG.exception("pod %s: a step failed", format_pod(self.pod))
            self._termination_failure = record_failure(
                self._termination_failure, "Error", str(error), self.deps.clock()
            )
            self.failures[""] = record_failure(self.failures.get(""), "Error", str(error), self.deps.clock())
        finally:
            self.work = None
            self._wake.set()

    # -- starting

    def _is_terminating(self) -> bool:
        """Return whether nothing may be started any more."""
        deleted = self.pod.metadata.deletion_timestamp is not None
        return (
            deleted or self._removed or self._termination_request is not None or self._termination is not None
        )

    async def _run_actions(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, RemoveContainer):
                await self.deps.runtime.remove_container(action.id)
            elif self._is_terminating():
                return
            elif isinstance(action, RunSandbox):
                await self._make_sandbox(action)
            elif isinstance(action, CreateContainer):
                await self._create_container(action)
            elif isinstance(action, StartContainer):
                await self._start_container(action.container, action.id)

    async def _make_sandbox(self, action: RunSandbox) -> None:
        pod = self._allocated_pod()
        fault = await steps.set_up_volumes(pod, self.deps)
        if fault is None:
            fault = await steps.prepare_claims(pod, self.deps)
        if fault is None:
            fault = await steps.allocate_devices(pod, self.deps)
        if fault is None:
            if self._is_terminating():
                return
            fault = await steps.make_sandbox(pod, self.deps, stale=action.stale)
        if fault is None:
            self.failures.pop("", None)
            return
        self._record_failure("", fault)
        self.deps.events.emit(self.pod, fault.reason, fault.message, type=WARNING)

    async def _create_container(self, action: CreateContainer) -> None:
        name = action.container.name
        spec = await steps.build_container_spec(self._allocated_pod(), action, self.deps)
        if isinstance(spec, RuntimeFault):
            self._fail(name, spec)
            return
        if self._is_terminating():
            return
        if action.replaces:
            await self.deps.runtime.remove_container(action.replaces)
        fault = await self.deps.runtime.create(spec)
        if fault is not None:
            self._fail(name, fault)
            return
        fault = await steps.lift_cpu_quota(self._allocated_pod(), spec, self.deps)
        if fault is not None:  # it runs as it is, with its quota
            self._emit_warning(fault.reason, f"The CPU quota was not removed: {fault.message}", name)
        if action.ended_at is not None:
            known = self._backoffs.get(name)
            self._backoffs[name] = next_backoff(known, action.ended_at, self.deps.clock(), self.deps.timing)
        self._resize.restarting.discard(name)
        self.deps.events.emit(self.pod, "Created", "Container created", container=name)
        await self._start_container(action.container, spec.id)

    async def _start_container(self, container: Container, id: str) -> None:
        name = container.name
        fault = await self.deps.runtime.start_container(id)
        if fault is not None:
            self._fail(name, fault)
            return
        self.deps.events.emit(self.pod, "Started", "Container started", container=name)
        handler = post_start_of(container)
        if handler is not None:
            work = run_hook(handler, container, id, self.pod, self.deps, POST_START_SECONDS)
            _, result = await run_until(wait_until(self._wake, self._is_terminating), work)
            if result is not None and not result.ok:
                self._emit_warning("FailedPostStartHook", "PostStartHook failed", name)
                await self.deps.runtime.stop_container(
                    id, pod_grace(self.pod, self.deps.timing.grace_default)
                )
                self._fail(name, RuntimeFault("PostStartHookError", result.text))
                return
        self.failures.pop(name, None)

    def _emit_warning(self, reason: str, message: str, container: str) -> None:
        self.deps.events.emit(self.pod, reason, message, type=WARNING, container=container)

    def _fail(self, name: str, fault: RuntimeFault) -> None:
        self._record_failure(name, fault)
        self._emit_warning("Failed", f"Error: {fault.message}", name)

    def _record_failure(self, name: str, fault: RuntimeFault) -> None:
        known, now = self.failures.get(name), self.deps.clock()
        self.failures[name] = record_failure(known, fault.reason, fault.message, now, fault.waits_for)

    def _allocated_pod(self) -> Pod:
        """Return the pod with its allocated resources, which a pending resize does not change."""
        return self.pod if self.deps.resizer is None else self.deps.resizer.allocated(self.pod)

    # -- termination

    async def _release_resources(self) -> None:
        """Stop the sandbox and release the claims, once all containers are gone."""
        states = self.deps.runtime.containers(self.uid)
        for state in states:
            if state.phase is ContainerPhase.CREATED:
                await self.deps.runtime.remove_container(state.id)
        await self.deps.runtime.stop_sandbox(self.uid)
        fault = await steps.release_claims(self.pod, self.deps)
        if fault is not None:
            LOG.warning("pod %s: %s", format_pod(self.pod), fault.message)
            self._termination_failure = record_failure(
                self._termination_failure, fault.reason, fault.message, self.deps.clock()
            )
            self.deps.events.emit(self.pod, fault.reason, fault.message, type=WARNING)
            return
        if self.deps.volumes is not None:
            self.deps.volumes.forget(self.uid)
        self._termination_failure = None
        self._is_released = True
        self.released.set()

    async def _finalize_deletion(self) -> None:
        """Remove what is left of the pod, and delete it from the API."""
        if not self._removed:
            written = self.deps.writer.wait_until_written(self.uid)
            await run_until(wait_until(self._wake, self._is_removed), written)
        await self.deps.runtime.remove_sandbox(self.uid)
        if not self._removed:
            deletion = self.deps.writer.delete(self.pod)
            _, gone = await run_until(wait_until(self._wake, self._is_removed), deletion)
            self._removed = self._removed or bool(gone)
            if not self._removed:
                await wait_until(self._wake, self._is_removed)
        self.deps.writer.forget(self.uid)
        self.finished = True

    def _is_removed(self) -> bool:
        return self._removed

    # -- status

    def _report_status(self, pod_state: PodState) -> None:
        if self._removed or self._was_already_terminated():
            return
        if self._rejected is not None:
            request = self._rejected
            self.status = reject_status(self.pod, request.reason, _REJECTED + request.message, pod_state.now)
        else:
            self.status = build_status(self._status_input(pod_state))
        self.deps.writer.put(self.pod, self.status)

    def _was_already_terminated(self) -> bool:
        """Return whether the pod terminated before this worker started, and nothing of it is left."""
        ended = self._termination is not None and self._termination.cause is TerminationCause.TERMINAL
        return ended and not self.status and not self.deps.runtime.containers(self.uid)

    def _status_input(self, pod_state: PodState) -> StatusInput:
        return StatusInput(
            pod=self.pod,
            now=pod_state.now,
            before=self.status or reported_status(self.pod),
            states=self.deps.runtime.containers(self.uid),
            sandbox=pod_state.sandbox,
            probes=self._probe_manager.probed,
            waiting=self._waiting,
            termination=self._termination,
            terminal=self._is_released,
            disruption=self._termination_request.disruption if self._termination_request is not None else "",
            runtime=self.deps.runtime.name,
            simulated=not self.deps.runtime.runs_processes,
            host_ips=self.deps.facts().host_ips,
            allocated={c.name: c.resources for c in _containers(self._allocated_pod())},
            pod_level=self._allocated_pod().spec.resources,
            actual=self._resize.actual,
            health=self._health(),
            resize=self._resize.conditions,
        )

    def _health(self) -> dict[str, list[Tree]]:
        prepared = self.deps.claim_cache.claims_of_pod(self.uid)
        if not prepared:
            return {}
        found = {
            c.name: device_health(self.pod, c, prepared, self.deps.health) for c in self.pod.spec.containers
        }
        return {name: health for name, health in found.items() if health}


def reject(pod: Pod, reason: str, message: str, deps: WorkerDependencies) -> PodWorker:
    """Fail a pod that the node rejected; the worker stays until the pod is gone from the API."""
    deps.events.emit(pod, reason, message, type=WARNING)
    return PodWorker(pod, deps, rejected=TerminationRequest(reason, message)).start()


def _containers(pod: Pod) -> tuple[Any, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
