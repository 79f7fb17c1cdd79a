"""Effects that only the kernel can show: cpusets and OOM kills. Skipped where no cgroups are available."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from plimsoll.node.cgroups import Cgroups
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.hooks import AdjustedContainer
from plimsoll.node.resources import LinuxResources
from tests.waiting import until

from .runtime_harness import (
    RecordingHooks,
    a_container,
    a_plan,
    alive,
    ended,
    kernel_cgroups,
    lines,
    run,
    runtime_harness,
    shell,
    state,
)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = kernel_cgroups("kernel")
    if found is None:
        pytest.skip("needs root and cgroups that can be written")
    try:
        yield found
    finally:
        assert found.tear_down()


@pytest.fixture
def cpus(cgroups: Cgroups) -> list[int]:
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("needs cpusets and two CPUs")
    return found


def allowed(pid: int) -> str:
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith("Cpus_allowed_list"))


async def test_cpusets_are_applied_and_changed_while_it_runs(cgroups: Cgroups, cpus: list[int]) -> None:
    first, last = str(cpus[0]), str(cpus[-1])
    hooks = RecordingHooks()
    hooks.adjust = lambda container, resources: AdjustedContainer(
        resources=resources.merged(LinuxResources(cpus=last))
    )
    async with runtime_harness(cgroups) as harness:
        async with harness.runtime(hooks) as runtime:
            text = "grep Cpus_allowed_list /proc/self/status; sleep 1000 & wait"
            pid = (await run(runtime, shell(text))).pid
            await until(lambda: lines(state(runtime)) == [f"Cpus_allowed_list:\t{last}"])
            await until(lambda: len(cgroups.pids("pod-1", "c1")) == 2)
            assert cgroups.cpus("pod-1", "c1") == last
            assert await runtime.apply("c1", LinuxResources(cpus=first)) is None
            assert [allowed(each) for each in cgroups.pids("pod-1", "c1")] == [first, first]
            assert state(runtime).cpus == first
            fault = await runtime.apply("c1", LinuxResources(cpus="4000"))
            assert isinstance(fault, RuntimeFault)
            assert (allowed(pid), state(runtime).cpus) == (first, first)
        async with harness.runtime() as runtime:
            assert state(runtime).cpus == first
            assert await runtime.apply("c1", LinuxResources(cpus=last)) is None
            assert allowed(pid) == last


async def test_an_unavailable_cpuset_is_a_fault(cgroups: Cgroups, cpus: list[int]) -> None:
    hooks = RecordingHooks()
    hooks.adjust = lambda container, resources: AdjustedContainer(resources=LinuxResources(cpus="4000"))
    async with runtime_harness(cgroups) as harness, harness.runtime(hooks) as runtime:
        with pytest.raises(AssertionError):
            await run(runtime, shell("true"))
        assert runtime.containers() == []
        assert cgroups.containers("pod-1") == ()
        assert hooks.calls[-2:] == ["stopped c1 created", "removed c1 created"]


async def test_out_of_memory(cgroups: Cgroups) -> None:
    if not any("memory" in str(path) for path in cgroups.join_files("pod-1", "c1")) and cgroups.version == 1:
        pytest.skip("needs the memory controller")
    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        greedy = "x = bytearray(300 << 20); x[::4096] = b'x' * len(x[::4096]); print('still here')"
        spec = a_container(
            "python3",
            "-c",
            greedy,
            plan=a_plan("c1", memory_limit=32 << 20),
            env={"PATH": os.environ["PATH"]},
        )
        await run(runtime, spec)
        found = await ended(runtime)
        assert (found.exit_code, found.signal, found.reason) == (137, signal.SIGKILL, "OOMKilled")
        assert lines(found) == []


async def test_no_cgroups_are_left(cgroups: Cgroups) -> None:
    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        for number in range(5):
            await run(runtime, shell("setsid sleep 1000 & sleep 1000", id=f"c{number}"))
        await until(lambda: len(cgroups.pids("pod-1")) == 15)
        pids = cgroups.pids("pod-1")
        await asyncio.gather(*(runtime.stop_container(f"c{n}", 0) for n in range(5)))
        assert not any(alive(pid) for pid in pids)
        assert cgroups.containers("pod-1") == ()
        await runtime.remove_sandbox("pod-1")
        assert cgroups.pods() == ()


def evict(cgroups: Cgroups, pod: str) -> None:
    """Move the processes of a pod out of the agent's cgroups and remove them all, the root included."""
    roots = cgroups.root_directories()
    for pid in cgroups.pids(pod):
        for root in roots:
            (root.parent / "cgroup.procs").write_text(str(pid))
    for root in roots:
        for directory, _, _ in os.walk(root, topdown=False):
            os.rmdir(directory)


async def test_processes_rejoin_recreated_cgroups(cgroups: Cgroups) -> None:
    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        await run(runtime, shell("setsid sleep 1000 & sleep 1000", plan=a_plan(memory_limit=64 << 20)))
        assert await runtime.create(shell("echo later", id="c2", name="later")) is None
        await until(lambda: len(cgroups.pids("pod-1")) == 3)
        pids, values = set(cgroups.pids("pod-1")), cgroups.plan()
        assert await runtime.restore_cgroups() == (), "nothing is missing"
        evict(cgroups, "pod-1")
        assert cgroups.lost()
        assert cgroups.set_up() == ()
        assert await runtime.restore_cgroups() == ("pod pod-1", "container c1", "container c2")
        assert set(cgroups.pids("pod-1", "c1")) == pids
        assert cgroups.plan() == values
        assert cgroups.unapplied() == {}
        assert await runtime.start_container("c2") is None
        await ended(runtime, "c2")
        assert lines(state(runtime, "c2")) == ["later"]
        assert state(runtime).phase is ContainerPhase.RUNNING
        assert await runtime.restore_cgroups() == ()


async def test_a_container_that_cannot_rejoin_its_cgroup_is_killed(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        await run(runtime, shell("sleep 1000"))
        await until(lambda: len(cgroups.pids("pod-1")) == 2)
        evict(cgroups, "pod-1")
        assert cgroups.set_up() == ()
        monkeypatch.setattr("plimsoll.node.runtime.shims.join", lambda pid, files: "no room")
        assert await runtime.restore_cgroups() == ("pod pod-1", "container c1")
        found = await ended(runtime)
        assert (found.exit_code, found.signal) == (137, 9)


async def test_without_its_cgroup_a_container_does_not_start(cgroups: Cgroups) -> None:
    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        await run(runtime, shell("sleep 1000", id="c0"))
        assert await runtime.create(shell("echo never")) is None
        assert cgroups.remove_container("pod-1", "c1")
        fault = await runtime.start_container("c1")
        assert fault is not None
        assert "cgroup cannot be joined" in fault.message
        assert lines(state(runtime)) == []
