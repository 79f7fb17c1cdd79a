"""Garbage collector on an API in memory."""

from __future__ import annotations

from typing import Any

from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, NODES, SECRETS
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario

ONLY = ["garbage-collector-controller"]


async def add(
    cluster: Cluster,
    name: str,
    *owners: dict[str, Any],
    blocks: bool = False,
    namespace: str = "n",
    **metadata: Any,
) -> dict[str, Any]:
    """Create a config map and return an owner reference to it."""
    references = [{**owner, **({"blockOwnerDeletion": True} if blocks else {})} for owner in owners]
    tree = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    made = await cluster.client.create(CONFIG_MAPS, tree, namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}


@run_by(run_scenario, only=ONLY)
async def test_dependents_are_deleted_with_their_owner(cluster: Cluster) -> None:
    root = await add(cluster, "root")
    branch = await add(cluster, "branch", root)
    await add(cluster, "leaf", branch)
    await add(cluster, "other")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["branch", "leaf", "other", "root"]
    await cluster.client.delete(CONFIG_MAPS, "root", "n", propagation="Background")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["other"]


@run_by(run_scenario, only=ONLY)
async def test_the_last_owner_decides(cluster: Cluster) -> None:
    first, second = await add(cluster, "first"), await add(cluster, "second")
    await add(cluster, "x", first, second)
    await cluster.client.delete(CONFIG_MAPS, "first", "n")
    await cluster.settle()
    left = await cluster.get(CONFIG_MAPS, "x")
    assert left is not None
    assert [owner["name"] for owner in left["metadata"]["ownerReferences"]] == ["second"]
    await cluster.client.delete(CONFIG_MAPS, "second", "n")
    await cluster.settle()
    assert await cluster.get(CONFIG_MAPS, "x") is None


@run_by(run_scenario, only=ONLY)
async def test_orphans_stay(cluster: Cluster) -> None:
    root = await add(cluster, "root")
    await add(cluster, "x", root)
    await cluster.settle()
    await cluster.client.delete(CONFIG_MAPS, "root", "n", propagation="Orphan")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["x"]
    left = await cluster.get(CONFIG_MAPS, "x")
    assert left is not None
    assert "ownerReferences" not in left["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_foreground_deletion_removes_the_root_last(cluster: Cluster) -> None:
    root = await add(cluster, "root")
    branch = await add(cluster, "branch", root, blocks=True)
    await add(cluster, "leaf", branch, blocks=True, finalizers=["example.com/hold"])
    await cluster.settle()
    await cluster.client.delete(CONFIG_MAPS, "root", "n", propagation="Foreground")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["branch", "leaf", "root"]
    await cluster.client.patch(CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}}, "n")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == []


@run_by(run_scenario, only=ONLY)
async def test_dependents_without_block_owner_deletion_do_not_block(cluster: Cluster) -> None:
    root = await add(cluster, "root")
    await add(cluster, "x", root, finalizers=["example.com/hold"])
    await cluster.settle()
    await cluster.client.delete(CONFIG_MAPS, "root", "n", propagation="Foreground")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["x"]
    left = await cluster.get(CONFIG_MAPS, "x")
    assert left is not None
    assert left["metadata"]["deletionTimestamp"]


@run_by(run_scenario, only=ONLY)
async def test_a_cycle_is_deleted_in_the_foreground_too(cluster: Cluster) -> None:
    a = await add(cluster, "a")
    b = await add(cluster, "b", a, blocks=True)
    references = [{**b, "blockOwnerDeletion": True}]
    await cluster.client.patch(CONFIG_MAPS, "a", {"metadata": {"ownerReferences": references}}, "n")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["a", "b"]
    await cluster.client.delete(CONFIG_MAPS, "a", "n", propagation="Foreground")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == []


@run_by(run_scenario, only=ONLY)
async def test_owners_that_never_existed(cluster: Cluster) -> None:
    there = await add(cluster, "there")
    await add(cluster, "never", {**there, "name": "missing", "uid": "11111111-1111-4111-8111-111111111111"})
    await add(cluster, "stranger", {**there, "uid": "22222222-2222-4222-8222-222222222222"})
    await add(cluster, "misnamed", {**there, "name": "missing"})
    await add(cluster, "unkind", {**there, "kind": "Secret"})
    await add(cluster, "unknown", {**there, "apiVersion": "example.com/v1", "kind": "Thing"})
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["there", "unknown"]


@run_by(run_scenario, only=ONLY)
async def test_an_owner_in_another_namespace_is_no_owner(cluster: Cluster) -> None:
    await cluster.client.create(NAMESPACES, {"metadata": {"name": "m"}})
    far = await add(cluster, "far", namespace="m")
    await add(cluster, "x", far)
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == []
    ((kind, reason, _),) = await cluster.events()
    assert (kind, reason) == ("Warning", "OwnerRefInvalidNamespace")


@run_by(run_scenario, only=ONLY)
async def test_cluster_scoped_owners_and_objects(cluster: Cluster) -> None:
    node = await cluster.client.create(NODES, {"metadata": {"name": "w"}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "w", "uid": node["metadata"]["uid"]}
    there = await add(cluster, "x", owner)
    await cluster.client.create(NODES, {"metadata": {"name": "odd", "ownerReferences": [there]}})
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == ["x"]
    await cluster.client.delete(NODES, "w")
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == []
    assert await cluster.names(NODES, "") == ["odd"], "an owner in a namespace counts for nothing here"


@run_by(run_scenario, only=ONLY)
async def test_other_kinds_and_a_restart(cluster: Cluster) -> None:
    root = await add(cluster, "root")
    secret = {"metadata": {"name": "s", "ownerReferences": [root]}}
    await cluster.client.create(SECRETS, secret, "n")
    await cluster.stop()
    await cluster.client.delete(CONFIG_MAPS, "root", "n")
    await cluster.start()
    await cluster.settle()
    assert await cluster.names(SECRETS) == []
