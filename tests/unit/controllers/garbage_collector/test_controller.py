"""The garbage collector at work on a real API in memory."""

from __future__ import annotations

from typing import Any

from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, NODES, SECRETS
from tests.unit.controllers.cluster import Cluster, play

ONLY = ["garbage-collector-controller"]


async def add(
    world: Cluster,
    name: str,
    *owners: dict[str, Any],
    blocks: bool = False,
    namespace: str = "n",
    **metadata: Any,
) -> dict[str, Any]:
    """Make a config map; what comes back is a reference to it as an owner."""
    references = [{**owner, **({"blockOwnerDeletion": True} if blocks else {})} for owner in owners]
    tree = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    made = await world.client.create(CONFIG_MAPS, tree, namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}


def test_what_an_object_owns_goes_with_it() -> None:
    async def story(world: Cluster) -> None:
        root = await add(world, "root")
        branch = await add(world, "branch", root)
        await add(world, "leaf", branch)
        await add(world, "other")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["branch", "leaf", "other", "root"]
        await world.client.delete(CONFIG_MAPS, "root", "n", propagation="Background")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["other"]

    play(story, only=ONLY)


def test_the_last_owner_decides() -> None:
    async def story(world: Cluster) -> None:
        first, second = await add(world, "first"), await add(world, "second")
        await add(world, "x", first, second)
        await world.client.delete(CONFIG_MAPS, "first", "n")
        await world.settle()
        left = await world.get(CONFIG_MAPS, "x")
        assert left is not None
        assert [owner["name"] for owner in left["metadata"]["ownerReferences"]] == ["second"]
        await world.client.delete(CONFIG_MAPS, "second", "n")
        await world.settle()
        assert await world.get(CONFIG_MAPS, "x") is None

    play(story, only=ONLY)


def test_orphans_stay() -> None:
    async def story(world: Cluster) -> None:
        root = await add(world, "root")
        await add(world, "x", root)
        await world.settle()
        await world.client.delete(CONFIG_MAPS, "root", "n", propagation="Orphan")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["x"]
        left = await world.get(CONFIG_MAPS, "x")
        assert left is not None
        assert "ownerReferences" not in left["metadata"]

    play(story, only=ONLY)


def test_in_the_foreground_the_root_goes_last() -> None:
    async def story(world: Cluster) -> None:
        root = await add(world, "root")
        branch = await add(world, "branch", root, blocks=True)
        await add(world, "leaf", branch, blocks=True, finalizers=["example.com/hold"])
        await world.settle()
        await world.client.delete(CONFIG_MAPS, "root", "n", propagation="Foreground")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["branch", "leaf", "root"]
        await world.client.patch(CONFIG_MAPS, "leaf", {"metadata": {"finalizers": None}}, "n")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == []

    play(story, only=ONLY)


def test_what_does_not_block_does_not_keep_the_root() -> None:
    async def story(world: Cluster) -> None:
        root = await add(world, "root")
        await add(world, "x", root, finalizers=["example.com/hold"])
        await world.settle()
        await world.client.delete(CONFIG_MAPS, "root", "n", propagation="Foreground")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["x"]
        left = await world.get(CONFIG_MAPS, "x")
        assert left is not None
        assert left["metadata"]["deletionTimestamp"]

    play(story, only=ONLY)


def test_a_circle_goes_in_the_foreground_too() -> None:
    async def story(world: Cluster) -> None:
        a = await add(world, "a")
        b = await add(world, "b", a, blocks=True)
        references = [{**b, "blockOwnerDeletion": True}]
        await world.client.patch(CONFIG_MAPS, "a", {"metadata": {"ownerReferences": references}}, "n")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["a", "b"]
        await world.client.delete(CONFIG_MAPS, "a", "n", propagation="Foreground")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == []

    play(story, only=ONLY)


def test_owners_that_never_were() -> None:
    async def story(world: Cluster) -> None:
        there = await add(world, "there")
        await add(world, "never", {**there, "name": "nobody", "uid": "11111111-1111-4111-8111-111111111111"})
        await add(world, "stranger", {**there, "uid": "22222222-2222-4222-8222-222222222222"})
        await add(world, "misnamed", {**there, "name": "nobody"})
        await add(world, "unkind", {**there, "kind": "Secret"})
        await add(world, "unknown", {**there, "apiVersion": "example.com/v1", "kind": "Thing"})
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["there", "unknown"]

    play(story, only=ONLY)


def test_an_owner_in_another_namespace_is_no_owner() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(NAMESPACES, {"metadata": {"name": "m"}})
        far = await add(world, "far", namespace="m")
        await add(world, "x", far)
        await world.settle()
        assert await world.names(CONFIG_MAPS) == []
        ((kind, reason, _),) = await world.events()
        assert (kind, reason) == ("Warning", "OwnerRefInvalidNamespace")

    play(story, only=ONLY)


def test_cluster_scoped_owners_and_objects() -> None:
    async def story(world: Cluster) -> None:
        node = await world.client.create(NODES, {"metadata": {"name": "w"}})
        owner = {"apiVersion": "v1", "kind": "Node", "name": "w", "uid": node["metadata"]["uid"]}
        there = await add(world, "x", owner)
        await world.client.create(NODES, {"metadata": {"name": "odd", "ownerReferences": [there]}})
        await world.settle()
        assert await world.names(CONFIG_MAPS) == ["x"]
        await world.client.delete(NODES, "w")
        await world.settle()
        assert await world.names(CONFIG_MAPS) == []
        assert await world.names(NODES, "") == ["odd"], "an owner in a namespace counts for nothing here"

    play(story, only=ONLY)


def test_other_kinds_and_a_restart() -> None:
    async def story(world: Cluster) -> None:
        root = await add(world, "root")
        secret = {"metadata": {"name": "s", "ownerReferences": [root]}}
        await world.client.create(SECRETS, secret, "n")
        await world.stop()
        await world.client.delete(CONFIG_MAPS, "root", "n")
        await world.start()
        await world.settle()
        assert await world.names(SECRETS) == []

    play(story, only=ONLY)
