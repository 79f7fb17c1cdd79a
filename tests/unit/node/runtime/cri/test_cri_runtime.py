"""CRI runtime against a CRI server: sandboxes, containers, images, adoption, failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import ConfigError
from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.pods.command_runner import RuntimeCommandRunner
from plimsoll.node.pods.steps import sandbox_spec
from plimsoll.node.runtime.cri import names
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import cri
from tests.waiting import until

from .harness import FAST, IMAGE, Node, a_node, a_pod, app, running


def phases(runtime: object, uid: str = "") -> list[ContainerPhase]:
    return [each.phase for each in runtime.containers(uid)]  # type: ignore[attr-defined]


async def test_a_pod_runs_and_is_removed() -> None:
    async with a_node() as node, running(node) as runtime:
        assert (runtime.name, runtime.version) == ("containerd", "v2.3.4")
        pod = a_pod(labels={"app": "web"})
        await node.run_pod(runtime, pod)
        (sandbox,) = runtime.sandboxes()
        assert (sandbox.uid, sandbox.running, sandbox.ip) == ("uid-web", True, "10.88.0.2")
        assert await runtime.create(node.spec(pod)) is None
        assert await runtime.create(node.spec(pod)) is None  # idempotent
        assert phases(runtime) == [ContainerPhase.CREATED]
        assert await runtime.start_container("own-main") is None
        (state,) = runtime.containers("uid-web")
        assert (state.phase, state.name, state.pid) == (ContainerPhase.RUNNING, "main", 4242)
        assert state.log == str(node.directory / "logs/default_web_uid-web/main/0.log")
        assert state.image_id.startswith("docker.io/library/x@sha256:")
        labels = node.server.containers[state.id].config.labels
        assert labels[names.POD_UID] == "uid-web"
        assert labels[names.CONTAINER_NAME] == "main"
        await runtime.stop_container(state.id, 7.2)
        assert node.server.requests("StopContainer")[-1].timeout == 8
        (state,) = runtime.containers()
        assert (state.phase, state.exit_code, state.reason) == (ContainerPhase.EXITED, 143, "Error")
        await runtime.remove_sandbox("uid-web")
        assert not runtime.sandboxes()
        assert not runtime.containers()
        assert not node.server.boxes
        assert not node.server.containers
        assert not (node.directory / "logs/default_web_uid-web").exists()
        assert not (node.directory / "node/pods/uid-web").exists()


@pytest.mark.parametrize(("disk", "apart"), [("/", False), ("/proc", True), ("", False), ("/absent", False)])
async def test_disk_usage_of_containers(disk: str, apart: bool) -> None:
    async with a_node(layers=disk) as node, running(node) as runtime:
        if disk == "/":
            node.server.layers = str(node.directory)
        pod = a_pod(app(), app("other"))
        await node.run_pod(runtime, pod)
        for name in ("main", "other"):
            await runtime.create(node.spec(pod, name))
            await runtime.start_container(f"own-{name}")
        main = runtime.containers("uid-web")[0]
        node.server.written = {main.id: 12345}
        Path(main.log).write_bytes(b"x" * 8192)
        Path(main.log).with_name("1.log.1").write_bytes(b"x" * 8192)
        found = await runtime.container_storage("uid-web")
        # The runtime does not know the other one.
        assert (found["main"].files, found["other"].files) == (12345, 0)
        assert found["main"].logs >= 16384
        assert found["main"].on_image_disk is apart


@pytest.mark.parametrize("events", [True, False])
async def test_an_exit_is_noticed(events: bool) -> None:
    unimplemented = set() if events else {"GetContainerEvents"}
    async with a_node(unimplemented=unimplemented) as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        node.changed.clear()
        node.server.end(runtime.containers()[0].id, 3)
        await until(lambda: node.changed == ["uid-web"])
        assert runtime.containers()[0].exit_code == 3


async def test_a_new_agent_adopts_what_runs_and_leaves_others_alone() -> None:
    async with a_node() as node:
        pod, foreign = a_pod(), a_pod(name="foreign")
        async with running(node) as runtime:
            await node.run_pod(runtime, pod)
            await runtime.create(node.spec(pod))
            await runtime.start_container("own-main")
            before = runtime.containers()
        async with running(node, owner="node-2") as other:
            assert not other.sandboxes()
            await node.run_pod(other, foreign)
        node.server.end(before[0].id, 5)
        async with running(node) as runtime:
            assert [each.uid for each in runtime.sandboxes()] == ["uid-web"]
            (state,) = runtime.containers()
            assert (state.id, state.attempt, state.exit_code) == (before[0].id, 0, 5)
            spec = node.spec(pod, id="own-2", attempt=1)
            assert await runtime.create(spec) is None
            assert await runtime.start_container("own-2") is None
            assert [each.attempt for each in runtime.containers()] == [0, 1]
            await runtime.remove_container(before[0].id)
            assert [each.attempt for each in runtime.containers()] == [1]


async def test_a_lost_sandbox_is_replaced_and_collected() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        (first,) = node.server.boxes
        node.server.stop_box(first)
        await until(lambda: not runtime.sandboxes()[0].running)
        await until(lambda: phases(runtime) == [ContainerPhase.EXITED])
        await runtime.stop_sandbox("uid-web")
        await node.run_pod(runtime, pod)
        assert [box.config.metadata.attempt for box in node.server.boxes.values()] == [0, 1]
        (sandbox,) = runtime.sandboxes()
        assert sandbox.running
        assert sandbox.created_at > runtime.containers()[0].created_at
        await runtime.remove_container(runtime.containers()[0].id)
        await until(lambda: first not in node.server.boxes)


async def test_a_relist_that_is_older_than_a_change_reverts_nothing() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod(app("a"), app("b"))
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod, "a"))
        listed, removed = node.server.on_ListContainers, asyncio.Event()
        stale = listed(cri.ListContainersRequest())
        assert len(stale.containers) == 1
        node.server.on_ListContainers = lambda request: stale  # type: ignore[method-assign]
        work = asyncio.create_task(runtime.events.relist())
        await asyncio.sleep(0)
        await runtime.create(node.spec(pod, "b"))
        await work
        assert [each.name for each in runtime.containers()] == ["a", "b"]
        node.server.on_ListContainers = listed  # type: ignore[method-assign]
        await runtime.events.relist()
        assert [each.name for each in runtime.containers()] == ["a", "b"]
        removed.set()


# -- what is sent


async def test_the_configuration_of_a_container() -> None:
    async with a_node() as node, running(node, cluster_dns=("10.96.0.10",)) as runtime:
        fields: dict[str, Any] = {
            "command": ["/bin/sh", "-c"],
            "args": ["sleep 1"],
            "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}},
            "terminationMessagePath": "/dev/termination-log",
            "lifecycle": {"stopSignal": "SIGRTMIN+3"},
            "tty": True,
        }
        pod = a_pod(app(**fields), subdomain="sub", hostname="h", terminationGracePeriodSeconds=9)
        await node.run_pod(runtime, pod)
        spec = node.spec(
            pod, command=("/bin/sh", "-c", "sleep 1"), env={"A": "1"}, cdi=("x.com/gpu=0", "x.com/gpu=0")
        )
        assert await runtime.create(spec) is None
        (request,) = node.server.requests("CreateContainer")
        config, box = request.config, request.sandbox_config
        assert (list(config.command), list(config.args)) == (["/bin/sh", "-c"], ["sleep 1"])
        assert [(each.key, each.value) for each in config.envs] == [("A", b"1")]
        assert [each.name for each in config.CDI_devices] == ["x.com/gpu=0"]
        resources = config.linux.resources
        assert (resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes) == (
            *(512, 100000),
            64 << 20,
        )
        assert resources.oom_score_adj == spec.plan.oom_score_adj
        assert config.stop_signal == cri.SIGRTMINPLUS3
        assert config.tty
        assert config.annotations[names.GRACE_PERIOD] == "9"
        mounts = {each.container_path: Path(each.host_path) for each in config.mounts}
        assert (
            "10.88.0.2\th.sub.default.svc.cluster.local\th\n"
            in mounts[Path("/etc/hosts").as_posix()].read_text()
        )
        assert mounts["/dev/termination-log"].stat().st_mode & 0o777 == 0o666
        assert box.hostname == "h"
        assert list(box.dns_config.servers) == ["10.96.0.10"]
        assert list(box.dns_config.searches) == [
            *("default.svc.cluster.local", "svc.cluster.local", "cluster.local"),
            "example.com",
        ]
        assert box == node.server.requests("RunPodSandbox")[0].config


async def test_resizes_reach_the_runtime() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod(app(resources={"requests": {"cpu": "1"}}))
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        larger = a_pod(app(resources={"requests": {"cpu": "2"}}))
        plans = node.planner.plan(larger)
        assert await runtime.update_sandbox(sandbox_spec(larger, plans)) is None
        assert await runtime.update("own-main", plans.containers["main"]) is None
        assert node.server.requests("UpdateContainerResources")[0].linux.cpu_shares == 2048
        assert node.server.requests("UpdatePodSandboxResources")[0].resources.cpu_shares == 2048
        node.server.unimplemented.add("UpdatePodSandboxResources")
        assert await runtime.update_sandbox(sandbox_spec(larger, plans)) is None


async def test_cpus_of_nri_plugins_are_known_before_the_start() -> None:
    async with a_node(cpus="2-3") as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        assert runtime.containers()[0].cpus == "2-3"


async def test_runtime_classes_select_a_handler() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod(runtimeClassName="gvisor")
        node.pods["uid-web"] = pod
        fault = await runtime.run_sandbox(sandbox_spec(pod, node.planner.plan(pod)))
        assert fault is not None
        assert 'RuntimeClass "gvisor"' in fault.message
        node.objects["RuntimeClass", "gvisor"] = {"handler": "runsc"}
        await node.run_pod(runtime, pod)
        assert [box.handler for box in node.server.boxes.values()] == ["runsc"]


# -- images


async def create(node: Node, runtime: object, **container: Any) -> RuntimeFault | None:
    pod = a_pod(app(**container))
    await node.run_pod(runtime, pod)  # type: ignore[arg-type]
    fault: RuntimeFault | None = await runtime.create(node.spec(pod))  # type: ignore[attr-defined]
    return fault


async def test_images_are_pulled_by_their_policy() -> None:
    async with a_node() as node, running(node) as runtime:
        assert await create(node, runtime) is None
        assert not node.server.requests("PullImage")
        assert node.events[-1] == ("Pulled", f'Container image "{IMAGE}" already present on machine')
    async with a_node() as node, running(node) as runtime:
        fault = await create(node, runtime, image="other:1", imagePullPolicy="Never")
        assert fault is not None
        assert fault.reason == "ErrImageNeverPull"
    async with a_node() as node, running(node) as runtime:
        node.server.add_image("fresh:latest", pulled=False)
        assert await create(node, runtime, image="fresh") is None
        assert [each.image.image for each in node.server.requests("PullImage")] == ["fresh:latest"]
        reasons = [reason for reason, _ in node.events]
        assert reasons[-2:] == ["Pulling", "Pulled"]


async def test_failed_pulls_back_off() -> None:
    async with a_node() as node, running(node) as runtime:
        fault = await create(node, runtime, image="absent:1")
        assert fault is not None
        assert fault.reason == "ErrImagePull"
        assert "failed to resolve reference" in fault.message
        fault = await runtime.create(node.spec(node.pods["uid-web"]))
        assert fault is not None
        assert fault.reason == "ImagePullBackOff"
        assert fault.message.startswith('Back-off pulling image "absent:1": ErrImagePull: ')
        assert len(node.server.requests("PullImage")) == 1


@pytest.mark.parametrize(
    ("uid", "username", "context", "problem"),
    [
        (None, "", {"runAsNonRoot": True}, "image will run as root"),
        (None, "nginx", {"runAsNonRoot": True}, "non-numeric user (nginx)"),
        (1000, "", {"runAsNonRoot": True}, ""),
        (None, "", {"runAsNonRoot": True, "runAsUser": 0}, "runAsUser breaks non-root policy"),
    ],
)
async def test_non_root_policies(
    uid: int | None, username: str, context: dict[str, object], problem: str
) -> None:
    async with a_node() as node, running(node) as runtime:
        node.server.add_image("own:1", uid=uid, username=username)
        fault = await create(node, runtime, image="own:1", securityContext=context)
        if problem:
            assert fault is not None
            assert fault.reason == "CreateContainerConfigError"
            assert problem in fault.message
        else:
            assert fault is None
            config = node.server.requests("CreateContainer")[0].config
            assert config.linux.security_context.run_as_user.value == 1000


# -- failures


async def test_failures_are_faults_with_the_text_of_the_runtime() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        node.pods["uid-web"] = pod
        node.server.failures["RunPodSandbox"] = (rpc.StatusCode.UNKNOWN, "cni plugin not initialized")
        fault = await runtime.run_sandbox(sandbox_spec(pod, node.planner.plan(pod)))
        assert fault is not None
        assert fault.message == "rpc error: code = Unknown desc = cni plugin not initialized"
        node.server.failures.clear()
        await node.run_pod(runtime, pod)
        node.server.failures["StartContainer"] = (rpc.StatusCode.UNKNOWN, "exec: not found")
        assert await runtime.create(node.spec(pod)) is None
        fault = await runtime.start_container("own-main")
        assert fault is not None
        assert fault.reason == "RunContainerError"
        assert "exec: not found" in fault.message


async def test_the_node_is_not_ready_while_the_runtime_is_not() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await until(lambda: node.problems[-1:] == [""])
        node.server.conditions["NetworkReady"] = False
        await until(lambda: "network is not ready" in node.problems[-1])
        node.server.conditions["NetworkReady"] = True
        await until(lambda: node.problems[-1] == "")
        await node.server.stop()
        await until(lambda: "container runtime is down" in node.problems[-1])
        assert [each.running for each in runtime.sandboxes()] == [True]
        await node.server.start()
        await until(lambda: node.problems[-1] == "")


async def test_an_unusable_runtime_is_refused_at_the_start() -> None:
    async with a_node(driver="SYSTEMD") as node:
        node.cgroups = open_cgroups("plimsoll-test", want="auto")
        if node.cgroups.version:
            with pytest.raises(ConfigError, match="set --cgroup-driver systemd"):
                async with running(node):
                    pass
    async with a_node() as node:
        await node.server.stop()
        timing = type(FAST)(connect=0.2)
        with pytest.raises(ConfigError, match="does not respond"):
            async with running(node, timing=timing):
                pass


async def test_a_container_in_an_unknown_state_is_stopped_before_it_counts_as_exited() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        id = runtime.containers()[0].id
        node.server.containers[id].status.state = cri.CONTAINER_UNKNOWN
        await until(lambda: phases(runtime) == [ContainerPhase.EXITED])
        assert node.server.requests("StopContainer")[0].timeout == 0


async def test_a_removal_without_a_runtime_is_retried_later() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        node.server.failures["RemoveContainer"] = (rpc.StatusCode.UNAVAILABLE, "connection refused")
        await runtime.remove_container("own-main")
        assert phases(runtime) == [ContainerPhase.CREATED]
        node.server.failures.clear()
        await runtime.remove_container("own-main")
        assert not runtime.containers()


# -- commands, messages, logs


async def test_commands_of_probes() -> None:
    async with a_node() as node, running(node) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        id, runner = runtime.containers()[0].id, RuntimeCommandRunner(runtime.execute)
        node.server.execute = lambda request: cri.ExecSyncResponse(stdout=b"out\n", exit_code=3)
        result = await runner.execute(id, ["cat", "/x"], 1.5)
        assert (result.ok, result.text) == (False, "out")
        assert node.server.requests("ExecSync")[0].timeout == 2
        node.server.failures["ExecSync"] = (rpc.StatusCode.DEADLINE_EXCEEDED, "timeout")
        result = await runner.execute(id, ["sleep", "9"], 1.0)
        assert (result.ok, result.text) == (False, "command timed out after 1s")


@pytest.mark.parametrize(
    ("policy", "written", "logged", "message"),
    [
        ("File", "why\n", "last words", "why\n"),
        ("File", "", "last words", ""),
        ("FallbackToLogsOnError", "", "last words", "last words\n"),
        ("FallbackToLogsOnError", "why", "last words", "why"),
        ("File", "x" * 5000, "", "x" * 4096),
    ],
)
async def test_termination_messages(policy: str, written: str, logged: str, message: str) -> None:
    async with a_node() as node, running(node) as runtime:
        own = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": policy}
        pod = a_pod(app(**own))
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        (state,) = runtime.containers()
        mounts = node.server.containers[state.id].config.mounts
        (file,) = (m.host_path for m in mounts if m.container_path == "/dev/termination-log")
        Path(file).write_text(written)
        Path(state.log).write_text(f"2026-01-01T00:00:00.000000000Z stderr F {logged}\n")
        node.server.end(state.id, 1)
        await until(lambda: phases(runtime) == [ContainerPhase.EXITED])
        assert runtime.containers()[0].message == message


async def test_large_logs_are_rotated() -> None:
    async with a_node() as node, running(node, log_max_size=10, log_max_files=3) as runtime:
        pod = a_pod()
        await node.run_pod(runtime, pod)
        await runtime.create(node.spec(pod))
        await runtime.start_container("own-main")
        log = Path(runtime.containers()[0].log)
        for text in ("first line", "second line", "third line", "fourth line"):
            log.write_text(f"{text}: too long")
            # Between two rotations there is no log for a moment.
            await until(lambda: not log.read_text(), ignore=(FileNotFoundError,))
        names_left = sorted(path.name for path in log.parent.iterdir())
        assert names_left == ["0.log", "0.log.1", "0.log.2"]
        assert log.with_name("0.log.1").read_text() == "fourth line: too long"
        await runtime.remove_container(runtime.containers()[0].id)
        assert not list(log.parent.iterdir())
