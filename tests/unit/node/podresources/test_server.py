"""PodResources server over its socket."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from plimsoll.api.gates import Gates
from plimsoll.common.metrics import MetricRegistry
from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import PreparedDevice
from plimsoll.node.podresources import Allocatable, MemoryBlock, PluginDevices, PodResourcesServer, RateLimit
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.protocols.messages import podresources_v1alpha1 as v1alpha1
from tests.directories import short_directory
from tests.waiting import DEADLINE, until

from .sources import DRIVER, NAMESPACE, FakeNode, make_claim, make_pod

LIST = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "List")
GET = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "Get")
GET_ALLOCATABLE = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "GetAllocatableResources")
LIST_ALPHA = rpc.find_method(v1alpha1.DESCRIPTOR, "PodResourcesLister", "List")


class Caller:
    """PodResources client."""

    def __init__(self, path: Path) -> None:
        self.channel = rpc.dial(path)

    async def all(self) -> list[v1.PodResources]:
        answer = await rpc.call(self.channel, LIST, v1.ListPodResourcesRequest(), timeout=DEADLINE)
        return list(answer.pod_resources)

    async def get(self, name: str, namespace: str = NAMESPACE) -> v1.PodResources:
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        answer = await rpc.call(self.channel, GET, request, timeout=DEADLINE)
        found = answer.pod_resources
        assert isinstance(found, v1.PodResources)
        return found

    async def allocatable(self) -> v1.AllocatableResourcesResponse:
        request = v1.AllocatableResourcesRequest()
        answer = await rpc.call(self.channel, GET_ALLOCATABLE, request, timeout=DEADLINE)
        assert isinstance(answer, v1.AllocatableResourcesResponse)
        return answer

    async def list_alpha(self) -> list[v1alpha1.PodResources]:
        answer = await rpc.call(
            self.channel, LIST_ALPHA, v1alpha1.ListPodResourcesRequest(), timeout=DEADLINE
        )
        return list(answer.pod_resources)


@asynccontextmanager
async def serving(node: FakeNode, **settings: Any) -> AsyncIterator[tuple[Caller, PodResourcesServer]]:
    settings.setdefault("limit", None)
    with short_directory() as directory:
        server = PodResourcesServer(directory / "pod-resources" / "kubelet.sock", node, **settings)
        await server.start()
        caller = Caller(server.path)
        try:
            yield caller, server
        finally:
            await rpc.close(caller.channel)
            await server.stop()


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_get_with_several_containers() -> None:
    node = FakeNode()
    pod = node.add(
        make_pod("p", {"one": ["a"], "two": ["a", "b"], "three": []}, sidecars=["log"], inits=["i"])
    )
    node.prepare(make_claim("a", PreparedDevice("pool", "gpu-0", ("r",), (f"{DRIVER}/gpu=0",), "share-1")))
    node.prepare(make_claim("b", PreparedDevice("pool", "gpu-1")))
    node.cpus[pod.metadata.uid, "two"] = (2, 3)
    node.memory[pod.metadata.uid, "two"] = (MemoryBlock("memory", 1 << 30, (0,)),)
    async with serving(node) as (caller, _):
        found = await caller.get("p")
    assert (found.name, found.namespace) == ("p", NAMESPACE)
    assert [c.name for c in found.containers] == ["log", "one", "two", "three"]
    log, one, two, three = found.containers
    assert not log.dynamic_resources
    assert not three.dynamic_resources
    (claim,) = one.dynamic_resources
    assert (claim.claim_name, claim.claim_namespace) == ("a", NAMESPACE)
    (device,) = claim.claim_resources
    assert (device.driver_name, device.pool_name, device.device_name) == (DRIVER, "pool", "gpu-0")
    assert [cdi.name for cdi in device.cdi_devices] == [f"{DRIVER}/gpu=0"]
    assert device.share_id == "share-1"
    assert [c.claim_name for c in two.dynamic_resources] == ["a", "b"]
    assert not two.dynamic_resources[1].claim_resources[0].HasField("share_id")
    assert list(two.cpu_ids) == [2, 3]
    assert (two.memory[0].memory_type, two.memory[0].size) == ("memory", 1 << 30)
    assert [n.ID for n in two.memory[0].topology.nodes] == [0]


async def test_pods_without_exclusive_resources_are_listed_too() -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    async with serving(node) as (caller, _):
        found = await caller.get("p")
        assert [c.name for c in found.containers] == ["app"]
        app = found.containers[0]
        assert app == v1.ContainerResources(name="app")
        assert await caller.all() == [found]


@pytest.mark.parametrize(
    ("name", "namespace"),
    [("q", NAMESPACE), ("p", "other"), ("p", ""), ("", ""), ("p/", NAMESPACE), ("é", "ü")],
)
async def test_unknown_pods(name: str, namespace: str) -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    async with serving(node) as (caller, server):
        code, text = await refused(caller.get(name, namespace))
        assert (code, text) == ("UNKNOWN", f"pod {name} in namespace {namespace} not found")
        assert server.metrics.errors["get", "v1"] == 1
        assert (await caller.get("p")).name == "p"


async def test_terminated_pods() -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    node.add(make_pod("done"))
    node.end("uid-done")
    async with serving(node) as (caller, _):
        assert await refused(caller.get("done")) == ("UNKNOWN", "pod done in namespace default not found")
        assert [p.name for p in await caller.all()] == ["p"]
        # The first form knows no such difference.
        assert [p.name for p in await caller.list_alpha()] == ["p", "done"]
    async with serving(node, active_only=False) as (caller, _):
        assert [p.name for p in await caller.all()] == ["p", "done"]
        assert (await refused(caller.get("done")))[0] == "UNKNOWN"


async def test_a_pod_that_took_the_name_of_one_that_ended() -> None:
    node = FakeNode()
    node.add(make_pod("p", uid="old"))
    node.add(make_pod("p", {"new": []}, uid="new"))
    for ended in ("old", "new"):
        node.ended = {ended}
        node.changes += 1
        async with serving(node) as (caller, _):
            found = await caller.get("p")
            assert [c.name for c in found.containers] == (["new"] if ended == "old" else ["app"])
            assert await caller.all() == [found]


async def test_get_is_refused_while_its_gate_is_off() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"app": ["a"]}))
    node.prepare(make_claim("a", PreparedDevice("pool", "gpu-0")))
    gates = Gates.of({"KubeletPodResourcesGet": False})
    async with serving(node, gates=gates) as (caller, server):
        assert await refused(caller.get("p")) == ("UNKNOWN", "PodResources API Get method disabled")
        assert await refused(caller.get("missing")) == ("UNKNOWN", "PodResources API Get method disabled")
        assert server.metrics.errors["get", "v1"] == server.metrics.requests["get", "v1"] == 2
        assert len((await caller.all())[0].containers[0].dynamic_resources) == 1


@pytest.mark.parametrize("gate", ["KubeletPodResourcesDynamicResources", "DynamicResourceAllocation"])
async def test_without_their_gates_claims_are_left_out(gate: str) -> None:
    node = FakeNode()
    pod = node.add(make_pod("p", {"app": ["a"]}))
    node.prepare(make_claim("a", PreparedDevice("pool", "gpu-0")))
    node.cpus[pod.metadata.uid, "app"] = (1,)
    node.devices[pod.metadata.uid, "app"] = (PluginDevices("example.com/nic", ("n0",), (1,)),)
    async with serving(node, gates=Gates.of({gate: False})) as (caller, _):
        found = await caller.get("p")
        assert await caller.all() == [found]
        app = found.containers[0]
        assert not app.dynamic_resources
        assert list(app.cpu_ids) == [1]
        assert (app.devices[0].resource_name, list(app.devices[0].device_ids)) == (
            "example.com/nic",
            ["n0"],
        )
        assert [n.ID for n in app.devices[0].topology.nodes] == [1]


async def test_calls_over_the_limit_are_refused_and_not_counted() -> None:
    now = 100.0
    node = FakeNode()
    node.add(make_pod("p"))
    async with serving(node, limit=RateLimit(), clock=lambda: now) as (caller, server):
        for _ in range(8):
            await caller.all()
        await caller.get("p")
        await caller.allocatable()
        for call in (caller.all(), caller.get("p"), caller.allocatable(), caller.list_alpha()):
            assert await refused(call) == ("RESOURCE_EXHAUSTED", "rejected by rate limit")
        now += 0.011
        await caller.list_alpha()
        assert (await refused(caller.all()))[0] == "RESOURCE_EXHAUSTED"
        assert server.metrics.total == {"v1": 10, "v1alpha1": 1}


async def test_metrics_have_the_names_of_the_kubelet() -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    registry = MetricRegistry()
    async with serving(node, registry=registry) as (caller, _):
        await caller.all()
        await caller.all()
        await caller.get("p")
        await refused(caller.get("q"))
        await caller.allocatable()
        await caller.list_alpha()
        text = registry.render().decode()
    lines = {line for line in text.splitlines() if not line.startswith("#")}
    prefix = "kubelet_pod_resources_endpoint"
    assert lines == {
        f'{prefix}_requests_total{{server_api_version="v1"}} 5.0',
        f'{prefix}_requests_total{{server_api_version="v1alpha1"}} 1.0',
        f'{prefix}_requests_list{{server_api_version="v1"}} 2.0',
        f'{prefix}_requests_get{{server_api_version="v1"}} 2.0',
        f'{prefix}_requests_get_allocatable{{server_api_version="v1"}} 1.0',
        f'{prefix}_errors_list{{server_api_version="v1"}} 0.0',
        f'{prefix}_errors_get{{server_api_version="v1"}} 1.0',
        f'{prefix}_errors_get_allocatable{{server_api_version="v1"}} 0.0',
    }
    assert registry.render() == b"", "a server that is gone counts no more"


async def test_allocatable_resources() -> None:
    blocks = (MemoryBlock("memory", 5, (0, 1)), MemoryBlock("hugepages-2Mi", 2**80))
    node = FakeNode(of_node=Allocatable((0, 1), blocks, (PluginDevices("example.com/nic", ("a",)),)))
    async with serving(node) as (caller, _):
        found = await caller.allocatable()
        assert list(found.cpu_ids) == [0, 1]
        assert [(m.memory_type, m.size, len(m.topology.nodes)) for m in found.memory] == [
            ("memory", 5, 2),
            ("hugepages-2Mi", 2**64 - 1, 0),
        ]
        assert not found.devices[0].HasField("topology")
        node.of_node = Allocatable((0,))
        node.changes += 1
        assert list((await caller.allocatable()).cpu_ids) == [0]


async def test_only_the_owner_can_open_the_socket() -> None:
    before = os.umask(0)
    try:
        async with serving(FakeNode()) as (_, server):
            assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o750
            assert server.path.stat().st_uid == os.geteuid()
            with pytest.raises(ConfigError, match="another process serves on this socket"):
                await PodResourcesServer(server.path, FakeNode()).start()
    finally:
        os.umask(before)


async def test_a_directory_that_cannot_be_created_is_an_error() -> None:
    with short_directory() as directory:
        (directory / "f").write_text("")
        with pytest.raises(ConfigError, match="f: "):
            await PodResourcesServer(directory / "f" / "s", FakeNode()).start()


async def test_large_messages_are_refused_in_both_directions() -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    pod = node.add(make_pod("big"))
    node.cpus[pod.metadata.uid, "app"] = tuple(range(10_000, 14_000))
    async with serving(node, max_bytes=4096) as (caller, server):
        assert (await refused(caller.get("x" * 5000)))[0] == "RESOURCE_EXHAUSTED"
        code, text = await refused(caller.all())
        assert code == "RESOURCE_EXHAUSTED"
        assert text.endswith("bytes, the maximum is 4096")
        assert (await refused(caller.get("big")))[0] == "RESOURCE_EXHAUSTED"
        assert server.metrics.errors["list", "v1"] == server.metrics.errors["get", "v1"] == 1
        assert (await caller.get("p")).name == "p"


async def test_long_names_are_not_repeated() -> None:
    node = FakeNode()
    async with serving(node) as (caller, _):
        code, text = await refused(caller.get("é" * 100_000, "n" * 254))
        assert (code, text) == ("UNKNOWN", f"pod {'é' * 253}... in namespace {'n' * 253}... not found")


def test_an_internal_error_is_reported_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeNode):
        def is_active(self, pod: Any) -> bool:
            raise RuntimeError("broken")

    async def scenario() -> None:
        node = Broken()
        node.add(make_pod("p"))
        async with serving(node) as (caller, server):
            for _ in range(2):
                assert await refused(caller.all()) == (
                    "INTERNAL",
                    "the response could not be built; see the log",
                )
            assert (await refused(caller.get("p")))[0] == "INTERNAL"
            assert server.metrics.errors["list", "v1"] == 2
            node.known.clear()
            assert await caller.all() == []

    asyncio.run(scenario())
    assert "broken" in caplog.text


async def test_unpaired_surrogates_are_replaced() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"app": ["a"]}))
    node.prepare(make_claim("a", PreparedDevice("pool\ud800", "é", cdi=("\udfff",))))
    async with serving(node) as (caller, _):
        device = (await caller.get("p")).containers[0].dynamic_resources[0].claim_resources[0]
        assert (device.pool_name, device.device_name) == ("pool?", "é")
        assert [cdi.name for cdi in device.cdi_devices] == ["?"]


async def test_v1alpha1_has_device_plugin_devices_and_no_sidecars() -> None:
    node = FakeNode()
    pod = node.add(make_pod("p", {"app": []}, sidecars=["log"]))
    node.devices[pod.metadata.uid, "app"] = (PluginDevices("example.com/nic", ("a", "b")),)
    async with serving(node) as (caller, _):
        (found,) = await caller.list_alpha()
        assert [c.name for c in found.containers] == ["app"]
        assert list(found.containers[0].devices[0].device_ids) == ["a", "b"]


async def test_callers_reconnect_after_a_server_restart() -> None:
    node = FakeNode()
    node.add(make_pod("p"))
    async with serving(node) as (caller, server):
        assert len(await caller.all()) == 1
        await server.stop()
        await server.stop()
        assert (await refused(caller.all()))[0] == "UNAVAILABLE"
        await server.start()
        found = await until(caller.all, ignore=(grpc.aio.AioRpcError,))
        assert [pod.name for pod in found] == ["p"]
