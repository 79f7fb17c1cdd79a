"""Startup, liveness and readiness probes of a pod's containers.

`ProbeCounter` counts results as the kubelet does (pure); `ProbeManager` runs the probes. Guarantees that
other probes wait for the startup probe; that a container which failed liveness or startup is not probed any
more; that in a terminating pod only readiness is probed; and that a container which was started and ready
before a restart of the agent stays so until a probe disagrees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.containers import Probe
from plimsoll.api.core import Container, ContainerStatus, Pod
from plimsoll.common.tasks import cancel_tasks
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.handlers import HandlerResult, run_handler
from plimsoll.node.pods.pod_state import ProbeResults
from plimsoll.node.pods.writer import WARNING

STARTUP, LIVENESS, READINESS = "startup", "liveness", "readiness"


@dataclass(frozen=True, slots=True)
class ProbeCounter:
    """Consecutive equal results of a probe; `good` is the effective result, None before there is one."""

    good: bool | None = None
    last: bool | None = None
    run: int = 0

    def count(self, ok: bool, probe: Probe) -> ProbeCounter:
        """Add a result; the effective result changes when enough consecutive results agree."""
        run = self.run + 1 if self.last is ok else 1
        enough = max(1, probe.success_threshold) if ok else max(1, probe.failure_threshold or 3)
        return ProbeCounter(ok if run >= enough else self.good, ok, run)


def probes_of(container: Container) -> Iterator[tuple[str, Probe]]:
    for kind, probe in (
        (STARTUP, container.startup_probe),
        (LIVENESS, container.liveness_probe),
        (READINESS, container.readiness_probe),
    ):
        if probe is not None:
            yield kind, probe


class ProbeManager:
    """Probes of one pod."""

    def __init__(self, pod: Pod, deps: WorkerDependencies, changed: Callable[[], None]) -> None:
        #: Probe results by container ID.
        self.probed: dict[str, ProbeResults] = {}
        self._pod = pod
        self._parts = deps
        self._changed = changed
        #: Probes by container ID and kind.
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        self._started: dict[str, asyncio.Event] = {}

    def sync(self, pod: Pod, states: Sequence[ContainerInfo], *, terminating: bool) -> None:
        """Probe the running containers, and only those; in terminating pods only their readiness."""
        self._pod = pod
        running = {state.id: state for state in states if state.phase is ContainerPhase.RUNNING}
        for id in list(self._tasks):
            if id not in running:
                for task in self._tasks.pop(id).values():
                    task.cancel()
        if terminating:
            self.begin_termination()
        for id in [id for id in self.probed if id not in running]:
            del self.probed[id]
        for state in () if terminating else running.values():
            if state.id not in self._tasks:
                self._start_probes(state)

    def begin_termination(self) -> None:
        """Probe nothing but readiness from now on."""
        for tasks in self._tasks.values():
            for kind in [kind for kind in tasks if kind != READINESS]:
                tasks.pop(kind).cancel()

    async def stop(self) -> None:
        tasks = [task for tasks in self._tasks.values() for task in tasks.values()]
        self._tasks.clear()
        await cancel_tasks(tasks)

    def _start_probes(self, state: ContainerInfo) -> None:
        spec = self._pod.spec
        container = next((c for c in (*spec.init_containers, *spec.containers) if c.name == state.name), None)
        probes = list(probes_of(container)) if container is not None else []
        self._tasks[state.id] = {}
        if container is None or not probes:
            return
        kinds = {kind for kind, _ in probes}
        if self._parts.skip_probes:
            kinds, probes = set(), []
        known = self._reported_status(state)
        started = STARTUP not in kinds or (known is not None and known.started is True)
        ready = READINESS not in kinds or (known is not None and known.ready)
        self.probed[state.id] = ProbeResults(started=started, ready=ready)
        self._started[state.id] = asyncio.Event()
        if started:
            self._started[state.id].set()
        for kind, probe in probes:
            if kind != STARTUP or not started:
                work = self._probe(container, state, kind, probe)
                name = f"{kind} probe of {state.name}"
                self._tasks[state.id][kind] = asyncio.create_task(work, name=name)

    def _reported_status(self, state: ContainerInfo) -> ContainerStatus | None:
        """Return the status reported earlier for this very container."""
        status = self._pod.status
        name = f"{self._parts.runtime.name}://{state.id}"
        every = (*status.init_container_statuses, *status.container_statuses)
        return next((each for each in every if each.container_id == name), None)

    async def _probe(self, container: Container, state: ContainerInfo, kind: str, probe: Probe) -> None:
        second = self._parts.timing.second
        since = self._parts.clock() - state.started_at
        await asyncio.sleep(max(0.0, probe.initial_delay_seconds * second - since))
        if kind != STARTUP:
            await self._started[state.id].wait()
        tally = ProbeCounter()
        while True:
            outcome = await self._check(container, state, probe)
            before, tally = tally, tally.count(outcome.ok, probe)
            if not outcome.ok:
                text = f"{kind.capitalize()} probe failed: {outcome.text}"
                self._parts.events.emit(self._pod, "Unhealthy", text, type=WARNING, container=state.name)
            if outcome.warning:
                text = f"{kind.capitalize()} probe warning: {outcome.warning}"
                self._parts.events.emit(self._pod, "ProbeWarning", text, type=WARNING, container=state.name)
            if tally.good is not None and tally.good != before.good:
                self._apply_result(state.id, kind, tally.good)
                if kind == STARTUP or (kind == LIVENESS and not tally.good):
                    return
            await asyncio.sleep(max(1, probe.period_seconds or 10) * second)

    async def _check(self, container: Container, state: ContainerInfo, probe: Probe) -> HandlerResult:
        seconds = max(1, probe.timeout_seconds) * self._parts.timing.second
        host = pod_address(self._pod, self._parts)
        return await run_handler(probe, container, state.id, host, self._parts.commands, seconds)

    def _apply_result(self, id: str, kind: str, good: bool) -> None:
        known = self.probed.get(id)
        if known is None:
            return
        if kind == READINESS:
            self.probed[id] = replace(known, ready=good)
        elif not good:
            self.probed[id] = replace(known, failed=kind)
        elif kind == STARTUP:
            self.probed[id] = replace(known, started=True)
            self._started[id].set()
        self._changed()


def pod_address(pod: Pod, deps: WorkerDependencies) -> str:
    """Return the address at which a pod is reached."""
    ips = [each.ip for each in deps.runtime.sandboxes() if each.uid == pod.metadata.uid and each.ip]
    hosts = deps.facts().host_ips
    if pod.spec.host_network and hosts:
        return hosts[0]
    return ips[0] if ips else "127.0.0.1"
