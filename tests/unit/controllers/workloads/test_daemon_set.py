"""DaemonSets: nodes, updates, and the controller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.api.core import Node
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from plimsoll.controllers.daemon_set.nodes import NodeMatcher, pin_to_node
from plimsoll.controllers.workload_views import DaemonSetView
from plimsoll.controllers.workloads.revisions import revision_data
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.makers import metadata, view
from tests.unit.controllers.workloads.makers import end_deleted_pods, run_pods, template, workload

ONLY = ["daemonset-controller"]


def matches(node: Tree, **spec: Any) -> tuple[bool, bool]:
    owner = view({"metadata": metadata("d"), "spec": {"template": template(**spec)}}, DaemonSetView)
    return NodeMatcher(owner).should_run(view(node, Node))


def node_tree(name: str = "a", labels: dict[str, str] | None = None, *taints: str) -> Tree:
    spec = {
        "taints": [
            {"key": taint, "effect": effect} for taint, _, effect in (t.partition(":") for t in taints)
        ]
    }
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec if taints else {}}


GPU_TERM = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
GPU_NODES = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [GPU_TERM]}}
}


@pytest.mark.parametrize(
    ("node", "spec", "expected"),
    [
        (node_tree(), {}, (True, True)),
        (node_tree(labels={"gpu": "1"}), {"nodeSelector": {"gpu": "1"}}, (True, True)),
        (node_tree(), {"nodeSelector": {"gpu": "1"}}, (False, False)),
        (node_tree(labels={"gpu": ""}), {"affinity": GPU_NODES}, (True, True)),
        (node_tree(), {"affinity": GPU_NODES}, (False, False)),
        (node_tree("a", None, "x:NoSchedule"), {}, (False, True)),
        (node_tree("a", None, "x:NoExecute"), {}, (False, False)),
        (node_tree("a", None, "x:PreferNoSchedule"), {}, (True, True)),
        (node_tree("a", None, "x:NoSchedule"), {"tolerations": [{"operator": "Exists"}]}, (True, True)),
        (node_tree("a", None, "node.kubernetes.io/not-ready:NoExecute"), {}, (True, True)),
        (node_tree("a", None, "node.kubernetes.io/unschedulable:NoSchedule"), {}, (True, True)),
        (node_tree("a", None, "node.kubernetes.io/network-unavailable:NoSchedule"), {}, (False, True)),
        (
            node_tree("a", None, "node.kubernetes.io/network-unavailable:NoSchedule"),
            {"hostNetwork": True},
            (True, True),
        ),
        (node_tree(), {"nodeName": "b"}, (False, False)),
    ],
)
def test_pods_run_on_nodes_that_match(node: Tree, spec: Tree, expected: tuple[bool, bool]) -> None:
    assert matches(node, **spec) == expected


def test_a_pin_keeps_other_requirements() -> None:
    pinned = pin_to_node(GPU_NODES, "a")
    (term,) = pinned["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == GPU_TERM["matchExpressions"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["a"]}]


# -- controller


async def start(cluster: Cluster, nodes: int = 3, **spec: Any) -> None:
    for number in range(nodes):
        await cluster.client.create(NODES, {"metadata": {"name": f"n{number}"}})
    await cluster.client.create(DAEMON_SETS, workload("DaemonSet", **{"image": "v1", **spec}), "n")


async def place(cluster: Cluster) -> None:
    """Bind pods to the node that they are pinned to and run them."""
    for tree in await cluster.trees(PODS):
        if not tree["spec"].get("nodeName"):
            required = tree["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]
            node = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            await cluster.bind(tree["metadata"]["name"], node)
    await run_pods(cluster)
    await end_deleted_pods(cluster)
    await cluster.settle(max_wait=0.1)


async def images(cluster: Cluster) -> list[str]:
    return sorted(tree["spec"]["containers"][0]["image"] for tree in await cluster.trees(PODS))


async def status_of(cluster: Cluster) -> Tree:
    found = await cluster.get(DAEMON_SETS, "w")
    assert found is not None
    status: Tree = found["status"]
    return status


@run_by(run_scenario, only=ONLY)
async def test_every_node_gets_one_pod(cluster: Cluster) -> None:
    await start(cluster)
    await cluster.settle()
    await place(cluster)
    pods = await cluster.trees(PODS)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n0", "n1", "n2"]
    status = await status_of(cluster)
    assert status["desiredNumberScheduled"] == status["numberAvailable"] == 3
    assert status["updatedNumberScheduled"] == 3
    await cluster.client.create(NODES, {"metadata": {"name": "n3"}})
    await cluster.settle()
    await place(cluster)
    assert (await status_of(cluster))["numberReady"] == 4
    taint = {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}
    await cluster.client.patch(NODES, "n3", taint)
    await cluster.settle()
    await place(cluster)
    assert len(await cluster.names(PODS)) == 3


@pytest.mark.parametrize("steps", [{"maxUnavailable": 1}, {"maxUnavailable": 0, "maxSurge": 1}])
@run_by(run_scenario, only=ONLY)
async def test_an_update_replaces_pods_within_its_limits(cluster: Cluster, *, steps: Tree) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": steps}
    await start(cluster, updateStrategy=strategy)
    await cluster.settle()
    await place(cluster)
    await cluster.client.patch(DAEMON_SETS, "w", {"spec": {"template": template("v2")}}, "n")
    for _ in range(12):
        await cluster.settle(max_wait=0.1)
        alive = [tree for tree in await cluster.trees(PODS) if "deletionTimestamp" not in tree["metadata"]]
        running = [tree for tree in alive if tree["status"]["phase"] == "Running"]
        assert len(running) >= 3 - steps["maxUnavailable"]
        assert len(alive) <= 3 + steps.get("maxSurge", 0)
        await place(cluster)
    assert await images(cluster) == ["v2"] * 3
    assert {tree["revision"] for tree in await cluster.trees(CONTROLLER_REVISIONS)} == {1, 2}
    assert (await status_of(cluster))["updatedNumberScheduled"] == 3


@run_by(run_scenario, only=ONLY)
async def test_on_delete_updates_only_deleted_pods(cluster: Cluster) -> None:
    await start(cluster, nodes=2, updateStrategy={"type": "OnDelete"})
    await cluster.settle()
    await place(cluster)
    await cluster.client.patch(DAEMON_SETS, "w", {"spec": {"template": template("v2")}}, "n")
    await cluster.settle()
    assert await images(cluster) == ["v1", "v1"]
    await cluster.client.delete(PODS, (await cluster.names(PODS))[0], "n", grace=0)
    await cluster.settle()
    await place(cluster)
    assert await images(cluster) == ["v1", "v2"]


@run_by(run_scenario, only=ONLY)
async def test_failed_pods_are_replaced_ever_more_slowly(cluster: Cluster) -> None:
    await start(cluster, nodes=1)
    await cluster.settle()
    await place(cluster)
    for seconds in (0, 2, 4):
        (name,) = await cluster.names(PODS)
        await cluster.finish(name, "Failed")
        await cluster.settle(max_wait=0.1)
        if seconds:
            await end_deleted_pods(cluster)
            assert await cluster.names(PODS) == [name]
            await cluster.advance(seconds + 0.1)
        await end_deleted_pods(cluster)
        await cluster.settle(max_wait=0.1)
        await place(cluster)
        assert name not in await cluster.names(PODS)


def test_revisions_have_sorted_keys() -> None:
    """kube-controller-manager finds the revision of a template by comparing bytes."""
    template = {
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "metadata": {"labels": {"b": "", "a": ""}},
    }
    text = json.dumps(revision_data(template))
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert text.startswith('{"spec": {"template": {"$patch": "replace", "metadata"')
