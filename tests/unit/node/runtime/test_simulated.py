"""Simulated runtime."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.hooks import AdjustedContainer
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime import SimulatedRuntime
from plimsoll.node.runtime.simulated import EXIT_CODE, RUN_SECONDS, Script, script_of
from tests.waiting import until

from .runtime_harness import RecordingHooks, a_container, a_plan, a_pod


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("annotations", "role", "script"),
    [
        ({}, ContainerRole.REGULAR, Script()),
        ({}, ContainerRole.SIDECAR, Script()),
        ({}, ContainerRole.INIT, Script(0.0)),
        ({RUN_SECONDS: "2.5"}, ContainerRole.REGULAR, Script(2.5)),
        ({RUN_SECONDS: "2.5", EXIT_CODE: "3"}, ContainerRole.REGULAR, Script(2.5, 3)),
        ({RUN_SECONDS: "2.5", EXIT_CODE: "3"}, ContainerRole.SIDECAR, Script()),
        ({RUN_SECONDS: "2.5", EXIT_CODE: "3"}, ContainerRole.INIT, Script(0.0)),
        ({"run-seconds.plimsoll.dev/a": "1", RUN_SECONDS: "9"}, ContainerRole.REGULAR, Script(1.0)),
        ({"run-seconds.plimsoll.dev/b": "1", RUN_SECONDS: "9"}, ContainerRole.REGULAR, Script(9.0)),
        (
            {"run-seconds.plimsoll.dev/a": "1", "exit-code.plimsoll.dev/a": "1"},
            ContainerRole.INIT,
            Script(1.0, 1),
        ),
        ({"exit-code.plimsoll.dev/a": "1"}, ContainerRole.INIT, Script(0.0, 1)),
        ({"run-seconds.plimsoll.dev/a": "1"}, ContainerRole.SIDECAR, Script(1.0)),
        ({RUN_SECONDS: "soon"}, ContainerRole.REGULAR, Script()),
        ({RUN_SECONDS: "nan"}, ContainerRole.REGULAR, Script()),
        ({RUN_SECONDS: "inf"}, ContainerRole.REGULAR, Script()),
        ({RUN_SECONDS: "1e300"}, ContainerRole.REGULAR, Script()),
        ({RUN_SECONDS: "-5"}, ContainerRole.REGULAR, Script(0.0)),
        ({EXIT_CODE: "999"}, ContainerRole.REGULAR, Script(None, 999 & 0xFF)),
    ],
)
def test_annotations(annotations: dict[str, str], role: ContainerRole, script: Script) -> None:
    assert script_of(annotations, "a", role) == script


@given(st.text(max_size=50), st.text(max_size=50), st.sampled_from(ContainerRole))
def test_any_annotation_is_accepted(seconds: str, code: str, role: ContainerRole) -> None:
    script = script_of({RUN_SECONDS: seconds, EXIT_CODE: code}, "a", role)
    assert script.seconds is None or script.seconds >= 0
    assert 0 <= script.exit_code <= 255


async def test_container_lifecycle() -> None:
    hooks, clock = RecordingHooks(), Clock()
    runtime = SimulatedRuntime(hooks, clock)
    changed: list[str] = []
    await runtime.start(changed.append)
    assert await runtime.run_sandbox(a_pod(annotations={RUN_SECONDS: "5", EXIT_CODE: "2"})) is None
    assert await runtime.create(a_container()) is None
    assert await runtime.create(a_container()) is None
    assert [c.phase for c in runtime.containers()] == [ContainerPhase.CREATED]
    assert await runtime.start_container("c1") is None
    assert await runtime.start_container("c1") is None
    clock.now += 4.9
    runtime.tick()
    assert runtime.containers("pod-1")[0].phase is ContainerPhase.RUNNING
    clock.now += 0.2
    runtime.tick()
    await until(lambda: changed == ["pod-1"])
    (state,) = runtime.containers("pod-1")
    assert (state.phase, state.exit_code, state.reason) == (ContainerPhase.EXITED, 2, "Error")
    assert (state.started_at, state.finished_at) == (1000.0, clock.now)
    await runtime.remove_sandbox("pod-1")
    await runtime.remove_sandbox("pod-1")
    assert (runtime.sandboxes(), runtime.containers(), runtime.containers("pod-1")) == ([], [], [])
    await runtime.stop()
    assert hooks.calls == [
        "sandbox_run pod-1",
        "create c1",
        "created c1 created",
        "starting c1 created",
        "started c1 running",
        "stopped c1 exited",
        "sandbox_stopped pod-1",
        "removed c1 exited",
        "sandbox_removed pod-1",
    ]


async def test_stopping_ends_a_container_without_an_event() -> None:
    runtime = SimulatedRuntime()
    changed: list[str] = []
    await runtime.start(changed.append)
    await runtime.run_sandbox(a_pod())
    for id, grace in (("c1", 30.0), ("c2", 0.0)):
        await runtime.create(a_container(id=id))
        await runtime.start_container(id)
        await runtime.stop_container(id, grace)
        await runtime.stop_container(id, grace)
    assert [(c.phase, c.exit_code, c.reason) for c in runtime.containers()] == [
        (ContainerPhase.EXITED, 0, "Completed")
    ] * 2
    await runtime.stop_container("unknown", 1)
    await runtime.remove_container("unknown")
    assert changed == []
    await runtime.stop()


async def test_real_time() -> None:
    runtime = SimulatedRuntime()
    changed: list[str] = []
    await runtime.start(changed.append)
    await runtime.run_sandbox(a_pod(annotations={RUN_SECONDS: "0.05"}))
    await runtime.create(a_container(id="init", role=ContainerRole.INIT))
    await runtime.start_container("init")
    await until(lambda: runtime.containers()[0].phase is ContainerPhase.EXITED)
    await runtime.create(a_container())
    await runtime.start_container("c1")
    await until(lambda: runtime.containers()[1].phase is ContainerPhase.EXITED)
    state = runtime.containers()[1]
    assert 0.05 <= state.finished_at - state.started_at < 10
    assert changed == ["pod-1", "pod-1"]
    await runtime.stop()


async def test_refusals() -> None:
    hooks = RecordingHooks()
    runtime = SimulatedRuntime(hooks)
    await runtime.start(lambda uid: None)
    fault = await runtime.create(a_container())
    assert fault is not None
    assert fault.reason == "CreateContainerError"
    hooks.refuse_sandbox = RuntimeFault("X", "no")
    assert await runtime.run_sandbox(a_pod()) == RuntimeFault("X", "no")
    assert runtime.sandboxes() == []
    hooks.refuse_sandbox = None
    await runtime.run_sandbox(a_pod())
    hooks.adjust = lambda container, resources: RuntimeFault("Y", "never")
    assert await runtime.create(a_container()) == RuntimeFault("Y", "never")
    fault = await runtime.create(a_container(cdi=("v/c=x",)))
    assert fault is not None
    assert "unresolvable CDI devices v/c=x" in fault.message
    assert runtime.containers() == []
    assert isinstance(await runtime.start_container("c1"), RuntimeFault)
    assert isinstance(await runtime.update("c1", a_plan()), RuntimeFault)
    await runtime.stop()


async def test_hooks_change_a_new_container() -> None:
    hooks = RecordingHooks()
    runtime = SimulatedRuntime(hooks)
    await runtime.start(lambda uid: None)
    await runtime.run_sandbox(a_pod())
    await runtime.create(a_container(id="old"))

    def adjust(container: Any, resources: LinuxResources) -> AdjustedContainer:
        return AdjustedContainer(resources=resources.merged(LinuxResources(cpus="3")))

    hooks.adjust = adjust
    await runtime.create(a_container(id="new"))
    assert await runtime.apply("old", LinuxResources(cpus="0-2")) is None
    assert {c.id: c.cpus for c in runtime.containers()} == {"old": "0-2", "new": "3"}
    held = {held.spec.id: held.resources.cpus for held in runtime.inventory().containers}
    assert held == {"old": "0-2", "new": "3"}
    assert [pod.uid for pod in runtime.inventory().pods] == ["pod-1"]
    assert await runtime.update("old", a_plan("old", cpu_shares=77)) is None
    assert runtime.inventory().containers[0].resources == LinuxResources(cpu_shares=77, cpus="0-2")
    await runtime.stop()


def test_memory_of_thousands_of_pods() -> None:
    async def scenario() -> float:
        runtime = SimulatedRuntime()
        ended: list[str] = []
        await runtime.start(ended.append)
        started = time.process_time()
        for number in range(3000):
            uid = f"pod-{number}"
            await runtime.run_sandbox(a_pod(uid, annotations={RUN_SECONDS: "0"}))
            await runtime.create(a_container(id=uid, pod=uid))
            await runtime.start_container(uid)
        await until(lambda: len(ended) == 3000)
        for number in range(3000):
            await runtime.remove_sandbox(f"pod-{number}")
        taken = time.process_time() - started
        await runtime.stop()
        return taken

    assert asyncio.run(scenario()) < 10  # about 0.3 s on a machine at rest
