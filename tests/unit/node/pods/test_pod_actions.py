"""Actions of a pod, computed on a simulated machine and compared with naive rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.containers import ContainerRestartRule, ContainerRestartRuleOnExitCodes, Probe
from plimsoll.api.core import Container, Pod, PodSpec
from plimsoll.api.meta import ObjectMeta
from plimsoll.node.containers import ContainerInfo, ContainerPhase, SandboxInfo
from plimsoll.node.pods.backoff import PodTiming, StepFailure
from plimsoll.node.pods.pod_actions import compute_pod_actions
from plimsoll.node.pods.pod_state import (
    CreateContainer,
    PodState,
    ProbeResults,
    RunSandbox,
    StartContainer,
    StopContainer,
    TerminationCause,
    TerminationRequest,
)
from tests.sizes import examples
from tests.unit.node.pods.simulator import FOREVER, Behaviour, SimulatedEvent, Simulation

SANDBOX = SandboxInfo(uid="u", name="p", namespace="d", running=True, created_at=0.0)


def pod_of(
    *mains: Container, inits: tuple[Container, ...] = (), policy: str = "Always", **spec: object
) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid="u"),
        spec=PodSpec(containers=mains, init_containers=inits, restart_policy=policy, **spec),  # type: ignore[arg-type]
    )


def state(
    name: str, phase: ContainerPhase = ContainerPhase.RUNNING, attempt: int = 0, **rest: object
) -> ContainerInfo:
    return ContainerInfo(
        id=f"{name}-{attempt}",
        pod="u",
        name=name,
        attempt=attempt,
        phase=phase,
        created_at=1.0,
        **rest,  # type: ignore[arg-type]
    )


SIDECAR = "Always"


# -- the property

names = ("a", "b", "c")
runs = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 30.0, 700.0, FOREVER]), st.sampled_from([0, 1, 42])),
    min_size=1,
    max_size=4,
).map(tuple)
behaviours = st.builds(Behaviour, runs, st.sampled_from([0.0, 1.0, 5.0, 1e6]))


@st.composite
def containers(draw: st.DrawFn, prefix: str, most: int, *, init: bool) -> tuple[Container, ...]:
    made = []
    for place in range(draw(st.integers(0 if init else 1, most))):
        own = draw(st.sampled_from([None, None, "Always", "Never", "OnFailure"]))
        rules: tuple[ContainerRestartRule, ...] = ()
        if own in ("Never", "OnFailure") and draw(st.booleans()):
            operator = draw(st.sampled_from(["In", "NotIn"]))
            codes = ContainerRestartRuleOnExitCodes(operator=operator, values=(42,))
            rules = (ContainerRestartRule(action="Restart", exit_codes=codes),)
        made.append(Container(name=f"{prefix}{place}", restart_policy=own, restart_policy_rules=rules))
    return tuple(made)


@st.composite
def simulations(draw: st.DrawFn) -> Simulation:
    inits = draw(containers("i", 3, init=True))
    mains = draw(containers("m", 3, init=False))
    pod = pod_of(
        *mains,
        inits=inits,
        policy=draw(st.sampled_from(["Always", "OnFailure", "Never"])),
        active_deadline_seconds=draw(st.sampled_from([None, None, 3, 1000])),
        termination_grace_period_seconds=draw(st.sampled_from([None, 0, 4, 60])),
    )
    simulation = Simulation(pod, {c.name: draw(behaviours) for c in (*inits, *mains)})
    for _ in range(draw(st.integers(0, 2))):
        when = 1000.0 + draw(st.sampled_from([0.0, 1.0, 2.0, 20.0, 3000.0]))
        kind = draw(st.sampled_from(["delete", "vanish", "order"]))
        grace = draw(st.sampled_from([0, 3, 30]))

        def news(sim: Simulation, kind: str = kind, grace: int = grace) -> None:
            if kind == "delete":
                sim.delete(grace)
            elif kind == "vanish":
                sim.removed = True
            elif sim.order is None:
                sim.order = TerminationRequest("Evicted", "low", float(grace))

        simulation.news.append((when, news))
    return simulation


def should_restart_naively(pod: Pod, container: Container, code: int, *, init: bool) -> bool:
    policy = pod.spec.restart_policy
    if init and container.restart_policy == "Always":
        return True
    if init and code == 0:
        return False
    if container.restart_policy is not None:
        for rule in container.restart_policy_rules:
            assert rule.exit_codes is not None
            if (code in rule.exit_codes.values) == (rule.exit_codes.operator == "In"):
                return True
        policy = container.restart_policy
    return {"Always": True, "OnFailure": code != 0, "Never": False}[policy]


@settings(max_examples=examples(200), deadline=None)
@given(simulations())
def test_random_pod_lifecycles_follow_the_rules(simulation: Simulation) -> None:
    pod = simulation.pod
    simulation.run(steps=100)
    trace = simulation.trace
    termination = next((h.at for h in trace if h.what == "ending"), FOREVER)
    check_one_at_a_time(trace)
    check_order_of_starts(pod, trace)
    check_restarts(pod, trace, simulation.now, termination, simulation.timing)
    check_stops(pod, simulation, termination)
    after = [h for h in trace if h.what == "begin" and h.at > termination]
    assert not after, "nothing is started once a pod ends"
    if termination < FOREVER:
        assert simulation.over, "a pod that ends comes to its end"


def check_one_at_a_time(trace: list[SimulatedEvent]) -> None:
    running: dict[str, int] = {}
    for event in trace:
        if event.what == "begin":
            assert event.name not in running
            running[event.name] = event.attempt
        elif event.what == "end":
            assert running.pop(event.name) == event.attempt


def check_order_of_starts(pod: Pod, trace: list[SimulatedEvent]) -> None:
    """Check that everything before a container is done when it starts for the first time."""
    inits = pod.spec.init_containers
    begun: set[str] = set()
    succeeded: set[str] = set()
    for event in trace:
        if event.what == "end" and event.code == 0:
            succeeded.add(event.name)
        if event.what != "begin":
            continue
        assert trace[0].what in ("sandbox", "ending")
        place = next((i for i, c in enumerate(inits) if c.name == event.name), len(inits))
        for earlier in inits[:place]:
            done = begun if earlier.restart_policy == "Always" else succeeded
            assert earlier.name in done, f"{event.name} before {earlier.name} was done"
        begun.add(event.name)


def check_restarts(
    pod: Pod, trace: list[SimulatedEvent], now: float, termination: float, timing: PodTiming
) -> None:
    """Check that a container that ended is restarted exactly if and when it should be."""
    init_names = {c.name for c in pod.spec.init_containers}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        own = [h for h in trace if h.name == container.name and h.what in ("begin", "end")]
        wait = None
        for place, end in enumerate(own):
            if end.what != "end":
                continue
            start = own[place - 1]
            if wait is not None and end.at - start.at > timing.crash_reset:
                wait = None
            due = end.at if wait is None else end.at + wait
            wanted = should_restart_naively(pod, container, end.code, init=container.name in init_names)
            again = own[place + 1] if place + 1 < len(own) else None
            if not wanted or due > termination or (due == termination and again is None):
                assert again is None
            elif again is None:
                assert due > now or termination <= due or _is_over(pod, trace), (container.name, due, now)
            else:
                assert again.attempt == end.attempt + 1
                assert again.at == due
            wait = timing.crash_first if wait is None else min(wait * 2, timing.crash_max)


def _is_over(pod: Pod, trace: list[SimulatedEvent]) -> bool:
    return len(trace) >= 50  # the simulation was cut off


def check_stops(pod: Pod, simulation: Simulation, termination: float) -> None:
    trace = simulation.trace
    if termination == FOREVER:
        assert not any(h.what == "stop" for h in trace)
        return
    assert simulation.termination is not None
    # Who shortens the time when it is up already still leaves the least there is.
    deadline = max(
        simulation.termination.deadline,
        *(when for when in simulation.reported if when <= simulation.now),
        0.0,
    )
    sidecars = [c.name for c in pod.spec.init_containers if c.restart_policy == "Always"]
    running: set[str] = set()
    for event in trace:
        if event.what == "begin":
            running.add(event.name)
        elif event.what == "end":
            running.discard(event.name)
            if event.at > termination:
                assert event.at <= deadline + simulation.timing.grace_min
        elif event.what == "stop":
            assert event.at >= termination
            assert event.grace >= simulation.timing.grace_min
            if event.name not in sidecars:
                continue
            later = sidecars[sidecars.index(event.name) + 1 :]
            waited_for = {n for n in running if n not in sidecars or n in later}
            assert not waited_for or event.at >= simulation.termination.deadline


# -- single cases


def test_init_containers_run_in_order_then_the_others_together() -> None:
    pod = pod_of(
        Container(name="m1"), Container(name="m2"), inits=(Container(name="i1"), Container(name="i2"))
    )
    found = compute_pod_actions(PodState(pod=pod, now=5.0, sandbox=SANDBOX))
    assert found.actions == (CreateContainer(pod.spec.init_containers[0], 0),)
    done = [state("i1", ContainerPhase.EXITED), state("i2", ContainerPhase.EXITED)]
    assert compute_pod_actions(PodState(pod=pod, now=5.0, sandbox=SANDBOX, states=done[:1])).actions == (
        CreateContainer(pod.spec.init_containers[1], 0),
    )
    found = compute_pod_actions(PodState(pod=pod, now=5.0, sandbox=SANDBOX, states=done))
    assert found.actions == tuple(CreateContainer(c, 0) for c in pod.spec.containers)


def test_containers_after_a_sidecar_wait_for_its_startup_probe() -> None:
    sidecar = Container(name="s", restart_policy=SIDECAR, startup_probe=Probe())
    pod = pod_of(Container(name="m"), inits=(sidecar,))
    at = PodState(pod=pod, now=5.0, sandbox=SANDBOX, states=(state("s"),))
    assert compute_pod_actions(at).actions == ()
    started = replace(at, probes={"s-0": ProbeResults(started=True)})
    assert compute_pod_actions(started).actions == (CreateContainer(pod.spec.containers[0], 0),)
    unwell = replace(at, probes={"s-0": ProbeResults(started=False, failed="startup")})
    (stop,) = compute_pod_actions(unwell).stops
    assert stop.message == "Init container s failed startup probe, will be restarted"


def test_crash_loop_message_shows_the_backoff() -> None:
    pod = pod_of(Container(name="m"))
    sim = Simulation(pod, {"m": Behaviour(runs=((0.0, 1),))})
    sim.run(horizon=1100.0)
    begins = [h.at - 1000.0 for h in sim.trace if h.what == "begin"]
    assert begins == [0.0, 0.0, 10.0, 30.0, 70.0]
    at = PodState(
        pod=pod, now=1100.0, sandbox=sim.sandbox, states=tuple(sim.states.values()), backoffs=sim.backoffs
    )
    found = compute_pod_actions(at)
    assert found.wake_at == 1150.0
    assert found.waiting["m"].reason == "CrashLoopBackOff"
    assert found.waiting["m"].message == "back-off 1m20s restarting failed container=m pod=p_d(u)"


def test_a_clock_that_is_set_back_ends_a_backoff() -> None:
    pod = pod_of(Container(name="m"))
    sim = Simulation(pod, {"m": Behaviour(runs=((0.0, 1),))})
    sim.run(horizon=1100.0)
    states = tuple(sim.states.values())
    at = PodState(pod=pod, now=1100.0, sandbox=sim.sandbox, states=states, backoffs=sim.backoffs)
    assert compute_pod_actions(at).actions == ()
    (action,) = compute_pod_actions(replace(at, now=900.0)).actions
    assert isinstance(action, CreateContainer)
    failed = replace(
        at, states=(), backoffs={}, failures={"m": StepFailure("CreateContainerError", "no", 5, 1099.0)}
    )
    assert compute_pod_actions(failed).actions == ()
    assert compute_pod_actions(replace(failed, now=1098.0)).actions == (
        CreateContainer(pod.spec.containers[0], 0, None),
    )


def test_a_long_run_resets_the_backoff() -> None:
    sim = Simulation(
        pod_of(Container(name="m")), {"m": Behaviour(runs=((0.0, 1), (0.0, 1), (601.0, 1), (FOREVER, 0)))}
    )
    sim.run(horizon=3000.0)
    begins = [h.at - 1000.0 for h in sim.trace if h.what == "begin"]
    assert begins == [0.0, 0.0, 10.0, 611.0]


def test_only_the_previous_attempt_is_kept() -> None:
    sim = Simulation(pod_of(Container(name="m")), {"m": Behaviour(runs=((0.0, 1),))})
    sim.run(horizon=2000.0)
    assert [s.attempt for s in sim.states.values()] == [7, 8]


def test_sidecars_stop_last_and_in_reverse_order() -> None:
    inits = (Container(name="s1", restart_policy=SIDECAR), Container(name="s2", restart_policy=SIDECAR))
    pod = pod_of(Container(name="m"), inits=inits, policy="Never")
    sim = Simulation(pod, {"m": Behaviour(runs=((5.0, 0),)), "s1": Behaviour(), "s2": Behaviour(heeds=3.0)})
    sim.run()
    ends = [(h.name, h.at - 1000.0) for h in sim.trace if h.what == "end"]
    assert ends == [("m", 5.0), ("s2", 8.0), ("s1", 8.0)]
    assert sim.termination is not None
    assert sim.termination.cause is TerminationCause.FINISHED


def test_sidecars_are_stopped_within_the_grace_period() -> None:
    pod = pod_of(Container(name="m"), inits=(Container(name="s", restart_policy=SIDECAR),))
    sim = Simulation(pod, {"m": Behaviour(heeds=1e6), "s": Behaviour(heeds=1e6)})
    sim.news.append((1010.0, lambda sim: sim.delete(20)))
    sim.run()
    ends = {h.name: h.at - 1010.0 for h in sim.trace if h.what == "end"}
    assert ends == {"m": 20.0, "s": 22.0}


def test_a_second_deletion_shortens_the_grace_period() -> None:
    pod = pod_of(Container(name="m"))
    sim = Simulation(pod, {"m": Behaviour(heeds=1e6)})
    sim.news.append((1010.0, lambda sim: sim.delete(300)))
    sim.news.append((1020.0, lambda sim: sim.delete(0)))
    sim.run()
    assert [h.grace for h in sim.trace if h.what == "stop"] == [300.0, 2.0]
    assert sim.trace[-1].at == 1022.0


def test_a_force_deleted_pod_is_killed() -> None:
    pod = pod_of(Container(name="m"), termination_grace_period_seconds=600)
    sim = Simulation(pod, {"m": Behaviour(heeds=1e6)})
    sim.news.append((1010.0, lambda sim: setattr(sim, "removed", True)))
    sim.run()
    assert sim.trace[-1] == SimulatedEvent(1012.0, "end", "m", 0, 137)


def test_active_deadline_fails_the_pod() -> None:
    pod = pod_of(Container(name="m"), active_deadline_seconds=30)
    sim = Simulation(pod, {"m": Behaviour()}).run()
    assert sim.termination is not None
    assert (sim.termination.cause, sim.termination.since) == (TerminationCause.DEADLINE, 1030.0)
    assert sim.termination.reason == "DeadlineExceeded"
    assert sim.termination.message == "Pod was active on the node longer than the specified deadline"


def test_a_lost_sandbox_is_recreated_and_init_containers_run_again() -> None:
    pod = pod_of(Container(name="m"), Container(name="n"), inits=(Container(name="i"),), policy="OnFailure")
    gone = replace(SANDBOX, running=False)
    states = (
        state("i", ContainerPhase.EXITED),
        state("m", ContainerPhase.EXITED, exit_code=137, finished_at=2.0),
        state("n", ContainerPhase.EXITED),
    )
    at = PodState(pod=pod, now=50.0, sandbox=gone, states=states)
    assert compute_pod_actions(at).actions == (RunSandbox(stale=True),)
    renewed = replace(at, sandbox=replace(SANDBOX, created_at=50.0))
    assert compute_pod_actions(renewed).actions == (CreateContainer(pod.spec.init_containers[0], 1, 0.0),)
    again = replace(state("i", ContainerPhase.EXITED, attempt=1), created_at=51.0)
    found = compute_pod_actions(replace(renewed, states=(*states, again)))
    assert found.actions == (CreateContainer(pod.spec.containers[0], 1, 2.0),), (
        "n has succeeded and is not run again"
    )


def test_a_container_created_before_a_crash_of_the_agent_is_started() -> None:
    pod = pod_of(Container(name="m"))
    at = PodState(pod=pod, now=5.0, sandbox=SANDBOX, states=(state("m", ContainerPhase.CREATED),))
    assert compute_pod_actions(at).actions == (StartContainer(pod.spec.containers[0], "m-0"),)
    failed = replace(at, failures={"m": StepFailure("RunContainerError", "no", 1, 4.5)})
    found = compute_pod_actions(failed)
    assert (found.actions, found.wake_at) == ((), 5.5)
    assert found.waiting["m"].reason == "RunContainerError"
    assert compute_pod_actions(replace(failed, now=6.0)).actions == (
        CreateContainer(pod.spec.containers[0], 1, None, "m-0"),
    )


def test_a_container_of_another_pod_or_an_older_attempt_is_stopped() -> None:
    pod = pod_of(Container(name="m"))
    states = (state("m", attempt=0), state("m", attempt=1), state("x"))
    found = compute_pod_actions(PodState(pod=pod, now=5.0, sandbox=SANDBOX, states=states))
    assert {stop.id for stop in found.stops} == {"m-0", "x-0"}


def test_restart_counts_continue_from_the_pod_status() -> None:
    pod = pod_of(Container(name="m"))
    found = compute_pod_actions(PodState(pod=pod, now=5.0, sandbox=SANDBOX, restarts={"m": 4}))
    assert found.actions == (CreateContainer(pod.spec.containers[0], 5),)


@pytest.mark.parametrize("kind", ["liveness", "startup"])
def test_an_unhealthy_container_is_stopped_once(kind: str) -> None:
    pod = pod_of(Container(name="m"), policy="Never")
    at = PodState(
        pod=pod, now=5.0, sandbox=SANDBOX, states=(state("m"),), probes={"m-0": ProbeResults(failed=kind)}
    )
    (stop,) = compute_pod_actions(at).stops
    assert stop == StopContainer("m-0", "m", 30.0, f"Container m failed {kind} probe")
    assert compute_pod_actions(replace(at, stopping={"m-0": 35.0})).actions == ()


# -- ephemeral containers


def test_ephemeral_containers_start_once_and_before_init_containers_are_done() -> None:
    debugger = Container(name="debugger")
    pod = pod_of(Container(name="main"), inits=(Container(name="first"),), ephemeral_containers=(debugger,))
    waiting = PodState(pod=pod, now=10.0, sandbox=SANDBOX, states=(state("first"),))
    assert compute_pod_actions(waiting).actions == (CreateContainer(debugger, 0, None, ""),)
    running = replace(waiting, states=(state("first"), state("debugger")))
    assert compute_pod_actions(running).actions == ()
    ended = replace(waiting, states=(state("first"), state("debugger", ContainerPhase.EXITED, exit_code=1)))
    assert compute_pod_actions(ended).actions == ()


def test_an_ephemeral_container_stops_with_its_pod_and_does_not_keep_it() -> None:
    pod = pod_of(Container(name="main"), policy="Never", ephemeral_containers=(Container(name="debugger"),))
    finished = PodState(
        pod=pod,
        now=10.0,
        sandbox=SANDBOX,
        states=(state("main", ContainerPhase.EXITED), state("debugger")),
    )
    found = compute_pod_actions(finished)
    assert found.termination is not None
    assert found.termination.cause is TerminationCause.FINISHED
    assert [stop.name for stop in found.stops] == ["debugger"]
