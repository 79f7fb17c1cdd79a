"""Node agent process: events, readiness and shutdown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.apiserver.auth.users import node_user
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError, ConfigError, InputError
from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.machine.machine import Machine
from plimsoll.node.process.metrics import NodeMetrics
from plimsoll.node.process.run import NodeProcess, own_addresses
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.status.reporter import HeartbeatTiming, NodeStatusReporter
from tests.manifests import pod
from tests.waiting import DEADLINE, until

MACHINE = parse_machine({"capacity": {"cpu": 8, "memory": "32Gi"}})
FAST = HeartbeatTiming(renew=0.05, check=0.05, first=0.01, most=0.05)


class RecordingAgent:
    """Agent that records its events."""

    def __init__(self, client: Client, settings: NodeSettings, name: str, machine: Machine, _: Any) -> None:
        self.name = name
        self.status_reporter = NodeStatusReporter(client, name, machine, timing=settings.timing, watched=True)
        self.admission_handler = AdmissionHandler(self.status_reporter.node)
        self.on_node_event: list[str] = []
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self.status_reporter.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.on_node_event.append("stop")

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        self.on_node_event.append("listed " + ",".join(sorted(pod.metadata.name for pod in pods)))

    def pod_added(self, pod: Pod) -> None:
        self.on_node_event.append(f"added {pod.metadata.name}")

    def pod_changed(self, old: Pod, new: Pod) -> None:
        self.on_node_event.append(f"changed {new.metadata.name}")

    def pod_removed(self, old: Pod) -> None:
        self.on_node_event.append(f"removed {old.metadata.name}")

    def cgroup_counts(self) -> tuple[int, int]:
        return (0, 0)

    def describe_cgroups(self) -> dict[str, Any]:
        return {}

    def pods(self) -> Sequence[Pod]:
        return ()


@asynccontextmanager
async def cluster() -> AsyncIterator[RunningServer]:
    server = await start_server(ServerSettings(durability="normal", controllers=False))
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def running(process: NodeProcess) -> AsyncIterator[NodeProcess]:
    task = asyncio.create_task(process.run())
    ready = asyncio.create_task(process.ready(DEADLINE))
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        ready.cancel()
        task.result()
    await ready
    try:
        yield process
    finally:
        process.stop()
        await asyncio.wait_for(task, DEADLINE)


def settings(root: Path, **more: Any) -> NodeSettings:
    return NodeSettings(
        **{"name": "n", "root": root, "runtime": "none", "machine": MACHINE, "timing": FAST, **more}
    )


@pytest.mark.parametrize("ready", [False, True])
async def test_a_process_can_be_cancelled_at_any_time(root: Path, ready: bool) -> None:
    async with cluster() as server:
        for turns in range(8):
            process = NodeProcess(server.client(node_user("n")), settings(root), make=RecordingAgent)
            task = asyncio.create_task(process.run())
            if ready:
                await process.ready(DEADLINE)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            async with asyncio.timeout(DEADLINE):
                await asyncio.wait((task,))
            assert task.cancelled()


async def test_an_agent_receives_all_pods_and_then_each_change(root: Path) -> None:
    async with cluster() as server:
        admin = server.client()
        for name, node in (("a", "n"), ("b", "n"), ("other", "m"), ("waiting", "")):
            await admin.create(PODS, pod(name, node=node), "default")
        process = NodeProcess(server.client(node_user("n")), settings(root), make=RecordingAgent)
        async with running(process):
            on_node_event = process.agent().on_node_event  # type: ignore[attr-defined]
            assert on_node_event == ["listed a,b"]
            binding = {"metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": "n"}}
            await admin.post(PODS, "waiting", "binding", binding, "default")
            await admin.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "default")
            await admin.delete(PODS, "b", "default", grace=0)
            await until(lambda: len(on_node_event) == 4)
            assert on_node_event[1:] == ["added waiting", "changed a", "removed b"]
        assert on_node_event[-1] == "stop"


async def test_many_nodes_share_one_watch(root: Path) -> None:
    async with cluster() as server:
        admin = server.client()
        await admin.create(PODS, pod("a", node="n-1"), "default")
        await admin.create(PODS, pod("free"), "default")
        process = NodeProcess(
            admin,
            settings(root, count=3),
            client_for=lambda name: server.client(node_user(name)),
            make=RecordingAgent,
        )
        async with running(process):
            assert list(process.agents) == ["n-0", "n-1", "n-2"]
            on_node_event = {name: agent.on_node_event for name, agent in process.agents.items()}  # type: ignore[attr-defined]
            assert on_node_event == {"n-0": ["listed "], "n-1": ["listed a"], "n-2": ["listed "]}
            binding = {"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "n-2"}}
            await admin.post(PODS, "free", "binding", binding, "default")
            await until(lambda: on_node_event["n-2"] == ["listed ", "added free"])
            uid = process.agent("n-0").status_reporter.uid
            await admin.delete(NODES, "n-0")
            await until(lambda: process.agent("n-0").status_reporter.uid not in ("", uid))
            with pytest.raises(InputError, match="unknown node"):
                process.agent("n-3")
        assert not (root / "n-0").exists(), "bare nodes have no files"
        assert len((await admin.list(NODES)).items) == 3, "nodes stay"


async def test_a_machine_file_that_changes_changes_the_node(root: Path) -> None:
    path = root / "m.yaml"
    path.write_text("capacity: {cpu: 4, memory: 8Gi}")
    async with cluster() as server:
        own = settings(root, machine=None, machine_file=path)
        async with running(NodeProcess(server.client(node_user("n")), own, make=RecordingAgent)) as process:
            path.write_text("broken")
            await asyncio.sleep(0.1)
            fresh = root / "fresh"
            fresh.write_text("capacity: {cpu: 6, memory: 8Gi}")
            fresh.rename(path)

            def grown() -> bool:
                node: Node = process.agent().status_reporter.node
                return str(node.status.allocatable["cpu"]) == "6"

            await until(grown)


async def test_two_agents_on_one_directory(root: Path) -> None:
    async with cluster() as server:
        client = server.client(node_user("n"))
        async with running(NodeProcess(client, settings(root), make=RecordingAgent)):
            with pytest.raises(ConfigError, match="uses this directory; stop it"):
                await NodeProcess(client, settings(root), make=RecordingAgent).run()
        async with running(NodeProcess(client, settings(root), make=RecordingAgent)):
            pass


async def test_a_leaving_node_is_deleted(root: Path) -> None:
    async with cluster() as server:
        admin = server.client()
        async with running(NodeProcess(admin, settings(root, leave=True), make=RecordingAgent)):
            assert await admin.get(NODES, "n")
        with pytest.raises(ApiError) as caught:
            await admin.get(NODES, "n")
        assert caught.value.code == 404


async def test_stopped_before_the_server_answers(root: Path) -> None:
    async with cluster() as server:
        process = NodeProcess(server.client(node_user("x")), settings(root), make=RecordingAgent)
        task = asyncio.create_task(process.run())
        await until(lambda: "n" in process.agents and process.agent().status_reporter.failures > 1)
        assert not (await server.client().list(NODES)).items, "a node cannot register as another"
        process.stop()
        await asyncio.wait_for(task, DEADLINE)


async def test_pages(root: Path) -> None:
    async with cluster() as server:
        own = settings(root, listen="127.0.0.1:0")
        process = NodeProcess(server.client(node_user("n")), own)
        async with running(process), aiohttp.ClientSession() as web:
            await server.client().create(PODS, pod("a", node="n"), "default")
            big = pod("big", node="n")
            big["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9"}}
            await server.client().create(PODS, big, "default")
            await until(
                lambda: (
                    len(process.agent().admission_handler) == 1
                    and process.agent().admission_handler.rejections
                )
            )
            assert process.pages is not None

            async def page(path: str) -> str:
                assert process.pages is not None
                async with web.get(f"http://127.0.0.1:{process.pages.port}/{path}") as answer:
                    assert answer.status == 200, path
                    return await answer.text()

            assert await page("healthz") == "ok"
            assert "[+]registered ok" in await page("readyz?verbose")
            pods = json.loads(await page("pods"))
            assert (pods["kind"], [p["metadata"]["name"] for p in pods["items"]]) == (
                "PodList",
                ["a", "big"],
            )
            shown = json.loads(await page("configz"))
            assert (shown["names"], shown["form"]) == (["n"], "1.37")
            await until(lambda: bool(process.agent().describe_cgroups()["files"]))
            cgroups = json.loads(await page("cgroups"))["n"]
            assert cgroups["version"] == "plan"
            assert any(file.endswith("/besteffort/cpu.weight") for file in cgroups["files"])
            metrics = await page("metrics")
            assert 'kubelet_node_name{node="n"} 1.0' in metrics
            assert 'plimsoll_ledger_allocatable{node="n",resource="cpu"} 8' in metrics
            assert 'plimsoll_ledger_requested{node="n",resource="pods"} 1' in metrics
            assert "kubelet_running_pods 1.0" in metrics
            assert 'kubelet_admission_rejections_total{reason="OutOfcpu"} 1.0' in metrics


async def test_an_address_that_is_taken(root: Path) -> None:
    async with cluster() as server:
        client = server.client(node_user("n"))
        with pytest.raises(ConfigError, match="cannot listen on"):
            await NodeProcess(client, settings(root, listen=f"127.0.0.1:{server.port}")).run()


def test_detected_node_addresses() -> None:
    assert [a.address for a in own_addresses("https://127.0.0.1:6443")] == ["127.0.0.1"]
    assert own_addresses("https://no.such.host.invalid") == ()


async def test_metrics_without_agents() -> None:
    pieces = [piece async for piece in NodeMetrics(lambda: ()).expose()]
    assert b"kubelet_desired_pods 0.0" in pieces[0]
