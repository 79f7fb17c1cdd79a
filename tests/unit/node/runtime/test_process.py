"""Process runtime: output, exits, signals, process trees, hooks and CDI."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.containers import ContainerPhase, ContainerSpec, RuntimeFault, VolumeMount
from plimsoll.node.hooks import AdjustedContainer, DeviceEdit, MountEdit
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.cdi import CdiSpec, CdiSpecDevice, DeviceNode, Edits, Mount, write_spec
from tests.sizes import FULL
from tests.waiting import DEADLINE, until

from .runtime_harness import (
    RecordingHooks,
    a_container,
    a_plan,
    a_pod,
    alive,
    ended,
    lines,
    run,
    runtime_harness,
    shell,
    state,
    with_attempt,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux with pidfd")


async def test_output_and_exit_code() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        before = time.time()
        await run(runtime, shell("echo one; echo two >&2; printf three; exit 3"))
        found = await ended(runtime)
        assert (found.phase, found.exit_code, found.signal, found.reason) == (
            ContainerPhase.EXITED,
            3,
            0,
            "Error",
        )
        assert before <= found.created_at <= found.started_at <= found.finished_at <= time.time()
        log = Path(found.log).read_text().splitlines()
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] .*"
        assert all(re.fullmatch(pattern, line) for line in log)
        marks = sorted(line.split(" ", 1)[1] for line in log)
        assert marks == ["stderr F two", "stdout F one", "stdout P three"]
        assert Path(found.log).stat().st_mode & 0o077 == 0
        await until(lambda: harness.changed == ["pod-1"])


async def test_working_files_and_logs_are_measured() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("head -c 20000 /dev/urandom > file; seq 2000"))
        await ended(runtime)
        found = (await runtime.container_storage("pod-1"))["c1"]
        assert found.files >= 20000
        assert found.logs >= 9000
        assert not found.on_image_disk
        assert await runtime.container_storage("other") == {}


@pytest.mark.parametrize(
    ("text", "code", "number", "reason"),
    [
        ("true", 0, 0, "Completed"),
        ("exit 255", 255, 0, "Error"),
        ("kill -9 $$", 137, 9, "Error"),
        ("kill -TERM $$", 143, 15, "Error"),
    ],
)
async def test_exit_codes_and_signals(text: str, code: int, number: int, reason: str) -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell(text))
        found = await ended(runtime)
        assert (found.exit_code, found.signal, found.reason, found.pid) == (code, number, reason, 0)


async def test_environment_of_a_command() -> None:
    async with (
        runtime_harness() as harness,
        harness.runtime(rlimits={"NOFILE": (77, 88)}, umask=0o027) as runtime,
    ):
        spec = shell(
            "env | sort; ulimit -n; umask; pwd; cat; ls /proc/self/fd | wc -l;cat /proc/self/oom_score_adj",
            env={"GREETING": "hello world"},
        )
        await run(runtime, spec)
        found = await ended(runtime)
        seen = lines(found)
        assert "GREETING=hello world" in seen
        assert "HOSTNAME=name-pod-1" in seen
        assert not any(line.startswith(("PYTHON", "VIRTUAL_ENV", "SSH", "USER")) for line in seen)
        work = str(harness.layout.container("pod-1", "c1") / "0" / "work")
        # stdin is empty, and beside it only what `ls` itself opens
        assert seen[-5:] == ["77", "0027", work, "4", "900"]


async def test_working_directory() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("pwd", working_dir="/usr"))
        assert lines(await ended(runtime)) == ["/usr"]
        assert await runtime.create(shell("pwd", id="c2", working_dir="/nowhere")) is None
        fault = await runtime.start_container("c2")
        assert fault is not None
        assert 'chdir to cwd ("/nowhere") failed' in fault.message


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("no-such-command",), 'exec: "no-such-command": executable file not found in $PATH'),
        (("/no/such/command",), 'exec: "/no/such/command": no such file or directory'),
        (("/etc/passwd",), 'exec: "/etc/passwd": permission denied'),
        (("/bin/sh", "a\0b"), 'exec: "/bin/sh": embedded null byte'),
        (("",), 'exec: ""'),
    ],
)
async def test_commands_that_cannot_be_started(command: tuple[str, ...], text: str) -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        await runtime.run_sandbox(a_pod())
        assert await runtime.create(a_container(*command)) is None
        fault = await runtime.start_container("c1")
        assert fault is not None
        assert fault.reason == "RunContainerError"
        assert text in fault.message
        found = state(runtime)
        assert (found.phase, found.exit_code, found.reason) == (ContainerPhase.EXITED, 128, "StartError")
        assert text in found.message
        assert hooks.calls[-2:] == ["starting c1 created", "stopped c1 exited"]
        await asyncio.wait_for(runtime.stop_container("c1", 10), DEADLINE)


async def test_invalid_unicode_is_refused() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await runtime.run_sandbox(a_pod())
        fault = await runtime.create(shell("\ud800"))
        assert fault is not None
        assert "cannot write" in fault.message
        assert isinstance(await runtime.run_sandbox(a_pod("pod-2", name="\ud800")), RuntimeFault)
        assert runtime.containers() == []
        assert list((harness.layout.pod("pod-1") / "containers" / "c1").iterdir()) == []


async def test_images_select_configured_commands() -> None:
    async with (
        runtime_harness() as harness,
        harness.runtime(images={"web": ("/bin/sh", "-c", "echo web")}) as runtime,
    ):
        await runtime.run_sandbox(a_pod())
        fault = await runtime.create(a_container(image="registry/nginx:1"))
        assert fault is not None
        assert fault.reason == "CreateContainerError"
        assert "'registry/nginx:1' is only a label here" in fault.message
        assert "give the container a command" in fault.message
        await run(runtime, a_container(id="c2", image="registry:5000/team/web:v2"))
        assert lines(await ended(runtime, "c2")) == ["web"]
        await run(runtime, a_container(id="c3", image="registry/pause:3.10"))
        assert state(runtime, "c3").phase is ContainerPhase.RUNNING
        await runtime.stop_container("c3", 30)
        assert (state(runtime, "c3").exit_code, state(runtime, "c3").reason) == (0, "Completed")
        await run(runtime, a_container(id="c4", image="docker.io/library/busybox:1.36"))
        assert (await ended(runtime, "c4")).exit_code == 0  # a shell without input


async def test_mounts_that_propagate_are_refused(tmp_path: Path) -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await runtime.run_sandbox(a_pod())
        volume = VolumeMount(str(tmp_path), "/data", propagation="HostToContainer")
        fault = await runtime.create(shell("true", volumes=(volume,)))
        assert fault is not None
        assert "volumeMounts[/data].mountPropagation: HostToContainer is not supported" in fault.message
        await run(runtime, shell("true", volumes=(replace(volume, propagation="None"),)))


async def test_repeated_calls_and_attempts() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        spec = shell("echo attempt; exit 1", name="main")
        for attempt in range(3):
            await run(runtime, with_attempt(spec, attempt))
            await ended(runtime, f"main-{attempt}")
            assert await runtime.create(with_attempt(spec, attempt)) is None
            assert await runtime.start_container(f"main-{attempt}") is None
        assert [found.attempt for found in runtime.containers("pod-1")] == [0, 1, 2]
        assert all(lines(found) == ["attempt"] for found in runtime.containers())
        await runtime.remove_container("main-0")
        await runtime.remove_container("main-0")
        assert [found.attempt for found in runtime.containers("pod-1")] == [1, 2]
        taken = await runtime.create(shell("true", id="other", name="main", attempt=2))
        assert taken is not None
        assert "is taken by another container" in taken.message
        assert hooks.calls.count("create main-1") == 1
        assert runtime.containers("unknown") == []
        await runtime.stop_container("unknown", 1)
        await runtime.stop_sandbox("unknown")
        await runtime.remove_sandbox("unknown")


async def test_grace_and_kill() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"))
        await until(lambda: lines(state(runtime)) == ["up"])
        await runtime.stop_container("c1", 30)
        assert (state(runtime).exit_code, lines(state(runtime))) == (7, ["up", "bye"])

        await run(runtime, shell("trap '' TERM; echo up; sleep 1000 & wait", id="c2"))
        await until(lambda: lines(state(runtime, "c2")) == ["up"])
        started = time.monotonic()
        first = asyncio.create_task(runtime.stop_container("c2", 1000))
        await asyncio.sleep(0.05)
        await runtime.stop_container("c2", 0.1)  # the shorter grace period wins
        await first
        assert 0.1 <= time.monotonic() - started < 1000
        assert (state(runtime, "c2").exit_code, state(runtime, "c2").signal) == (137, 9)

        spec = shell(
            "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done", id="c3", stop_signal="SIGUSR1"
        )
        await run(runtime, spec)
        await until(lambda: lines(state(runtime, "c3")) == ["up"])
        await runtime.stop_container("c3", 30)
        assert state(runtime, "c3").exit_code == 9


async def test_stopped_before_it_was_started() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await runtime.run_sandbox(a_pod())
        await runtime.create(shell("echo no"))
        await runtime.stop_container("c1", 30)
        assert state(runtime).phase is ContainerPhase.EXITED
        assert await runtime.start_container("c1") is None
        assert not Path(state(runtime).log).exists()


TREE = """
import os, sys, time
if os.fork() == 0:           # a daemon in a session of its own, twice removed
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        print("daemon", os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
if os.fork() == 0:           # a child that will not go
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("child", os.getpid(), flush=True)
    time.sleep(1000)
print("first", os.getpid(), flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["by itself", "stopped", "killed"])
async def test_child_processes_end_with_the_first_process(how: str) -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        seconds = "0.3" if how == "by itself" else "1000"
        await run(runtime, a_container("python3", "-c", TREE, seconds, env={"PATH": os.environ["PATH"]}))
        await until(lambda: len(lines(state(runtime))) == 3)
        pids = {line.split()[0]: int(line.split()[1]) for line in lines(state(runtime))}
        assert pids["first"] == state(runtime).pid
        if how == "stopped":
            await runtime.stop_container("c1", 30)
        elif how == "killed":
            await runtime.stop_sandbox("pod-1")
        found = await ended(runtime)
        assert found.exit_code == {"by itself": 0, "stopped": 143, "killed": 137}[how]
        assert not any(alive(pid) for pid in pids.values())


async def test_large_output_is_rotated() -> None:
    async with runtime_harness() as harness, harness.runtime(log_bytes=200_000, log_files=3) as runtime:
        text = (
            "i=0; while [ $i -lt 20 ]; do head -c 100000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done;"
            "seq 1 60000; echo last"
        )
        await run(runtime, shell(text))
        found = await ended(runtime)
        assert found.exit_code == 0
        directory = Path(found.log).parent
        files = sorted(path.name for path in directory.glob("log*"))
        assert files == ["log", "log.1", "log.2"]
        assert all((directory / name).stat().st_size <= 200_000 + 100_000 for name in files)
        assert lines(found)[-1] == "last"
        assert not list(directory.glob("shim.err")) or (directory / "shim.err").read_text() == ""


async def test_long_lines_are_split_and_marked() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("head -c 40000 /dev/zero | tr '\\0' x; echo; echo; printf '\\377\\n'"))
        found = await ended(runtime)
        log = Path(found.log).read_bytes().split(b"\n")
        parts = [line.split(b" ", 3) for line in log if line]
        assert [mark for _, _, mark, _ in parts] == [b"P", b"P", b"F", b"F", b"F"]
        assert b"".join(text for _, _, _, text in parts[:3]) == b"x" * 40000
        assert [text for _, _, _, text in parts[3:]] == [b"", b"\xff"]


