"""Adoption of containers by the next agent after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.hooks import AdjustedContainer
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime import ProcessRuntime, shims
from tests.sizes import seeds
from tests.waiting import until

from .runtime_harness import (
    RecordingHooks,
    RuntimeHarness,
    a_container,
    a_pod,
    alive,
    ended,
    kernel_cgroups,
    lines,
    run,
    runtime_harness,
    shell,
    state,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux with pidfd")

ROOT = Path(__file__).parents[4]


def an_agent(harness: RuntimeHarness, count: int, cgroups: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.node.runtime.agent",
            str(harness.layout.root),
            cgroups,
            str(count),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def directory_of(harness: RuntimeHarness, name: str = "c1", attempt: int = 0) -> Path:
    return harness.layout.container("pod-1", name) / str(attempt)


def shim_of(found: ContainerInfo) -> int:
    run = json.loads((Path(found.log).parent / "run.json").read_text())
    return int(run["shim"])


async def kill_shim(found: ContainerInfo) -> None:
    """Kill the shim of a container and wait for its end: until then it could still be adopted."""
    shim = shim_of(found)
    os.kill(shim, signal.SIGKILL)
    await until(lambda: not alive(shim))


async def test_processes_survive_kill_9_and_are_adopted() -> None:
    async with runtime_harness() as harness:
        os.mkfifo(harness.layout.root / "go")
        agent = an_agent(harness, 5)
        assert agent.stdout is not None
        reported = [agent.stdout.readline().split() for _ in range(5)]
        agent.kill()
        agent.wait()
        agent.stdout.close()
        pids = {id: int(pid) for id, pid in reported}
        assert all(alive(pid) for pid in pids.values())
        hooks = RecordingHooks()
        async with harness.runtime(hooks) as runtime:
            assert runtime.findings == []
            assert {found.id: found.pid for found in runtime.containers()} == pids
            assert all(found.phase is ContainerPhase.RUNNING for found in runtime.containers())
            assert [found.id for found in runtime.containers()] == [f"c{n}" for n in range(5)]
            assert {pod.uid for pod in runtime.sandboxes()} == {"pod-0", "pod-1", "pod-2"}
            assert [held.spec.id for held in runtime.inventory().containers] == list(pids)
            assert all(pod.running for pod in runtime.sandboxes())
            await until(lambda: all(lines(found) == [found.id] for found in runtime.containers()))
            assert hooks.calls == []
            # and they can be stopped, or end by themselves
            await runtime.stop_container("c4", 30)
            assert (state(runtime, "c4").exit_code, state(runtime, "c4").signal) == (143, 15)
            with open(harness.layout.root / "go", "w"):
                pass
            for number in range(4):
                assert (await ended(runtime, f"c{number}")).exit_code == number
            assert not any(alive(pid) for pid in pids.values())
            await until(lambda: sorted(set(harness.changed)) == ["pod-0", "pod-1", "pod-2"])


async def test_an_unobserved_container_exit() -> None:
    async with runtime_harness() as harness:
        os.mkfifo(harness.layout.root / "go")
        agent = an_agent(harness, 3)
        assert agent.stdout is not None
        pids = [int(agent.stdout.readline().split()[1]) for _ in range(3)]
        agent.kill()
        agent.wait()
        agent.stdout.close()
        os.kill(pids[2], signal.SIGKILL)
        with open(harness.layout.root / "go", "w"):
            pass
        await until(lambda: not any(alive(pid) for pid in pids))
        directories = [harness.layout.container(f"pod-{n}", f"c{n}") / "0" for n in range(3)]
        await until(lambda: all((directory / "exit.json").exists() for directory in directories))
        hooks = RecordingHooks()
        async with harness.runtime(hooks) as runtime:
            codes = [(c.exit_code, c.signal, c.reason) for c in runtime.containers()]
            assert codes == [(0, 0, "Completed"), (1, 0, "Error"), (137, 9, "Error")]
            assert all(c.finished_at >= c.started_at > 0 for c in runtime.containers())
            assert hooks.calls == [f"stopped c{n} exited" for n in range(3)]
            before = list(runtime.containers())
        async with harness.runtime() as runtime:
            assert list(runtime.containers()) == before


@pytest.mark.parametrize("seed", seeds(4))
async def test_killed_at_any_point(seed: int) -> None:
    """Wherever the agent is killed, the next one knows every process and no other."""
    dice = random.Random(seed)
    async with runtime_harness() as harness:
        os.mkfifo(harness.layout.root / "go")
        agent = an_agent(harness, 40)
        assert agent.stdout is not None
        reading = asyncio.to_thread(agent.stdout.readline)
        await reading
        await asyncio.sleep(dice.random() * 0.6)
        agent.kill()
        agent.wait()
        reported = ["c0", *(line.split()[0] for line in agent.stdout.read().splitlines() if " " in line)]
        agent.stdout.close()
        async with harness.runtime() as runtime:
            assert runtime.findings == []
            found = {c.id: c for c in runtime.containers()}
            assert {id for id in reported if id in found} == set(reported)
            assert len(found) <= len(reported) + 1
            assert all(found[id].phase is ContainerPhase.RUNNING for id in reported)
            running = {c.pid for c in found.values() if c.phase is ContainerPhase.RUNNING}
            assert running == _processes_of(harness)
            for c in found.values():
                if c.phase is ContainerPhase.CREATED:  # killed between the two: it can be started yet
                    assert await runtime.start_container(c.id) is None
                    assert state(runtime, c.id).phase is ContainerPhase.RUNNING
            for pod in runtime.sandboxes():
                await runtime.remove_sandbox(pod.uid)
            assert _processes_of(harness) == set()
            assert list(harness.layout.pods.iterdir()) == []


def _processes_of(harness: RuntimeHarness) -> set[int]:
    """Return the first processes of containers: children of our shims."""
    root = os.fsencode(harness.layout.root) + b"/pods/"
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            if any(word.startswith(root) for word in words) and alive(int(name)):
                found |= {pid for pid in shims.descendants(int(name))[1:2] if alive(pid)}
    return found


async def test_a_killed_shim_ends_its_container() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness:
        async with harness.runtime(hooks) as runtime:
            found = await run(runtime, shell("sleep 1000 & echo up; wait"))
            await until(lambda: lines(state(runtime)) == ["up"])
            children = shims.descendants(found.pid)
            assert len(children) == 2
            os.kill(shim_of(found), signal.SIGKILL)
            lost = await ended(runtime)
            assert (lost.exit_code, lost.reason) == (137, "ContainerStatusUnknown")
            assert "its shim ended without leaving an exit code" in lost.message
            await until(lambda: not any(alive(pid) for pid in children))
            await until(lambda: hooks.calls[-1] == "stopped c1 exited")
            await runtime.stop_container("c1", 30)
        async with harness.runtime() as runtime:
            assert state(runtime) == lost


async def test_a_shim_killed_while_no_agent_was_running() -> None:
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            found = await run(runtime, shell("sleep 1000 & wait"))
        children = shims.descendants(found.pid)
        await kill_shim(found)
        async with harness.runtime() as runtime:
            assert state(runtime).reason == "ContainerStatusUnknown"
            await until(lambda: not any(alive(pid) for pid in children))


async def test_a_reused_pid_is_left_alone() -> None:
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            found = await run(runtime, shell("exit 0"))
            await ended(runtime)
        bystander = await asyncio.create_subprocess_exec("sleep", "1000")
        try:
            # as if the kernel had reused the PIDs
            directory = directory_of(harness)
            (directory / "exit.json").unlink()
            record = json.loads((directory / "run.json").read_text())
            record.update(pid=bystander.pid, shim=bystander.pid)
            (directory / "run.json").write_text(json.dumps(record))
            async with harness.runtime() as runtime:
                lost = state(runtime)
                assert (lost.phase, lost.reason) == (ContainerPhase.EXITED, "ContainerStatusUnknown")
                await runtime.stop_container("c1", 0)
                await runtime.remove_sandbox("pod-1")
            assert alive(bystander.pid)
            started = shims.start_time(bystander.pid)
            assert started is not None
            assert not shims.send(bystander.pid, started + 1, signal.SIGKILL)
            assert shims.send(bystander.pid, started, 0)
            assert found.pid != bystander.pid
        finally:
            bystander.kill()
            await bystander.wait()


async def test_state_after_a_reboot() -> None:
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            await run(runtime, shell("exit 0"))
            await ended(runtime)
            await runtime.create(shell("echo later", id="c2"))
        directory = directory_of(harness)
        (directory / "exit.json").unlink()
        record = json.loads((directory / "run.json").read_text())
        (directory / "run.json").write_text(json.dumps({**record, "boot_id": "another"}))
        async with harness.runtime() as runtime:
            lost = state(runtime)
            assert (lost.exit_code, lost.reason) == (255, "ContainerStatusUnknown")
            assert "the machine was restarted" in lost.message
            assert await runtime.start_container("c2") is None
            assert lines(await ended(runtime, "c2")) == ["later"]


GARBAGE = [b"", b'{"spec": 3}', b"[" * 100_000]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("state.json", data) for data in GARBAGE),
        *zip(("run.json", "exit.json", "sandbox.json"), GARBAGE, strict=True),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
async def test_damaged_files(name: str, data: bytes) -> None:
    """Unreadable files are quarantined and reported; their processes are killed, others are not."""
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            damaged = await run(runtime, shell("sleep 1000" if name != "exit.json" else "exit 5"))
            other = await run(runtime, shell("sleep 1000", id="c2"))
            elsewhere = await run(runtime, shell("sleep 1000", id="c3", pod="pod-2"))
            if name == "exit.json":
                await ended(runtime)
        path = harness.layout.pod("pod-1") / name if name == "sandbox.json" else directory_of(harness) / name
        path.write_bytes(data)
        async with harness.runtime() as runtime:
            found = {c.id: c for c in runtime.containers()}
            assert found["c3"] == elsewhere
            await until(lambda: not alive(damaged.pid))
            if name == "sandbox.json":
                assert set(found) == {"c3"}
                await until(lambda: not alive(other.pid))
                assert not harness.layout.pod("pod-1").exists()
            elif name == "state.json":
                assert set(found) == {"c2", "c3"}
                assert not directory_of(harness).exists()
            else:
                assert found["c1"].phase is ContainerPhase.EXITED
                assert (found["c1"].exit_code, found["c1"].reason) == (137, "ContainerStatusUnknown")
            if name != "sandbox.json":
                assert found["c2"] == other
            assert [finding for finding in runtime.findings if str(path) in finding.what]
            assert [file.read_bytes() for file in harness.layout.quarantine.iterdir()] == [data]
            # a pod that was lost can be made again
            assert await runtime.run_sandbox(a_pod()) is None
            assert await runtime.create(shell("exit 0", id="c9")) is None


async def test_incomplete_and_foreign_containers_are_removed() -> None:
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            found = await run(runtime, shell("sleep 1000"))
        half = directory_of(harness, "half")
        half.mkdir(parents=True)
        (half / ".state.json.tmp").write_text("{")
        stray = harness.layout.pod("stray") / "containers" / "c" / "0"
        stray.mkdir(parents=True)
        moved = directory_of(harness, "moved")
        shutil.copytree(directory_of(harness), moved, ignore=shutil.ignore_patterns("*.sock"))
        (harness.layout.pods / "file").write_text("")
        (harness.layout.pods / "link").symlink_to("/")
        async with harness.runtime() as runtime:
            assert list(runtime.containers()) == [found]
            assert not half.exists()
            assert not moved.exists()
            assert not harness.layout.pod("stray").exists()
            assert [f for f in runtime.findings if "belongs to another container" in f.what]


async def test_applied_resources_survive_an_agent_restart() -> None:
    async with runtime_harness() as harness:
        hooks = RecordingHooks()
        hooks.adjust = lambda container, resources: AdjustedContainer(
            resources=resources.merged(LinuxResources(cpu_shares=99, unified={"memory.high": "1"}))
        )
        async with harness.runtime(hooks) as runtime:
            await run(runtime, shell("sleep 1000", env={"A": "B"}))
            await runtime.apply("c1", LinuxResources(cpus="0", pids=50))
            before = runtime.inventory()
        async with harness.runtime() as runtime:
            assert runtime.inventory() == before
            held = runtime.inventory().containers[0]
            assert held.state.cpus == "0"
            assert held.resources.pids == 50


class Killed(Exception):
    """The agent is killed here."""


async def test_a_starting_shim_is_found_by_the_next_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent may be killed between starting a shim and the shim's first message."""
    arguments: list[Path] = []

    def kill(*paths: Path) -> tuple[int, int]:
        arguments.extend(paths)
        raise Killed

    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            await runtime.run_sandbox(a_pod())
            await runtime.create(a_container("sleep", "1000"))
            with monkeypatch.context() as patched:
                patched.setattr(shims, "spawn", kill)
                with pytest.raises(Killed):
                    await runtime.start_container("c1")
        pid, reported = shims.spawn(*arguments)
        os.close(reported)  # no listener is left
        async with harness.runtime() as runtime:
            assert state(runtime).phase is ContainerPhase.RUNNING
            assert shim_of(state(runtime)) == pid


