"""Actions of a pod: which containers to create, start, stop and remove, in which order.

`compute_pod_actions` is a function of a `PodState`. Guarantees that init containers run one after the other,
each once the previous one is done; that sidecars start in their position among them and keep running; that
regular containers follow all of them; that ephemeral containers run once, at any time; that no container has
two attempts at once; that restarts follow restart policies and CrashLoopBackOff exactly; and that a
terminating pod starts nothing and its containers stop within the grace period, sidecars last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.api.core import Container, Pod
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.backoff import restart_at
from plimsoll.node.pods.pod_state import (
    Action,
    CreateContainer,
    PodActions,
    PodState,
    ProbeResults,
    RemoveContainer,
    RunSandbox,
    StartContainer,
    WaitingReason,
)
from plimsoll.node.pods.restart_policy import ALWAYS, NEVER, should_restart, should_restart_init
from plimsoll.node.pods.termination import check_termination, deadline_of, plan_stops, pod_grace, stop_once

CRASH_LOOP = "CrashLoopBackOff"
#: Number of attempts of a container that are kept: the current and the previous one.
_KEPT = 2


def compute_pod_actions(pod_state: PodState) -> PodActions:
    """Compute the actions for a pod in its current state."""
    latest = latest_states(pod_state)
    termination = check_termination(pod_state, latest)
    if termination is not None:
        stops, wake = plan_stops(pod_state, termination)
        created = tuple(
            RemoveContainer(state.id) for state in pod_state.states if state.phase is ContainerPhase.CREATED
        )
        return PodActions(actions=(*stops, *created), wake_at=wake, termination=termination)
    planner = _ActionPlanner(pod_state, latest)
    planner.compute()
    return PodActions(
        actions=(*planner.actions, *_stale_attempts(pod_state)),
        wake_at=planner.wake,
        waiting=planner.waiting,
        termination=None,
    )


def latest_states(pod_state: PodState) -> dict[str, ContainerInfo]:
    """Return the last attempt of each container."""
    latest: dict[str, ContainerInfo] = {}
    for state in pod_state.states:
        known = latest.get(state.name)
        if known is None or known.attempt <= state.attempt:
            latest[state.name] = state
    return latest


def _stale_attempts(pod_state: PodState) -> tuple[RemoveContainer, ...]:
    """Return the removals of attempts that are no longer needed."""
    attempts: dict[str, list[ContainerInfo]] = {}
    for state in pod_state.states:
        attempts.setdefault(state.name, []).append(state)
    old = []
    for states in attempts.values():
        states.sort(key=lambda state: state.attempt)
        old += [
            RemoveContainer(state.id) for state in states[:-_KEPT] if state.phase is ContainerPhase.EXITED
        ]
    return tuple(old)


def format_pod(pod: Pod) -> str:
    """Format a pod as the kubelet's messages do."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