async def test_hooks_and_cdi_in_order() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        first = CdiSpec(
            version="0.8.0",
            kind="v.com/c",
            devices=(CdiSpecDevice(name="x", edits=Edits(env=("DEVICE=x", "POD=cdi", "GONE=1"))),),
            edits=Edits(env=("FILE=1",)),
        )
        second = CdiSpec(
            version="0.8.0",
            kind="v.com/d",
            devices=(CdiSpecDevice(name="y", edits=Edits(env=("LATE=y",))),),
        )
        write_spec(harness.layout.cdi, "a", first)
        write_spec(harness.layout.cdi, "b", second)

        def adjust(container: ContainerSpec, resources: LinuxResources) -> AdjustedContainer:
            return AdjustedContainer(
                resources=resources.merged(LinuxResources(cpu_shares=55)),
                env={"HOOK": container.env["DEVICE"]},
                unset=frozenset({"GONE"}),
                command=(*container.command[:2], "env | sort"),
                cdi=("v.com/d=y",),
            )

        hooks.adjust = adjust
        await run(runtime, shell("false", cdi=("v.com/c=x",), env={"POD": "own", "OWN": "1"}))
        seen = lines(await ended(runtime))
        assert hooks.seen_env["c1"] == {"POD": "cdi", "OWN": "1", "DEVICE": "x", "FILE": "1", "GONE": "1"}
        wanted = {"DEVICE=x", "FILE=1", "HOOK=x", "LATE=y", "OWN=1", "POD=cdi"}
        assert wanted <= set(seen)
        assert not any(line.startswith("GONE") for line in seen)
        held = runtime.inventory().containers[0]
        assert held.spec.cdi == ("v.com/c=x", "v.com/d=y")
        assert held.resources.cpu_shares == 55
        await runtime.remove_sandbox("pod-1")
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