@pytest.mark.parametrize("text", ["sleep 1000 & while :; do sleep 1000; done", "while :; do echo x; done"])
async def test_shims_end_when_their_directory_is_removed(text: str) -> None:
    async with runtime_harness() as harness:
        async with harness.runtime(look_every=0.05, log_bytes=1 << 40) as runtime:
            found = await run(runtime, shell(text))
            shim = shim_of(found)
            opened = {os.readlink(each) for each in Path(f"/proc/{shim}/fd").iterdir()}
            assert str(directory_of(harness)) in opened, "it watches the directory from the start"
        tree = shims.descendants(shim)
        shutil.rmtree(harness.layout.root)
        await until(lambda: not any(alive(pid) for pid in tree))
        shims.collect(shim)


async def test_one_shim_for_one_container() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        found = await run(runtime, shell("sleep 1000"))
        directory = directory_of(harness)
        assert shims.is_locked(directory / "lock")
        with pytest.raises(OSError, match="temporarily unavailable"):
            shims.spawn(shims.SOURCE, directory / "spec.json", directory / "lock", directory / "shim.err")
        assert alive(found.pid)
        await runtime.stop_container("c1", 0)
        assert not shims.is_locked(directory / "lock")


async def test_a_shim_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await runtime.run_sandbox(a_pod())
        breakages: list[Callable[[ProcessRuntime], None]] = [
            lambda runtime: setattr(runtime, "program", Path("/nowhere/shim.py")),
            lambda runtime: monkeypatch.setattr(sys, "executable", "/nowhere/python"),
        ]
        for number, break_it in enumerate(breakages):
            break_it(runtime)
            assert await runtime.create(shell("echo never", id=f"c{number}")) is None
            fault = await runtime.start_container(f"c{number}")
            assert fault is not None
            assert fault.reason == "RunContainerError"
            assert "shim" in fault.message
            assert state(runtime, f"c{number}").reason == "StartError"


