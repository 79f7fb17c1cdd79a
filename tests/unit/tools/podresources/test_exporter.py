"""Resources of the pods of a node as Prometheus metrics."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import ResourceSlice
from plimsoll.errors import ConfigError
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.tools.podresources.client import PodResourcesClient
from plimsoll.tools.podresources.exporter import PREFIX, NodeObjects, node_metrics, read_node_objects
from plimsoll.tools.podresources.process import (
    Exporter,
    ExporterServer,
    ExporterSettings,
    NodeWatcher,
    serve_exporter,
)
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, until

from .kubelets import ALLOCATABLE, LISTED, PLAIN, TRAIN, always, claim, device, kubelet, limited

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def read(text: str) -> Samples:
    """Return samples by name and labels; a label without value is left out, as in Prometheus."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset((key, value) for key, value in sample.labels.items() if value)
            rows = found.setdefault(sample.name.removeprefix(PREFIX), {})
            assert labels not in rows, f"{sample.name}: two identical samples"
            rows[labels] = sample.value
    return found


def show(pods: list[v1.PodResources], known: NodeObjects | None = None, allocatable: Any = None) -> Samples:
    families = node_metrics("w", pods, allocatable, known or NodeObjects())
    return read("".join(family.render() for family in families))


def row(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset({"node": "w", **labels}.items())


APP = {"namespace": "ml", "pod": "train", "container": "app"}
GPU = {"driver": "gpu.example.com", "pool": "worker"}


def test_devices_are_joined_with_their_pods() -> None:
    found = show([TRAIN, PLAIN], NodeObjects(uids={("ml", "train"): "u-1"}))
    app = {**APP, "pod_uid": "u-1", "claim": "gpus", **GPU}
    assert found["device_info"] == {
        row(**app, device="gpu-0", share_id="s1", cdi_device="x/gpu=0,x/common=all"): 1,
        row(**app, device="gpu-1", cdi_device="x/gpu=1"): 1,
    }
    assert found["cdi_device_info"] == {
        row(**app, device="gpu-0", cdi_device="x/gpu=0"): 1,
        row(**app, device="gpu-0", cdi_device="x/common=all"): 1,
        row(**app, device="gpu-1", cdi_device="x/gpu=1"): 1,
    }
    assert found["device_containers"] == {row(**GPU, device="gpu-0"): 1, row(**GPU, device="gpu-1"): 1}


def test_amounts() -> None:
    found = show([TRAIN, PLAIN], allocatable=ALLOCATABLE)
    log, plain = {**APP, "container": "log"}, {"namespace": "default", "pod": "plain"}
    assert found["container_cpus"] == {row(**APP): 4, row(**log): 0, row(**plain, container="c"): 0}
    assert found["container_claims"] == {row(**APP): 2, row(**log): 0, row(**plain, container="c"): 0}
    assert found["container_memory_bytes"] == {
        row(**APP, type="memory", numa_node="0"): 2**30,
        row(**APP, type="memory", numa_node="1"): 2**30,
        row(**APP, type="hugepages-2Mi"): 2**21,
    }
    assert found["pod_cpus"] == {row(**plain): 1}
    assert found["pod_memory_bytes"] == {row(**plain, type="memory"): 4096}
    assert (found["pods"], found["claims"]) == ({row(): 2}, {row(): 2})
    assert found["allocatable_cpus"] == {row(): 8}
    assert found["allocatable_memory_bytes"][row(type="memory", numa_node="1")] == 2**33
    assert found["allocatable_plugin_devices"] == {row(resource="example.com/nic"): 3}


def test_unheld_devices_do_not_vanish() -> None:
    known = NodeObjects(
        devices=frozenset(DeviceId(GPU["driver"], GPU["pool"], name) for name in ("gpu-0", "gpu-7"))
    )
    found = show([TRAIN], known, ALLOCATABLE)
    assert found["device_containers"] == {
        row(**GPU, device="gpu-0"): 1,
        row(**GPU, device="gpu-1"): 1,
        row(**GPU, device="gpu-7"): 0,
    }
    assert row(**GPU, device="gpu-7") in found["device_info"]
    assert len(found["device_info"]) == 3
    nic, log = {"resource": "example.com/nic"}, {**APP, "container": "log"}
    assert set(found["plugin_device_info"]) == {
        row(**nic, device="n0", **log),
        row(**nic, device="n1", **log),
        row(**nic, device="n2"),
    }


def test_a_shared_device_counts_its_containers() -> None:
    one = claim("shared", device("gpu-0", share="a"), device("gpu-0", share="b"))
    pod = v1.PodResources(
        name="p",
        namespace="ml",
        containers=[v1.ContainerResources(name=name, dynamic_resources=[one]) for name in ("x", "y")],
    )
    found = show([pod])
    assert found["device_containers"] == {row(**GPU, device="gpu-0"): 2}
    assert len(found["device_info"]) == 4
    assert found["claims"] == {row(): 1}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    def piece(generation: int, *names: str) -> ResourceSlice:
        pool = {"name": "worker", "generation": generation}
        devices = [{"name": name} for name in names]
        return codec.convert(
            {"spec": {"driver": "gpu.example.com", "pool": pool, "devices": devices}}, ResourceSlice
        )

    pod = codec.convert({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}, Pod)
    known = read_node_objects([pod], [piece(1, "old"), piece(2, "a"), piece(2, "b"), piece(3)])
    assert known.uids == {("n", "p"): "u"}
    assert {id.device for id in known.devices} == {"a", "b"}


TEXT = st.text(max_size=5)
DEVICE = st.builds(device, TEXT, TEXT, driver=TEXT, share=st.none() | TEXT)
CONTAINER = st.builds(
    lambda name, claims: v1.ContainerResources(name=name, dynamic_resources=claims),
    TEXT,
    st.lists(st.builds(claim, TEXT, DEVICE, DEVICE), max_size=2),
)
POD = st.builds(
    lambda name, namespace, containers: v1.PodResources(
        name=name, namespace=namespace, containers=containers
    ),
    TEXT,
    TEXT,
    st.lists(CONTAINER, max_size=2),
)


@given(st.lists(POD, max_size=3))
def test_every_text_is_escaped_and_no_sample_comes_twice(pods: list[v1.PodResources]) -> None:
    found = show([*pods, *pods])
    wanted = {
        row(
            **{
                key: value
                for key, value in {
                    "namespace": pod.namespace,
                    "pod": pod.name,
                    "container": container.name,
                    "claim": dynamic.claim_name,
                    "driver": one.driver_name,
                    "pool": one.pool_name,
                    "device": one.device_name,
                    "share_id": one.share_id,
                    "cdi_device": one.cdi_devices[0].name,
                }.items()
                if value
            }
        )
        for pod in pods
        for container in pod.containers
        for dynamic in container.dynamic_resources
        for one in dynamic.claim_resources
    }
    assert set(found.get("device_info", {})) == wanted


def _scraped(exporter: Exporter) -> Any:
    async def work() -> Samples:
        return read((await exporter.scrape()).decode())

    return work()


def test_one_kubelet_call_serves_many_scrapes() -> None:
    calls = 0

    def answer(request: Any, context: Any) -> v1.ListPodResourcesResponse:
        nonlocal calls
        calls += 1
        return LISTED

    async def scenario(path: Path) -> None:
        now = 0.0
        async with PodResourcesClient(path) as client:
            exporter = Exporter("w", client, interval=5.0, clock=lambda: now)
            texts = await asyncio.gather(*(exporter.scrape() for _ in range(20)))
            assert (calls, len(set(texts))) == (1, 1)
            now = 4.9
            await exporter.scrape()
            assert calls == 1
            now = 5.0
            assert (await _scraped(exporter))["reads_total"] == {row(): 2}
            assert calls == 2

    with kubelet(List=answer, GetAllocatableResources=always(ALLOCATABLE)) as path:
        asyncio.run(scenario(path))


def test_a_kubelet_that_stops_and_returns(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(path: Path) -> None:
        async with PodResourcesClient(path, attempts=2) as client:
            exporter = Exporter("w", client, interval=0.0)
            found = await _scraped(exporter)
            assert found["up"] == {row(): 0}
            assert "pods" not in found, "what it said before may be wrong by now"
            assert found["read_errors_total"] == {row(): 1}
            assert found["read_rate_limited_total"] == {row(): 2}
            found = await _scraped(exporter)
            assert (found["up"], found["pods"]) == ({row(): 1}, {row(): 2})
            assert found["read_rate_limited_total"] == {row(): 3}

    with kubelet(List=limited(3, LISTED), GetAllocatableResources=always(ALLOCATABLE)) as path:
        asyncio.run(scenario(path))
    assert [record.getMessage().split(": ")[-1] for record in caplog.records][
        -1
    ] == "the kubelet responds again"
    assert "rejected by rate limit" in caplog.text


async def test_without_a_kubelet_up_is_zero(directory: Path) -> None:
    async with PodResourcesClient(directory / "none") as client:
        found = await _scraped(Exporter("w", client))
        assert (found["up"], found["read_errors_total"]) == ({row(): 0}, {row(): 1})


SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: w
  pool: {name: worker, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2}]
"""
POD_YAML = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml}
spec: {nodeName: w, containers: [{name: app, image: i}]}
"""


def test_with_the_api_pods_have_uids_and_free_devices_are_shown() -> None:
    async def scenario(path: Path, local: LocalCluster, uid: str) -> None:
        async with local.connect() as client, PodResourcesClient(path) as asked:
            cluster = NodeWatcher(client, "w")
            exporter = Exporter("w", asked, cluster)
            assert (await _scraped(exporter))["api_synced"] == {row(): 0}
            following = asyncio.create_task(cluster.run())
            try:
                await until(lambda: cluster.synced)
                found = await _scraped(exporter)
                assert found["api_synced"] == {row(): 1}
                assert row(**GPU, device="gpu-2") in found["device_info"]
                assert found["device_containers"][row(**GPU, device="gpu-2")] == 0
                assert row(**APP, pod_uid=uid) in found["container_cpus"]
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    with (
        LocalCluster() as local,
        kubelet(List=always(LISTED), GetAllocatableResources=always(ALLOCATABLE)) as path,
    ):
        local.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}")
        local.apply(SLICE)
        (pod,) = local.apply(POD_YAML, namespace="ml")
        asyncio.run(scenario(path, local, pod["metadata"]["uid"]))


def test_the_page() -> None:
    async def scenario(path: Path) -> None:
        stopped, message = asyncio.Event(), asyncio.Queue[str]()
        settings = ExporterSettings(node="w", socket=path, listen="127.0.0.1:0")
        process = asyncio.create_task(serve_exporter(settings, message.put_nowait, stopped))
        url = await asyncio.wait_for(message.get(), DEADLINE)
        with await asyncio.to_thread(urllib.request.urlopen, url, timeout=DEADLINE) as page:
            assert page.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert read(page.read().decode())["up"] == {row(): 1}
        health = url.replace("/metrics", "/healthz")
        with await asyncio.to_thread(urllib.request.urlopen, health, timeout=DEADLINE) as page:
            assert page.status == 200
        second = ExporterServer(Exporter("w", PodResourcesClient(path)))
        with pytest.raises(ConfigError, match="cannot listen on 127"):
            await second.start(url.removeprefix("http://").removesuffix("/metrics"))
        stopped.set()
        await asyncio.wait_for(process, DEADLINE)

    with kubelet(List=always(LISTED), GetAllocatableResources=always(ALLOCATABLE)) as path:
        asyncio.run(scenario(path))
