"""Runtime in virtual time: scripted containers and a log of their events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from plimsoll.api.core import Pod
from plimsoll.node.containers import ContainerInfo, ContainerPhase, SandboxInfo
from plimsoll.node.pods.backoff import PodTiming, RestartBackoff, next_backoff
from plimsoll.node.pods.pod_actions import compute_pod_actions
from plimsoll.node.pods.pod_state import (
    CreateContainer,
    PodState,
    RemoveContainer,
    RunSandbox,
    StartContainer,
    StopContainer,
    Termination,
    TerminationRequest,
)

FOREVER = float("inf")


@dataclass(frozen=True)
class Behaviour:
    """Duration and exit code of each attempt (the last one repeats), and the seconds until a stop takes
    effect.
    """

    runs: tuple[tuple[float, int], ...] = ((FOREVER, 0),)
    heeds: float = 0.0

    def of(self, attempt: int) -> tuple[float, int]:
        return self.runs[min(attempt, len(self.runs) - 1)]


@dataclass(frozen=True)
class SimulatedEvent:
    """Event of a container; `what` is begin, end, stop, sandbox or ending."""

    at: float
    what: str
    name: str = ""
    attempt: int = -1
    code: int = 0
    grace: float = 0.0


@dataclass
class Simulation:
    """One pod on one machine, until its end or a time limit."""

    pod: Pod
    behaviours: dict[str, Behaviour]
    timing: PodTiming = field(default_factory=PodTiming)
    #: Time -> what happens then to the situation of the pod.
    news: list[tuple[float, Callable[[Simulation], None]]] = field(default_factory=list)
    now: float = 1000.0
    trace: list[SimulatedEvent] = field(default_factory=list)
    sandbox: SandboxInfo | None = None
    states: dict[str, ContainerInfo] = field(default_factory=dict)
    ends: dict[str, tuple[float, int]] = field(default_factory=dict)
    backoffs: dict[str, RestartBackoff] = field(default_factory=dict)
    stopping: dict[str, float] = field(default_factory=dict)
    order: TerminationRequest | None = None
    removed: bool = False
    termination: Termination | None = None
    started_at: float = 1000.0
    over: bool = False
    reported: list[float] = field(default_factory=list)  #: when there were news

    def delete(self, grace: int) -> None:
        meta = msgspec.structs.replace(
            self.pod.metadata, deletion_timestamp="2030-01-01T00:00:00Z", deletion_grace_period_seconds=grace
        )
        self.pod = msgspec.structs.replace(self.pod, metadata=meta)

    def run(self, horizon: float = 20_000.0, steps: int = 400) -> Simulation:
        self.news.sort(key=lambda item: item[0])
        for _ in range(steps):
            wake = self._settle()
            if self.over:
                return self
            times = [end for end, _ in self.ends.values()]
            times += [self.news[0][0]] if self.news else []
            times += [wake] if wake is not None else []
            ahead = [time for time in times if time != FOREVER]
            if not ahead or min(ahead) > horizon:
                return self
            self.now = max(self.now, min(ahead))
            self._pass()
        return self

    def _pass(self) -> None:
        """Apply everything that is due now."""
        while self.news and self.news[0][0] <= self.now:
            self.news.pop(0)[1](self)
            self.reported.append(self.now)
        for id, (when, code) in list(self.ends.items()):
            if when <= self.now:
                self._end(id, code)

    def _settle(self) -> float | None:
        """Apply decisions until there are none."""
        for _ in range(50):
            decision = compute_pod_actions(
                PodState(
                    pod=self.pod,
                    now=self.now,
                    timing=self.timing,
                    sandbox=self.sandbox,
                    states=tuple(self.states.values()),
                    backoffs=self.backoffs,
                    termination_request=self.order,
                    removed=self.removed,
                    started_at=self.started_at,
                    termination=self.termination,
                    stopping=self.stopping,
                )
            )
            if decision.termination is not None and self.termination is None:
                self.trace.append(SimulatedEvent(self.now, "ending", decision.termination.cause))
            self.termination = decision.termination
            for action in decision.actions:
                self._act(action)
            if not decision.actions:
                running = any(state.phase is ContainerPhase.RUNNING for state in self.states.values())
                self.over = self.termination is not None and not running
                return decision.wake_at
        raise AssertionError("decisions never settle")

    def _act(self, action: object) -> None:
        match action:
            case RunSandbox():
                self.trace.append(SimulatedEvent(self.now, "sandbox"))
                self.sandbox = SandboxInfo(
                    uid="u", name="p", namespace="d", running=True, created_at=self.now
                )
            case CreateContainer(container, attempt, ended_at, _):
                if ended_at is not None:
                    known = self.backoffs.get(container.name)
                    self.backoffs[container.name] = next_backoff(known, ended_at, self.now, self.timing)
                id = f"{container.name}-{attempt}"
                assert id not in self.states
                seconds, code = self.behaviours[container.name].of(attempt)
                self.states[id] = ContainerInfo(
                    id=id,
                    pod="u",
                    name=container.name,
                    attempt=attempt,
                    phase=ContainerPhase.RUNNING,
                    created_at=self.now,
                    started_at=self.now,
                )
                self.ends[id] = (self.now + seconds, code)
                self.trace.append(SimulatedEvent(self.now, "begin", container.name, attempt))
            case StopContainer(id, name, grace, _):
                self.trace.append(
                    SimulatedEvent(self.now, "stop", name, self.states[id].attempt, grace=grace)
                )
                self.stopping[id] = self.now + grace
                heeds = self.behaviours[name].heeds
                end = (self.now + heeds, 143) if heeds < grace else (self.now + grace, 137)
                self.ends[id] = min(self.ends[id], end)
            case RemoveContainer(id):
                assert self.states.pop(id).phase is not ContainerPhase.RUNNING
            case StartContainer():
                raise AssertionError("nothing is created without being started here")

    def _end(self, id: str, code: int) -> None:
        state = self.states[id]
        self.states[id] = replace(state, phase=ContainerPhase.EXITED, finished_at=self.now, exit_code=code)
        self.ends.pop(id)
        self.stopping.pop(id, None)
        self.trace.append(SimulatedEvent(self.now, "end", state.name, state.attempt, code))
