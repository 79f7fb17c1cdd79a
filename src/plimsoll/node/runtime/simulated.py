"""Simulated container runtime: tracks container state without starting processes.

One machine can simulate thousands of nodes. A container runs until it is stopped, or as the pod's annotations
specify:

   plimsoll.dev/run-seconds: "2.5"              every regular container exits by itself after this time
   plimsoll.dev/exit-code: "1"                  and with this code
   run-seconds.plimsoll.dev/CONTAINER: "0"      the same for one container of any kind
   exit-code.plimsoll.dev/CONTAINER: "1"

Without these annotations a file of stages counts (`stages.py`).

Ordinary init containers exit at once with 0 unless they are named. A container that is stopped exits with 0.
Nothing is stored on disk: a new agent adopts the containers that the pods report.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll.common.checkpoint import NodeFinding
from plimsoll.common.tasks import start_task
from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.cgroup_plans.containers import ContainerPlan
from plimsoll.node.containers import (
    ContainerInfo,
    ContainerPhase,
    ContainerSpec,
    ContainerStorage,
    RuntimeFault,
    SandboxInfo,
    SandboxSpec,
)
from plimsoll.node.hooks import NO_HOOKS, RuntimeContainer, RuntimeHooks, RuntimeState
from plimsoll.node.resources import LinuxResources, resources_from_plan
from plimsoll.node.runtime.container_spec import (
    CREATE_ERROR,
    SpecRefusal,
    cancel_creation,
    resolve_container,
)
from plimsoll.node.runtime.stages import Stage, find_stage
from plimsoll.protocols.cdi import CdiCache

RUN_SECONDS = "plimsoll.dev/run-seconds"
EXIT_CODE = "plimsoll.dev/exit-code"
#: Longer than any test or demo; a longer time means until it is stopped.
_FOREVER = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Script:
    """Run time of a simulated container (None: until it is stopped) and its exit code."""

    seconds: float | None = None
    exit_code: int = 0


def script_of(
    annotations: Mapping[str, str], container: str, role: ContainerRole, stage: Stage | None = None
) -> Script:
    """Read a pod's annotations for one of its containers; values that are not numbers are ignored.

    Without an annotation for the time, a stage counts.
    """
    own_time = _number(annotations.get(f"run-seconds.{_DOMAIN}/{container}"))
    own_code = _number(annotations.get(f"exit-code.{_DOMAIN}/{container}"))
    regular = role is ContainerRole.REGULAR
    seconds = own_time if own_time is not None or not regular else _number(annotations.get(RUN_SECONDS))
    code = own_code if own_code is not None or not regular else _number(annotations.get(EXIT_CODE))
    if seconds is None and stage is not None:
        seconds, code = stage.run_seconds, stage.exit_code if code is None else code
    if seconds is None and role is ContainerRole.INIT:
        seconds = 0.0
    if seconds is not None and seconds > _FOREVER:
        seconds = None
    return Script(None if seconds is None else max(seconds, 0.0), int(code or 0) & 0xFF)


_DOMAIN = "plimsoll.dev"


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None and len(text) < 40 else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(slots=True)
class _Pod:
    spec: SandboxSpec
    state: SandboxInfo
    containers: dict[str, None]


@dataclass(slots=True)
class _Container:
    held: RuntimeContainer
    script: Script


class SimulatedRuntime:
    """Runtime without processes."""

    name = "none"
    version = "1"
    volume_types: frozenset[str] | None = None
    runs_processes = False

    def __init__(
        self,
        hooks: RuntimeHooks = NO_HOOKS,
        clock: Callable[[], float] = time.time,
        *,
        cdi: CdiCache | None = None,
        ip: str = "127.0.0.1",
        stages: Sequence[Stage] = (),
    ) -> None:
        self.hooks = hooks
        self._stages = stages
        #: As in other runtimes; always empty here.
        self.findings: list[NodeFinding] = []
        self._clock = clock
        self._cdi = cdi
        self._ip = ip
        self._pods: dict[str, _Pod] = {}
        self._containers: dict[str, _Container] = {}
        self._ends: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: Callable[[str], None] | None = None

    async def start(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._set_timer()

    async def stop(self) -> None:
        self._changed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- pods

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        known = self._pods.get(spec.uid)
        if known is not None and known.state.running:
            return await self.update_sandbox(spec)
        state = SandboxInfo(
            uid=spec.uid,
            name=spec.name,
            namespace=spec.namespace,
            running=True,
            created_at=self._clock(),
            ip=self._ip,
        )
        self._pods[spec.uid] = _Pod(spec, state, known.containers if known else {})
        fault = await self.hooks.sandbox_run(spec)
        if fault is not None and known is None:
            self._pods.pop(spec.uid, None)
        return fault

    def adopt(
        self, sandbox: SandboxSpec, plans: Mapping[str, ContainerPlan], states: Sequence[ContainerInfo]
    ) -> None:
        """Take over a running pod that this runtime does not know; run times count from now."""
        if sandbox.uid in self._pods:
            return
        info = SandboxInfo(
            uid=sandbox.uid, name=sandbox.name, namespace=sandbox.namespace, running=True, ip=self._ip
        )
        ids = dict.fromkeys(state.id for state in states if state.name in plans)
        self._pods[sandbox.uid] = _Pod(sandbox, info, ids)
        for state in states:
            if state.name not in plans:
                continue
            plan = plans[state.name]
            spec = ContainerSpec(
                id=state.id, pod=state.pod, name=state.name, attempt=state.attempt, plan=plan
            )
            held = RuntimeContainer(spec, state, resources_from_plan(plan))
            self._containers[state.id] = container = _Container(held, self._script(sandbox, spec))
            if state.phase is ContainerPhase.RUNNING:
                self._schedule_end(container)

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        pod = self._pods.get(spec.uid)
        if pod is None or not pod.state.running:
            return RuntimeFault("UpdateContainerError", f"pod {spec.uid!r} has no running sandbox")
        if pod.spec == spec:
            return None
        fault = await self.hooks.sandbox_update(spec)
        if fault is None:
            pod.spec = spec
            await self.hooks.sandbox_updated(spec)
        return fault

    async def stop_sandbox(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        for id in list(pod.containers):
            await self._end(id, 137)
        if pod.state.running:
            pod.state = replace(pod.state, running=False)
            await self.hooks.sandbox_stopped(pod.spec)

    async def remove_sandbox(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        await self.stop_sandbox(uid)
        for id in list(pod.containers):
            await self.remove_container(id)
        if self._pods.pop(uid, None) is not None:
            await self.hooks.sandbox_removed(pod.spec)

    # -- containers

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        if spec.id in self._containers:
            return None
        pod = self._pods.get(spec.pod)
        if pod is None or not pod.state.running:
            return RuntimeFault(CREATE_ERROR, f"pod {spec.pod!r} has no running sandbox")
        resolved = await resolve_container(
            pod.spec, spec, resources_from_plan(spec.plan), self._cdi, self.hooks
        )
        state = ContainerInfo(
            id=spec.id,
            pod=spec.pod,
            name=spec.name,
            attempt=spec.attempt,
            phase=ContainerPhase.CREATED,
            created_at=self._clock(),
        )
        if isinstance(resolved, SpecRefusal):
            if resolved.hooks_called:
                await cancel_creation(self.hooks, pod.spec, state)
            return resolved.fault
        state = replace(state, cpus=resolved.resources.cpus)
        self._containers[spec.id] = _Container(
            RuntimeContainer(resolved.spec, state, resolved.resources), self._script(pod.spec, spec)
        )
        pod.containers[spec.id] = None
        await self.hooks.created(pod.spec, state)
        return None

    async def start_container(self, id: str) -> RuntimeFault | None:
        container = self._containers.get(id)
        if container is None:
            return RuntimeFault("RunContainerError", f"unknown container {id!r}")
        if container.held.state.phase is not ContainerPhase.CREATED:
            return None
        pod = self._pods[container.held.state.pod]
        await self.hooks.starting(pod.spec, container.held.state)
        state = self._set(container, phase=ContainerPhase.RUNNING, started_at=self._clock())
        self._schedule_end(container)
        await self.hooks.started(pod.spec, state)
        return None

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        container = self._containers.get(id)
        if container is None:
            return RuntimeFault("UpdateContainerError", f"unknown container {id!r}")
        pod = self._pods[container.held.state.pod]
        adjusted = await self.hooks.update(pod.spec, container.held.state, resources_from_plan(plan))
        if isinstance(adjusted, RuntimeFault):
            return adjusted
        container.held = replace(container.held, spec=replace(container.held.spec, plan=plan))
        await self.apply(id, adjusted.resources)
        await self.hooks.updated(pod.spec, container.held.state)
        return None

    async def apply(self, id: str, resources: LinuxResources) -> RuntimeFault | None:
        """Change the resources of a container; a missing or exited one is not a fault."""
        container = self._containers.get(id)
        if container is not None and container.held.state.phase is not ContainerPhase.EXITED:
            merged = container.held.resources.merged(resources)
            container.held = replace(container.held, resources=merged)
            self._set(container, cpus=merged.cpus)
            if self._changed is not None:
                self._changed(container.held.state.pod)
        return None

    async def stop_container(self, id: str, grace: float) -> None:
        await self._end(id, 0)

    async def remove_container(self, id: str) -> None:
        container = self._containers.get(id)
        if container is None:
            return
        await self._end(id, 137)
        if self._containers.pop(id, None) is None:
            return
        pod = self._pods[container.held.state.pod]
        pod.containers.pop(id, None)
        await self.hooks.removed(pod.spec, container.held.state)

    # -- queries

    def sandboxes(self) -> Sequence[SandboxInfo]:
        return [pod.state for pod in self._pods.values()]

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        if not pod:
            return [container.held.state for container in self._containers.values()]
        known = self._pods.get(pod)
        return [self._containers[id].held.state for id in known.containers] if known else []

    async def container_storage(self, pod: str) -> dict[str, ContainerStorage]:
        """Return nothing: containers write no files."""
        return {}

    def inventory(self) -> RuntimeState:
        return RuntimeState(
            tuple(pod.spec for pod in self._pods.values() if pod.state.running),
            tuple(container.held for container in self._containers.values()),
        )

    # -- time

    def _script(self, sandbox: SandboxSpec, spec: ContainerSpec) -> Script:
        role = spec.plan.role
        stage = find_stage(self._stages, sandbox.namespace, sandbox.labels, spec.name, role)
        return script_of(sandbox.annotations, spec.name, role, stage)

    def _schedule_end(self, container: _Container) -> None:
        """Have a container that runs from now on end after the time of its script."""
        if container.script.seconds is not None:
            heapq.heappush(self._ends, (self._clock() + container.script.seconds, container.held.spec.id))
            self._set_timer()

    def tick(self) -> None:
        """End containers that are due; called by the loop's timer, and by tests that control the clock."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            _, id = heapq.heappop(self._ends)
            start_task(self._tasks, self._exit_by_script(id))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends and self._changed is not None:
            delay = max(self._ends[0][0] - self._clock(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self.tick)

    async def _exit_by_script(self, id: str) -> None:
        container = self._containers.get(id)
        if container is None or container.held.state.phase is not ContainerPhase.RUNNING:
            return
        await self._end(id, container.script.exit_code)
        if self._changed is not None:
            self._changed(container.held.state.pod)

    async def _end(self, id: str, code: int) -> None:
        container = self._containers.get(id)
        if container is None or container.held.state.phase is ContainerPhase.EXITED:
            return
        reason = "Completed" if code == 0 else "Error"
        state = self._set(
            container, phase=ContainerPhase.EXITED, finished_at=self._clock(), exit_code=code, reason=reason
        )
        await self.hooks.stopped(self._pods[state.pod].spec, state)

    def _set(self, container: _Container, **changes: object) -> ContainerInfo:
        state = replace(container.held.state, **changes)  # type: ignore[arg-type]
        container.held = replace(container.held, state=state)
        return state
