"""Devices of device plugins on a node: its status, admission, containers and PodResources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from plimsoll.node.layout import Layout
from plimsoll.tools.podresources.client import PodResourcesClient
from plimsoll.up.local_cluster import LocalCluster
from tests.unit.node.device_plugins.fake_plugin import RESOURCE, FakePlugin, device
from tests.waiting import DEADLINE, until

NODE = "node-0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(scheduler=True, nodes=1) as running:
        yield running


def run(cluster: LocalCluster, scenario: Callable[[FakePlugin, str], Awaitable[None]], *devices: Any) -> None:
    """Run a scenario with a registered plugin, in a namespace of its own."""

    async def whole() -> None:
        plugin = FakePlugin(Layout(cluster.node_root(NODE)).device_plugins, devices)
        async with asyncio.timeout(DEADLINE):
            await plugin.start()
            try:
                await plugin.register()
                await until(lambda: allocatable(cluster), lambda found: found == str(len(devices)))
                namespace = await asyncio.to_thread(cluster.new_namespace)
                await scenario(plugin, namespace)
                await delete_pods(cluster, namespace)
            finally:
                await plugin.stop()

    asyncio.run(whole())


async def delete_pods(cluster: LocalCluster, namespace: str) -> None:
    for each in await asyncio.to_thread(cluster.client.list, "pods", namespace):
        await asyncio.to_thread(cluster.client.delete, "pods", each["metadata"]["name"], namespace)

    async def left() -> Any:
        return await asyncio.to_thread(cluster.client.list, "pods", namespace)

    await until(left, lambda found: not found)


async def allocatable(cluster: LocalCluster) -> str:
    node = await asyncio.to_thread(cluster.client.get, "nodes", NODE)
    return str(node["status"]["allocatable"].get(RESOURCE, ""))


async def create(cluster: LocalCluster, namespace: str, name: str, number: int, **fields: Any) -> None:
    resources = {"limits": {RESOURCE: str(number)}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], **fields}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await asyncio.to_thread(cluster.client.create, "pods", tree, namespace)


async def phase(cluster: LocalCluster, namespace: str, name: str) -> str:
    found = await asyncio.to_thread(cluster.client.get, "pods", name, namespace)
    return str(found["status"].get("phase"))


async def listed(cluster: LocalCluster, namespace: str, name: str) -> list[tuple[str, list[str], list[int]]]:
    """Return the devices that PodResources lists for a pod."""
    async with PodResourcesClient(Layout(cluster.node_root(NODE)).pod_resources) as client:
        response = await client.list()
    return [
        (each.resource_name, list(each.device_ids), [node.ID for node in each.topology.nodes])
        for pod in response.pod_resources
        if (pod.namespace, pod.name) == (namespace, name)
        for container in pod.containers
        for each in container.devices
    ]


def test_a_pod_gets_the_devices_that_podresources_lists(cluster: LocalCluster) -> None:
    async def scenario(plugin: FakePlugin, namespace: str) -> None:
        await create(cluster, namespace, "p", 2)
        await until(lambda: phase(cluster, namespace, "p"), lambda found: found == "Running")
        assert sorted(await listed(cluster, namespace, "p")) == [
            (RESOURCE, ["a"], [0]),
            (RESOURCE, ["b"], [0]),
            (RESOURCE, ["b"], [1]),
        ]
        async with PodResourcesClient(Layout(cluster.node_root(NODE)).pod_resources) as client:
            response = await client.allocatable()
        assert sorted({id for each in response.devices for id in each.device_ids}) == ["a", "b", "c"]
        assert plugin.calls == ["allocate a,b"]

    run(cluster, scenario, device("a", 0), device("b", 0, 1), device("c"))


def test_pods_share_no_devices_and_release_them(cluster: LocalCluster) -> None:
    async def scenario(plugin: FakePlugin, namespace: str) -> None:
        await create(cluster, namespace, "first", 1)
        await until(lambda: phase(cluster, namespace, "first"), lambda found: found == "Running")
        await create(cluster, namespace, "second", 1)  # the scheduler finds no room for it
        await asyncio.to_thread(cluster.client.delete, "pods", "first", namespace)
        await until(lambda: phase(cluster, namespace, "second"), lambda found: found == "Running")
        assert await listed(cluster, namespace, "second") == [(RESOURCE, ["x"], [])]

    run(cluster, scenario, device("x"))


def test_a_pod_that_needs_more_devices_than_the_node_has_is_not_admitted(cluster: LocalCluster) -> None:
    async def scenario(plugin: FakePlugin, namespace: str) -> None:
        await create(cluster, namespace, "large", 2, nodeName=NODE)
        await until(lambda: phase(cluster, namespace, "large"), lambda found: found == "Failed")
        found = await asyncio.to_thread(cluster.client.get, "pods", "large", namespace)
        assert found["status"]["reason"] == f"OutOf{RESOURCE}"
        assert plugin.calls == []

    run(cluster, scenario, device("x"))