async def test_a_refused_container_leaves_nothing() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        assert await runtime.run_sandbox(a_pod()) is None
        fault = await runtime.create(shell("true", cdi=("v.com/c=x", "v.com/c=y")))
        assert fault is not None
        text = "CDI device injection failed: unresolvable CDI devices v.com/c=x, v.com/c=y"
        assert fault.message.startswith(text)
        assert "create c1" not in hooks.calls
        hooks.adjust = lambda container, resources: RuntimeFault("CreateContainerError", "not here")
        assert await runtime.create(shell("true")) == RuntimeFault("CreateContainerError", "not here")
        hooks.calls.clear()
        hooks.adjust = lambda container, resources: AdjustedContainer(resources=resources, cdi=("v.com/c=z",))
        fault = await runtime.create(shell("true"))
        assert fault is not None
        # what hooks had given away, they get back
        assert hooks.calls == ["create c1", "stopped c1 created", "removed c1 created"]
        assert runtime.containers() == []
        assert not (harness.layout.pod("pod-1") / "containers").exists()
        hooks.refuse_sandbox = RuntimeFault("X", "full")
        assert await runtime.run_sandbox(a_pod("pod-2")) == RuntimeFault("X", "full")
        assert [pod.uid for pod in runtime.sandboxes()] == ["pod-1"]
        assert [path.name for path in harness.layout.pods.iterdir()] == ["pod-1"]