@dataclass(slots=True)
class _ActionPlanner:
    """Plan of a pod that keeps running, under construction."""

    pod_state: PodState
    latest: dict[str, ContainerInfo]
    actions: list[Action] = field(default_factory=list)
    waiting: dict[str, WaitingReason] = field(default_factory=dict)
    wake: float | None = None

    def compute(self) -> None:
        until = deadline_of(self.pod_state)
        if until is not None:
            self._wake(until)
        self._stop_unexpected()
        sandbox = self.pod_state.sandbox
        if sandbox is None or not sandbox.running:
            self._renew_sandbox(stale=sandbox is not None)
            return
        # Containers of an older sandbox count for restarts, not for the progress of this one.
        since = sandbox.created_at
        for container in self.pod_state.pod.spec.ephemeral_containers:
            self._sync_ephemeral(container)
        current = {name: state for name, state in self.latest.items() if state.created_at >= since}
        if self._sync_init_containers(current):
            for container in self.pod_state.pod.spec.containers:
                self._sync_container(container, current.get(container.name))

    # -- sandbox and init containers

    def _stop_unexpected(self) -> None:
        """Stop containers that must not run: replaced attempts, and containers the pod does not have."""
        spec = self.pod_state.pod.spec
        names = {c.name for c in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)}
        for state in self.pod_state.states:
            unexpected = state.name not in names or self.latest[state.name].id != state.id
            if state.phase is ContainerPhase.RUNNING and unexpected:
                self._stop(state, f"Stopping container {state.name}")

    def _renew_sandbox(self, *, stale: bool) -> None:
        running = [state for state in self.pod_state.states if state.phase is ContainerPhase.RUNNING]
        for state in running:
            self._stop(state, f"Stopping container {state.name}")
        failure = self.pod_state.failures.get("")
        now, timing = self.pod_state.now, self.pod_state.timing
        again = failure.waits_until(now, timing) if failure is not None else None
        if again is not None:
            self._wake(again)
        elif not running:
            self.actions.append(RunSandbox(stale))

    def _sync_init_containers(self, current: dict[str, ContainerInfo]) -> bool:
        """Continue with init containers; return True once regular containers may run."""
        spec = self.pod_state.pod.spec
        inits = spec.init_containers
        if any(container.name in current for container in spec.containers):
            reached = len(inits)
        else:
            reached = max((i for i, c in enumerate(inits) if c.name in current), default=-1)
        for container in inits[: max(reached, 0)]:
            if is_sidecar(container):
                self._sync_container(container, current.get(container.name))
        if reached == len(inits):
            return True
        if reached >= 0 and not self._is_done(inits[reached], current[inits[reached].name]):
            self._sync_container(inits[reached], current[inits[reached].name])
            return False
        if reached >= 0 and is_sidecar(inits[reached]):
            self._sync_container(inits[reached], current[inits[reached].name])
        if reached + 1 == len(inits):
            return True
        self._sync_container(inits[reached + 1], None)
        return False

    def _is_done(self, container: Container, state: ContainerInfo) -> bool:
        """Return whether the container after this init container may start."""
        if is_sidecar(container):
            return state.phase is ContainerPhase.RUNNING and self._probed(container, state).started
        return state.phase is ContainerPhase.EXITED and state.exit_code == 0

    # -- single containers

    def _sync_container(self, container: Container, state: ContainerInfo | None) -> None:
        """Keep a container running, unless it has terminated for good."""
        known = state or self.latest.get(container.name)
        if known is not None and known.phase is ContainerPhase.RUNNING:
            failed = self._probed(container, known).failed
            if failed:
                self._kill_unhealthy(container, known, failed)
        elif known is not None and any(
            s.name == container.name and s.phase is ContainerPhase.RUNNING for s in self.pod_state.states
        ):
            pass  # an older attempt is still being stopped
        elif state is None and known is None:
            self._create(container, None)
        elif state is not None and state.phase is ContainerPhase.CREATED:
            if container.name in self.pod_state.failures:
                self._create(container, state)
            else:
                self.actions.append(StartContainer(container, state.id))
        elif known is not None and self._restarts(container, known, renewed=state is None):
            self._restart(container, known)

    def _sync_ephemeral(self, container: Container) -> None:
        """Start an ephemeral container once: before init containers are done, and never again."""
        known = self.latest.get(container.name)
        if known is None or known.phase is ContainerPhase.CREATED:
            self._sync_container(container, known)

    def _restarts(self, container: Container, known: ContainerInfo, *, renewed: bool) -> bool:
        """Return whether a container restarts; in a new sandbox all init containers run again."""
        if container.name in self.pod_state.forced:
            return True
        if container in self.pod_state.pod.spec.init_containers:
            return renewed or should_restart_init(self.pod_state.pod, container, known.exit_code)
        return should_restart(self.pod_state.pod, container, known.exit_code)

    def _restart(self, container: Container, ended: ContainerInfo) -> None:
        backoff = self.pod_state.backoffs.get(container.name)
        when = restart_at(backoff, ended.finished_at, self.pod_state.timing)
        waits = ended.finished_at <= self.pod_state.now < when
        if backoff is not None and waits and container.name not in self.pod_state.forced:
            text = (
                f"back-off {_format_duration(backoff.seconds)} restarting failed container={container.name}"
            )
            self.waiting[container.name] = WaitingReason(
                CRASH_LOOP, f"{text} pod={format_pod(self.pod_state.pod)}"
            )
            self._wake(when)
        else:
            self._create(container, ended)

    def _create(self, container: Container, known: ContainerInfo | None) -> None:
        failure = self.pod_state.failures.get(container.name)
        if failure is not None:
            self.waiting[container.name] = WaitingReason(failure.reason, failure.message)
            again = failure.waits_until(self.pod_state.now, self.pod_state.timing)
            if again is not None:
                self._wake(again)
                return
        attempt = self.pod_state.restarts.get(container.name, -1) + 1
        if known is not None:
            attempt = max(attempt, known.attempt + 1)
        if container.name in self.pod_state.forced and known is not None:
            # Reported as terminated, a container that runs only once could not be reported as running again.
            self.waiting.setdefault(container.name, WaitingReason("ContainerCreating"))
        ended = known.finished_at if known is not None and known.phase is ContainerPhase.EXITED else None
        replaces = known.id if known is not None and known.phase is ContainerPhase.CREATED else ""
        self.actions.append(CreateContainer(container, attempt, ended, replaces))

    def _kill_unhealthy(self, container: Container, state: ContainerInfo, probe: str) -> None:
        policy = container.restart_policy or self.pod_state.pod.spec.restart_policy or ALWAYS
        kind = "Init container" if container in self.pod_state.pod.spec.init_containers else "Container"
        message = f"{kind} {container.name} failed {probe} probe"
        if policy != NEVER:
            message += ", will be restarted"
        probe_spec = container.startup_probe if probe == "startup" else container.liveness_probe
        given = probe_spec.termination_grace_period_seconds if probe_spec is not None else None
        self._stop(state, message, None if given is None else float(given))

    def _probed(self, container: Container, state: ContainerInfo) -> ProbeResults:
        return self.pod_state.probes.get(state.id, ProbeResults(started=container.startup_probe is None))

    def _stop(self, state: ContainerInfo, message: str, grace: float | None = None) -> None:
        if state.id in self.pod_state.stopping:
            return
        if grace is None:
            grace = pod_grace(self.pod_state.pod, self.pod_state.timing.grace_default)
        stop = stop_once(self.pod_state, state, self.pod_state.now + grace, message)
        if stop is not None:
            self.actions.append(stop)

    def _wake(self, when: float) -> None:
        self.wake = when if self.wake is None else min(self.wake, when)


def _format_duration(seconds: float) -> str:
    """Format a duration as Go does: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