def test_adoption_with_kernel_cgroups() -> None:
    cgroups = kernel_cgroups("adopt")
    if cgroups is None:
        pytest.skip("needs root and cgroups that can be written")
    assert cgroups is not None

    async def scenario() -> None:
        async with runtime_harness(cgroups) as harness:
            async with harness.runtime() as runtime:
                found = await run(runtime, shell("sleep 1000 & setsid sleep 1000 & echo up; wait"))
                await until(lambda: lines(state(runtime)) == ["up"])
                await until(lambda: len(cgroups.pids("pod-1", "c1")) == 3)
            pids = cgroups.pids("pod-1", "c1")
            assert found.pid in pids
            assert shim_of(found) not in pids
            # a shim that dies leaves orphans, which the cgroup knows
            await kill_shim(found)
            async with harness.runtime() as runtime:
                assert state(runtime).reason == "ContainerStatusUnknown"
                await until(lambda: not any(alive(pid) for pid in pids))
                assert cgroups.containers("pod-1") == ()
                await runtime.create(shell("echo again", id="c2"))
            # cgroups that no record speaks of
            assert cgroups.make_container("pod-1", "ghost", LinuxResources()) == ()
            assert cgroups.make_pod("pod-9", "Burstable", a_pod().plan) == ()
            async with harness.runtime() as runtime:
                assert cgroups.pods() == ("pod-1",)
                assert cgroups.containers("pod-1") == ("c2",)
                await runtime.start_container("c2")
                assert lines(await ended(runtime, "c2")) == ["again"]
                await runtime.remove_sandbox("pod-1")
            assert cgroups.pods() == ()

    try:
        asyncio.run(scenario())
    finally:
        cgroups.tear_down()