async def test_a_recreated_sandbox() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        await run(runtime, shell("echo old"))
        await ended(runtime)
        await runtime.stop_sandbox("pod-1")
        await runtime.stop_sandbox("pod-1")
        assert hooks.calls.count("sandbox_stopped pod-1") == 1
        fault = await runtime.create(shell("true", id="c2"))
        assert fault is not None
        assert "no running sandbox" in fault.message
        hooks.refuse_sandbox = RuntimeFault("X", "not now")
        assert await runtime.run_sandbox(a_pod()) == RuntimeFault("X", "not now")
        # what there was is still there
        assert [pod.running for pod in runtime.sandboxes()] == [False]
        assert lines(state(runtime)) == ["old"]
        hooks.refuse_sandbox = None
        assert await runtime.run_sandbox(a_pod()) is None
        await run(runtime, shell("echo new", id="c2"))
        assert lines(await ended(runtime, "c2")) == ["new"]
        assert lines(state(runtime)) == ["old"]


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "", "a\0b", "x" * 300])
async def test_names_cannot_escape_the_state_directory(name: str) -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        assert isinstance(await runtime.run_sandbox(a_pod(name)), RuntimeFault)
        assert await runtime.run_sandbox(a_pod()) is None
        assert isinstance(await runtime.create(a_container("true", id="ok", name=name or "/")), RuntimeFault)
        assert isinstance(await runtime.create(a_container("true", id=name, name="ok")), RuntimeFault)
        assert [path.name for path in harness.layout.pods.iterdir()] == ["pod-1"]


async def test_resizes_go_through_hooks_and_are_remembered() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        await run(runtime, shell("sleep 1000"))
        await run(runtime, shell("sleep 1000", id="c2"))
        assert await runtime.update("c1", a_plan("c1", cpu_shares=512, memory_limit=1 << 20)) is None
        held = {held.spec.id: held for held in runtime.inventory().containers}
        assert held["c1"].resources == LinuxResources(cpu_shares=512, memory_limit=1 << 20)
        assert held["c1"].spec.plan.cpu_shares == 512
        assert hooks.calls[-2:] == ["update c1 running", "updated c1 running"]
        await asyncio.gather(
            *(runtime.apply("c1", LinuxResources(unified={f"file.{n}": "1"})) for n in range(20))
        )
        assert len(runtime.inventory().containers[0].resources.unified) == 20
        assert await runtime.apply("c1", LinuxResources(pids=7)) is None
        assert runtime.inventory().containers[0].resources.pids == 7
        plan = a_pod().plan
        assert await runtime.update_sandbox(a_pod(labels={"a": "b"}, plan=plan)) is None
        assert isinstance(await runtime.update_sandbox(a_pod("none")), RuntimeFault)
        assert isinstance(await runtime.update("none", a_plan()), RuntimeFault)
        assert await runtime.apply("none", LinuxResources(cpus="0")) is None


