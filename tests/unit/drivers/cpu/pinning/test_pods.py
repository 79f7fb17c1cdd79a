"""Pods of a node, from an API server in this process."""

from __future__ import annotations

from plimsoll.client.endpoints import NODES, PODS
from plimsoll.drivers.cpu.pinning.pods import NodePods
from tests.coroutines import run_by
from tests.manifests import node, pod
from tests.unit.apiserver.build import ApiHarness, run
from tests.waiting import until


@run_by(run)
async def test_pods_of_the_node_are_watched(harness: ApiHarness) -> None:
    client = harness.client
    for name in ("node-a", "node-b"):
        await client.create(NODES, node(name))
    await client.create(PODS, pod("mine", node="node-a"), "default")
    await client.create(PODS, pod("far", node="node-b"), "default")
    pods = NodePods(client, "node-a")
    changes: list[int] = []
    pods.on_change = lambda: changes.append(1)
    assert pods.error == "the pods of this node are not listed yet"
    await pods.start()
    await pods.start()
    await until(lambda: not pods.error)
    assert [one.metadata.name for one in pods.pods()] == ["mine"]
    before = len(changes)
    await client.create(PODS, pod("second", node="node-a"), "default")
    await until(lambda: len(changes) > before)
    assert sorted(one.metadata.name for one in pods.pods()) == ["mine", "second"]
    await client.patch(PODS, "second", {"metadata": {"labels": {"a": "b"}}}, "default")
    await until(lambda: len(changes) > before + 1)
    await client.delete(PODS, "second", "default", grace=0)
    await until(lambda: len(list(pods.pods())) == 1)
    await pods.stop()
    await pods.stop()
