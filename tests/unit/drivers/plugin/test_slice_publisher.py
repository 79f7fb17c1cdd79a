"""Slice publisher: slices in an API server are kept as desired."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slice_publisher import SlicePublisher, WrittenSlice
from plimsoll.drivers.plugin.slices import parse_slice
from plimsoll.errors import ApiError
from tests import virtual_time
from tests.coroutines import run_by
from tests.sizes import seeds
from tests.unit.drivers.plugin.fixtures import (
    DRIVER,
    NODE,
    ClusterFixture,
    cluster_fixture,
    devices,
    publisher,
    run,
    running,
)
from tests.waiting import DEADLINE, until


@run_by(run)
async def test_slices_have_driver_node_and_owner() -> None:
    async with cluster_fixture() as cluster:
        uid = (await cluster.admin.get(NODES, NODE))["metadata"]["uid"]
        async with running(publisher(cluster)) as slices_publisher:
            assert not slices_publisher.published
            assert slices_publisher.set_pools([DevicePool("a", devices(200))]) == ()
            await until(lambda: slices_publisher.published)
        found = await cluster.slices()
        assert [len(tree["spec"]["devices"]) for tree in found] == [128, 72]
        for index, tree in enumerate(found):
            meta, spec = tree["metadata"], tree["spec"]
            assert meta["generateName"] == f"0000{index}-{DRIVER}-{NODE}-"
            assert meta["ownerReferences"] == [
                {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
            ]
            assert spec["pool"] == {"name": "a", "generation": 1, "resourceSliceCount": 2}
            assert (spec["driver"], spec["nodeName"]) == (DRIVER, NODE)
        assert (
            slices_publisher.counters.created,
            slices_publisher.counters.updated,
            slices_publisher.counters.deleted,
        ) == (2, 0, 0)


@run_by(run)
async def test_slices_of_a_former_run_are_adopted_without_writes() -> None:
    pools = [
        DevicePool("a", devices(130, capacity={"size": {"value": "1024Mi"}})),
        DevicePool("b", devices(3, taints=[{"key": "worn", "effect": "NoSchedule"}])),
        DevicePool("c", (), [{"name": "set", "counters": {"x": {"value": "2"}}}]),
        DevicePool("empty"),
    ]
    async with cluster_fixture() as cluster:
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools(pools)
            await until(lambda: slices_publisher.published)
        before = await cluster.slices()
        assert all(tree["spec"]["devices"][0]["taints"][0]["timeAdded"] for tree in before[2:3])
        cluster.transport.writes.clear()
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools(pools)
            await until(lambda: slices_publisher.published)
            slices_publisher.set_pools(pools)
            await asyncio.sleep(0.1)
            assert slices_publisher.published
        assert cluster.transport.writes == []
        assert await cluster.slices() == before


@run_by(run)
async def test_only_changed_slices_are_written() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(300)), DevicePool("b", devices(1))])
        await until(lambda: slices_publisher.published)
        cluster.transport.writes.clear()
        changed = devices(300)
        changed[299]["attributes"] = {"model": {"string": "x"}}
        slices_publisher.set_pools([DevicePool("a", changed), DevicePool("b", devices(1))])
        await until(lambda: slices_publisher.published)
        # One slice of three: the generation stays, for no mixture can be seen.
        assert len(cluster.transport.writes) == 1
        assert {tree["spec"]["pool"]["generation"] for tree in await cluster.slices()} == {1}
        changed[0]["attributes"] = {"model": {"string": "y"}}
        changed[150]["attributes"] = {"model": {"string": "z"}}
        slices_publisher.set_pools([DevicePool("a", changed), DevicePool("b", devices(1))])
        await until(lambda: slices_publisher.published)
        generations = [tree["spec"]["pool"]["generation"] for tree in await cluster.slices()]
        assert generations == [2, 2, 2, 1]


@run_by(run)
async def test_a_pool_that_shrinks_and_one_that_is_removed() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(300)), DevicePool("b", devices(1))])
        await until(lambda: slices_publisher.published)
        slices_publisher.set_pools([DevicePool("a", devices(100))])
        await until(lambda: slices_publisher.published)
        found = await cluster.slices()
        assert [(tree["spec"]["pool"]["name"], len(tree["spec"]["devices"])) for tree in found] == [
            ("a", 100)
        ]
        assert found[0]["spec"]["pool"]["resourceSliceCount"] == 1


@run_by(run)
async def test_hundreds_of_slices_in_two_pools() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        pools = [DevicePool("a", devices(300), per_slice=1), DevicePool("b", devices(100), per_slice=1)]
        slices_publisher.set_pools(pools)
        await until(lambda: slices_publisher.published)
        assert slices_publisher.counters.created == 400
        found = await cluster.slices()
        names = [tree["spec"]["devices"][0]["name"] for tree in found]
        assert names == [f"w{n}" for n in (*range(300), *range(100))]
        # One goes, and comes again.
        await cluster.admin.delete(RESOURCE_SLICES, found[17]["metadata"]["name"])
        await until(cluster.slices, lambda slices: len(slices) == 400)
        assert [tree["spec"]["devices"][0]["name"] for tree in await cluster.slices()] == names


@run_by(run)
async def test_altered_and_deleted_slices_are_restored() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(2))])
        await until(lambda: slices_publisher.published)
        (tree,) = await cluster.slices()
        await cluster.admin.delete(RESOURCE_SLICES, tree["metadata"]["name"])
        (again,) = await until(cluster.slices)
        assert again["spec"]["devices"] == tree["spec"]["devices"]
        patch = {"spec": {"devices": [{"name": "bogus"}]}}
        await cluster.admin.patch(RESOURCE_SLICES, again["metadata"]["name"], patch)
        await until(cluster.slices, lambda slices: slices[0]["spec"]["devices"] == tree["spec"]["devices"])
        # All at once, as a kubelet does when it starts.
        await cluster.admin.delete_collection(RESOURCE_SLICES)
        await until(cluster.slices)
        await until(lambda: slices_publisher.published)


@run_by(run)
async def test_unwanted_slices_are_deleted() -> None:
    async with cluster_fixture() as cluster:
        stray = {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": "old", "generation": 7, "resourceSliceCount": 1},
            "devices": [{"name": "x"}],
        }
        foreign = [{**stray, "driver": "other.example.com"}, {**stray, "nodeName": "node-2"}]
        for spec in (stray, *foreign):
            await cluster.admin.create(RESOURCE_SLICES, {"metadata": {"generateName": "x-"}, "spec": spec})
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(1))])
            await until(lambda: slices_publisher.published)
            await until(cluster.slices, lambda slices: len(slices) == 3)
            # Later ones as well.
            await cluster.admin.create(RESOURCE_SLICES, {"metadata": {"generateName": "x-"}, "spec": stray})
            await until(cluster.slices, lambda slices: len(slices) == 3)
        assert sorted(tree["spec"]["pool"]["name"] for tree in await cluster.slices()) == [
            "a",
            "old",
            "old",
        ]


@run_by(run)
async def test_slices_with_foreign_names_are_replaced() -> None:
    async with cluster_fixture() as cluster:
        spec = {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": "a", "generation": 4, "resourceSliceCount": 1},
            "devices": devices(1),
        }
        await cluster.admin.create(RESOURCE_SLICES, {"metadata": {"name": "by-hand"}, "spec": spec})
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(1))])
            await until(lambda: slices_publisher.published)
        (tree,) = await cluster.slices()
        assert tree["metadata"]["name"].startswith("00000-")
        assert tree["spec"]["pool"]["generation"] == 5


@run_by(run)
async def test_publishing_waits_during_an_api_outage() -> None:
    async with cluster_fixture() as cluster:
        cluster.transport.disconnect()
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(1))])
            await until(lambda: slices_publisher.problems)
            assert not slices_publisher.published
            cluster.transport.reconnect()
            await until(lambda: slices_publisher.published)
            assert not slices_publisher.problems
            cluster.transport.disconnect()
            slices_publisher.set_pools([DevicePool("a", devices(2))])
            await until(lambda: slices_publisher.counters.failures > 1)
            assert "connection refused" in slices_publisher.problems[0]
            cluster.transport.reconnect()
            await until(lambda: slices_publisher.published)
            assert len((await cluster.slices())[0]["spec"]["devices"]) == 2


@run_by(run)
async def test_changes_during_an_api_outage_are_repaired() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(1))])
        await until(lambda: slices_publisher.published)
        cluster.transport.disconnect()
        await cluster.admin.delete_collection(RESOURCE_SLICES)
        await asyncio.sleep(0.05)
        cluster.transport.reconnect()
        await until(cluster.slices)


@run_by(run)
async def test_publishing_waits_for_the_node() -> None:
    async with cluster_fixture() as cluster:
        await cluster.admin.delete(NODES, NODE)
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(1))])
            await until(lambda: slices_publisher.problems)
            assert slices_publisher.problems[0].startswith(
                f'pool "a": retrieve node "{NODE}": nodes "{NODE}" not found'
            )
            await cluster.add_node()
            await until(lambda: slices_publisher.published)


@run_by(run)
async def test_a_recreated_node_owns_the_slices() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(200))])
        await until(lambda: slices_publisher.published)
        await cluster.admin.delete(NODES, NODE)
        uid = await cluster.add_node()
        # As the garbage collector does: one after the other.
        for tree in await cluster.slices():
            await cluster.admin.delete(RESOURCE_SLICES, tree["metadata"]["name"])
            await asyncio.sleep(0.05)

        def owned(slices: list[dict[str, Any]]) -> bool:
            owners = [tree["metadata"]["ownerReferences"][0]["uid"] for tree in slices]
            return owners == [uid, uid]

        await until(cluster.slices, owned)


@run_by(run)
async def test_a_malformed_pool_does_not_block_others() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        errors = slices_publisher.set_pools(
            [DevicePool("a", devices(1)), DevicePool("b", [{"name": "x"}, {"name": "x"}])]
        )
        assert [str(error) for error in errors] == ['found duplicate device "x" in pool "b"']
        await until(cluster.slices, lambda slices: len(slices) == 1)
        assert not slices_publisher.published
        assert slices_publisher.problems == ('found duplicate device "x" in pool "b"',)
        slices_publisher.set_pools([DevicePool("a", devices(1)), DevicePool("b", [{"name": "x"}])])
        await until(lambda: slices_publisher.published)
        # What is there stays while its driver does not know better, and is still looked after.
        slices_publisher.set_pools(
            [DevicePool("a", devices(1)), DevicePool("b", [{"name": "x"}, {"name": "x"}])]
        )
        await cluster.admin.delete_collection(RESOURCE_SLICES)
        await until(cluster.slices, lambda slices: len(slices) == 2)


@run_by(run)
async def test_a_rejected_pool_does_not_block_others() -> None:
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", [{"name": "Not a name"}]), DevicePool("b", devices(1))])
        await until(cluster.slices, lambda slices: len(slices) == 1)
        await until(lambda: slices_publisher.counters.failures > 2)
        assert 'pool "a": create resource slice: ' in slices_publisher.problems[0]
        assert "spec.devices[0].name" in slices_publisher.problems[0]
        slices_publisher.set_pools([DevicePool("a", devices(1)), DevicePool("b", devices(1))])
        await until(lambda: slices_publisher.published)


@run_by(run)
async def test_dropped_fields_are_reported_and_not_sent_again() -> None:
    async with (
        cluster_fixture("DRADeviceTaints=false") as cluster,
        running(publisher(cluster)) as slices_publisher,
    ):
        slices_publisher.set_pools(
            [DevicePool("a", devices(1, taints=[{"key": "worn", "effect": "NoSchedule"}]))]
        )
        await until(lambda: slices_publisher.published)
        await asyncio.sleep(0.1)
        assert len(cluster.transport.writes) == 1
        assert slices_publisher.problems == (
            'pool "a", slice #0: some fields were dropped by the apiserver,'
            " probably because these features are disabled: DRADeviceTaints",
        )
        slices_publisher.set_pools([DevicePool("a", devices(1))])
        await until(lambda: not slices_publisher.problems)


def test_restoring_slices_backs_off(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(1))])
            await until(lambda: slices_publisher.published)
            began = time.monotonic()
            async with asyncio.timeout(DEADLINE):
                while slices_publisher.counters.updated < 5:
                    for tree in await cluster.slices():
                        patch = {"spec": {"devices": [{"name": "bogus"}]}}
                        await cluster.admin.patch(RESOURCE_SLICES, tree["metadata"]["name"], patch)
                    await asyncio.sleep(0.01)
            # Three at once, the next ones after 0.25 s and 0.5 s.
            assert time.monotonic() - began >= 0.75

    with caplog.at_level(logging.WARNING, "plimsoll.driver"):
        run(scenario, virtual_time.run)
    assert "slices of pool a were changed by another client" in caplog.text


@run_by(run)
async def test_a_written_slice_that_is_never_observed_expires() -> None:
    """It was written and deleted between two watches: there is no event for it."""
    async with (
        cluster_fixture() as cluster,
        running(publisher(cluster, mutation_ttl=0.3)) as slices_publisher,
    ):
        slices_publisher.set_pools([DevicePool("a", devices(1))])
        await until(lambda: slices_publisher.published)
        (tree,) = await cluster.slices()
        ghost = {**tree, "metadata": {**tree["metadata"], "uid": "ghost"}}
        ghost["metadata"]["name"] = tree["metadata"]["name"].replace("00000-", "00001-")
        slices_publisher.written[ghost["metadata"]["name"]] = WrittenSlice(
            parse_slice(ghost), "ghost", 10**9, slices_publisher.clock()
        )
        slices_publisher.set_pools([DevicePool("a", devices(129))])
        await until(cluster.slices, lambda slices: len(slices) == 2)


@run_by(run)
async def test_long_names_are_truncated_in_slice_names() -> None:
    async with cluster_fixture() as cluster:
        node = "n" * 250
        await cluster.add_node(node)
        for _ in range(2):
            async with running(SlicePublisher(cluster.client, "d" * 63, node)) as slices_publisher:
                slices_publisher.set_pools([DevicePool("a", devices(130))])
                await until(lambda: slices_publisher.published)
        assert len(cluster.transport.writes) == 2
        assert [tree["metadata"]["name"][:7] for tree in await cluster.slices()] == ["00000-d", "00001-d"]


@run_by(run)
async def test_withdraw_deletes_all_slices() -> None:
    async with cluster_fixture() as cluster:
        async with running(publisher(cluster)) as slices_publisher:
            slices_publisher.set_pools([DevicePool("a", devices(200))])
            await until(lambda: slices_publisher.published)
        assert await slices_publisher.withdraw() == ""
        assert await cluster.slices() == []
        assert await slices_publisher.withdraw() == ""
        cluster.transport.disconnect()
        assert await slices_publisher.withdraw() == "connection refused"


@pytest.mark.parametrize("seed", seeds(6))
def test_slices_converge_to_the_desired_state(seed: int) -> None:
    """Pools change, others write and delete slices, the API is unreachable at times, and drivers restart."""
    random = Random(seed)

    def random_pools() -> list[DevicePool]:
        names = random.sample(["a", "b", "c"], random.randint(0, 3))
        return [
            DevicePool(
                name,
                devices(random.randint(0, 7), attributes={"n": {"int": random.randint(0, 1)}}),
                per_slice=2,
            )
            for name in names
        ]

    async def disturb_slices(cluster: ClusterFixture) -> None:
        for tree in await cluster.slices():
            name = tree["metadata"]["name"]
            with suppress(ApiError):
                match random.randint(0, 4):
                    case 0:
                        await cluster.admin.delete(RESOURCE_SLICES, name)
                    case 1:
                        patch = {"spec": {"devices": [{"name": "bogus"}]}}
                        await cluster.admin.patch(RESOURCE_SLICES, name, patch)
                    case 2:
                        pool = {
                            "generation": random.randint(0, 9),
                            "resourceSliceCount": random.randint(1, 9),
                        }
                        await cluster.admin.patch(RESOURCE_SLICES, name, {"spec": {"pool": pool}})

    async def scenario() -> None:
        async with cluster_fixture() as cluster:
            desired: list[DevicePool] = []
            for _ in range(3):
                async with running(publisher(cluster)) as slices_publisher:
                    for _ in range(6):
                        desired = random_pools()
                        slices_publisher.set_pools(desired)
                        await asyncio.sleep(random.choice((0, 0.01, 0.05)))
                        await disturb_slices(cluster)
                        if random.random() < 0.3:
                            cluster.transport.disconnect()
                            await disturb_slices(cluster)
                            await asyncio.sleep(0.02)
                            cluster.transport.reconnect()
            async with running(publisher(cluster)) as slices_publisher:
                slices_publisher.set_pools(desired)
                await disturb_slices(cluster)

                async def is_desired_state() -> bool:
                    found: dict[str, list[Any]] = {}
                    pools: dict[str, set[tuple[int, int]]] = {}
                    for tree in await cluster.slices():
                        pool = tree["spec"]["pool"]
                        found.setdefault(pool["name"], []).extend(tree["spec"].get("devices") or ())
                        counted = (pool["generation"], pool["resourceSliceCount"])
                        pools.setdefault(pool["name"], set()).add(counted)
                    counts = {name: [count for _, count in existing] for name, existing in pools.items()}
                    return found == {pool.name: pool.devices for pool in desired} and counts == {
                        pool.name: [max(1, -(-len(pool.devices) // 2))] for pool in desired
                    }

                await until(is_desired_state)
                await until(lambda: slices_publisher.published)

    run(scenario)