async def test_affinity_where_there_is_no_cpuset() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    hooks = RecordingHooks()
    hooks.adjust = lambda container, resources: AdjustedContainer(
        resources=resources.merged(LinuxResources(cpus=str(cpus[-1])))
    )
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        pid = (await run(runtime, shell("sleep 1000 & sleep 1000 & wait"))).pid
        assert state(runtime).cpus == str(cpus[-1])
        assert os.sched_getaffinity(pid) == {cpus[-1]}
        everything = ",".join(map(str, cpus))
        assert await runtime.apply("c1", LinuxResources(cpus=everything)) is None
        assert os.sched_getaffinity(pid) == set(cpus)
        fault = await runtime.apply("c1", LinuxResources(cpus="what"))
        assert fault is not None
        assert state(runtime).cpus == everything
        # a machine that plays a larger one has no such CPUs: it is remembered all the same
        assert await runtime.apply("c1", LinuxResources(cpus="5000")) is None
        assert (state(runtime).cpus, os.sched_getaffinity(pid)) == ("5000", set(cpus))
        await run(runtime, shell("sleep 1000", id="c2"))
        hooks.adjust = lambda container, resources: AdjustedContainer(resources=LinuxResources(cpus="5000"))
        found = await run(runtime, shell("sleep 1000", id="c3"))
        assert "CPUs [5000] cannot be set" in found.message
        await runtime.stop_container("c3", 0)
        assert state(runtime, "c3").message == ""


def can_mount() -> bool:
    with open("/proc/self/status") as file:
        caps = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff"))
    return bool(caps & 1 << 21)


@pytest.mark.skipif(not can_mount(), reason="needs CAP_SYS_ADMIN for mount namespaces")
async def test_mounts_and_devices_are_visible_inside_only() -> None:
    hooks = RecordingHooks()
    async with runtime_harness() as harness, harness.runtime(hooks) as runtime:
        root = harness.layout.root
        for name in ("source", "target", "locked"):
            (root / name).mkdir()
        (root / "source" / "file").write_text("inside")
        (root / "node").write_text("")
        mounts = (
            Mount(host_path=str(root / "source"), container_path=str(root / "target"), options=("rbind",)),
            Mount(
                host_path=str(root / "source"),
                container_path=str(root / "locked"),
                options=("ro", "bind", "nosuid"),
            ),
            Mount(host_path=str(root / "source"), container_path="/nowhere/at/all"),
            Mount(host_path="/nowhere/at/all", container_path=str(root / "locked")),
        )
        nodes = (
            DeviceNode(path="/dev/null"),
            DeviceNode(path=str(root / "node"), host_path="/dev/zero"),
            DeviceNode(path="/dev/plimsoll-none"),
        )
        edits = Edits(mounts=mounts, device_nodes=nodes, additional_gids=(4321,))
        spec = CdiSpec(version="0.8.0", kind="v.com/c", devices=(CdiSpecDevice(name="x", edits=edits),))
        write_spec(harness.layout.cdi, "a", spec)
        hooks.adjust = lambda container, resources: AdjustedContainer(
            resources=resources,
            mounts=(MountEdit("tmpfs", str(root / "source"), "tmpfs", ("size=1m", "mode=0755")),),
            devices=(DeviceEdit("/dev/null", "/dev/null"),),
        )
        text = (
            f"cat {root}/target/file; echo; (echo x > {root}/locked/new) 2>/dev/null || echo locked; "
            f"head -c 3 {root}/node | wc -c; id -G; ls {root}/source | wc -l"
        )
        await run(runtime, shell(text, cdi=("v.com/c=x",)))
        found = await ended(runtime)
        seen = lines(found)
        assert seen[:3] == ["inside", "locked", "3"]
        assert "4321" in seen[3].split()
        assert seen[4:] == ["0"]  # what hooks mount comes after what CDI files mount
        assert "cannot be mounted at /nowhere/at/all" in found.message
        assert "/dev/plimsoll-none does not exist" in found.message
        assert (root / "node").read_text() == ""
        assert list((root / "target").iterdir()) == []
        assert str(root) not in Path("/proc/self/mounts").read_text()


@pytest.mark.sized
def test_many_containers_at_once() -> None:
    async def scenario() -> dict[str, Any]:
        async with runtime_harness() as harness, harness.runtime() as runtime:
            assert await runtime.run_sandbox(a_pod()) is None
            count, started = 100 if FULL else 25, time.monotonic()
            names = [f"c{number}" for number in range(count)]
            faults = await asyncio.gather(*(runtime.create(shell("sleep 1000", id=name)) for name in names))
            faults += await asyncio.gather(*(runtime.start_container(name) for name in names))
            taken = time.monotonic() - started
            assert faults == [None] * (2 * count)
            assert all(found.phase is ContainerPhase.RUNNING for found in runtime.containers())
            shims = [_parent(found.pid) for found in runtime.containers()]
            sizes = [_status(pid, "VmRSS") for pid in shims]
            own = [_status(pid, "RssAnon") for pid in shims]
            spent = [_cpu(pid) for pid in shims]
            await runtime.remove_sandbox("pod-1")
            assert not any(alive(pid) for pid in shims)
            return {"s": taken, "rss": max(sizes), "own": max(own), "cpu": sum(spent) / count}

    figures = asyncio.run(scenario())
    # a hundred: 3 s, 10.9 MB (4.4 of its own) and 35 ms on two cores at rest
    assert figures["s"] < 60
    assert figures["rss"] < 14_000
    assert figures["cpu"] < 0.2, figures


def _parent(pid: int) -> int:
    return _status(pid, "PPid")


def _status(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:"))


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_cancelled_caller_leaves_a_consistent_state() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await runtime.run_sandbox(a_pod())
        for delay in (0.0, 0.001, 0.005, 0.02):
            id = f"c{str(delay).replace('.', '-')}"
            task = asyncio.create_task(runtime.create(shell("sleep 1000", id=id)))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: any(found.id == id for found in runtime.containers()))  # noqa: B023
            task = asyncio.create_task(runtime.start_container(id))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: state(runtime, id).phase is ContainerPhase.RUNNING)  # noqa: B023
            await runtime.stop_container(id, 0)
            assert state(runtime, id).signal == signal.SIGKILL


@pytest.mark.skipif(not can_mount(), reason="needs CAP_SYS_ADMIN for mount namespaces")
async def test_volumes_are_mounted_where_nothing_is_without_changing_the_machine(tmp_path: Path) -> None:
    for name in ("config", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / "key").write_text("value")
    (tmp_path / "file").write_text("content")
    volumes = (
        VolumeMount(str(tmp_path / "config"), "/no-such-directory/deep", True),
        VolumeMount(str(tmp_path / "data"), "/etc/no-such-directory/data"),
        VolumeMount(str(tmp_path / "file"), "/etc/no-such-file", True),
        VolumeMount(str(tmp_path / "data"), "/no-such-directory/data"),
    )
    script = (
        "cat /no-such-directory/deep/key /etc/no-such-file; echo;"
        "echo new > /etc/no-such-directory/data/new;"
        "cat /no-such-directory/data/new; ls /etc/passwd; touch /no-such-directory/deep/x || echo refused"
    )
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell(f"({script}) 2>/dev/null", volumes=volumes))
        found = await ended(runtime)
        assert lines(found) == ["valuecontent", "new", "/etc/passwd", "refused"]
    assert (tmp_path / "data" / "new").read_text() == "new\n"
    for path in ("/no-such-directory", "/etc/no-such-directory", "/etc/no-such-file"):
        assert not os.path.exists(path)


async def test_termination_messages_of_files_and_logs() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("echo one; echo two >&2; exit 1", message_from_log=True))
        assert sorted((await ended(runtime)).message.split()) == ["one", "two"]
        await run(runtime, shell("echo fine", id="c2", message_from_log=True))
        assert (await ended(runtime, "c2")).message == ""
        if can_mount():
            path = "/no-such-directory/message"
            await run(runtime, shell(f"printf DONE > {path}", id="c3", message_path=path))
            assert (await ended(runtime, "c3")).message == "DONE"
            assert not os.path.exists(path)
            # The default path: other devices stay, and nothing appears on the machine.
            before = sorted(os.listdir("/dev"))
            text = "echo x > /dev/null; printf FINE > /dev/termination-log; ls /dev"
            await run(runtime, shell(text, id="c4", message_path="/dev/termination-log"))
            found = await ended(runtime, "c4")
            assert found.message == "FINE"
            assert sorted({*before, "termination-log"}) == sorted(lines(found))
            assert sorted(os.listdir("/dev")) == before
