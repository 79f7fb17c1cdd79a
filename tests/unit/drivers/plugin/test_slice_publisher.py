"""Slices in an API server, kept as wanted whatever happens to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.client.retries import Backoff
from plimsoll.drivers.plugin import Pool
from plimsoll.drivers.plugin.slice_publisher import Publisher, _Written
from plimsoll.drivers.plugin.slices import see_tree
from plimsoll.errors import ApiError
from tests.unit.drivers.plugin.world import DRIVER, NODE, World, run, until, until_async, world


def devices(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"w{number}", **more} for number in range(count)]


def publisher(earth: World, **options: Any) -> Publisher:
    options = {"settle": 0.01, "backoff": Backoff(first=0.02, most=0.1), **options}
    return Publisher(earth.client, DRIVER, NODE, **options)


@asynccontextmanager
async def running(publisher: Publisher) -> AsyncIterator[Publisher]:
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_slices_have_what_others_look_for() -> None:
    async def story() -> None:
        async with world() as earth:
            uid = (await earth.admin.get(NODES, NODE))["metadata"]["uid"]
            async with running(publisher(earth)) as kit:
                assert not kit.published
                assert kit.want([Pool("a", devices(200))]) == ()
                await until(lambda: kit.published)
            found = await earth.slices()
            assert [len(tree["spec"]["devices"]) for tree in found] == [128, 72]
            for index, tree in enumerate(found):
                meta, spec = tree["metadata"], tree["spec"]
                assert meta["generateName"] == f"0000{index}-{DRIVER}-{NODE}-"
                assert meta["ownerReferences"] == [
                    {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
                ]
                assert spec["pool"] == {"name": "a", "generation": 1, "resourceSliceCount": 2}
                assert (spec["driver"], spec["nodeName"]) == (DRIVER, NODE)
            assert (kit.counters.created, kit.counters.updated, kit.counters.deleted) == (2, 0, 0)

    run(story)


def test_slices_of_a_former_run_are_adopted_without_a_single_write() -> None:
    async def story() -> None:
        pools = [
            Pool("a", devices(130, capacity={"size": {"value": "1024Mi"}})),
            Pool("b", devices(3, taints=[{"key": "worn", "effect": "NoSchedule"}])),
            Pool("c", (), [{"name": "set", "counters": {"x": {"value": "2"}}}]),
            Pool("empty"),
        ]
        async with world() as earth:
            async with running(publisher(earth)) as kit:
                kit.want(pools)
                await until(lambda: kit.published)
            before = await earth.slices()
            assert all(tree["spec"]["devices"][0]["taints"][0]["timeAdded"] for tree in before[2:3])
            earth.wire.writes.clear()
            async with running(publisher(earth)) as kit:
                kit.want(pools)
                await until(lambda: kit.published)
                kit.want(pools)
                await asyncio.sleep(0.1)
                assert kit.published
            assert earth.wire.writes == []
            assert await earth.slices() == before

    run(story)


def test_only_what_changed_is_written() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(300)), Pool("b", devices(1))])
            await until(lambda: kit.published)
            earth.wire.writes.clear()
            changed = devices(300)
            changed[299]["attributes"] = {"model": {"string": "x"}}
            kit.want([Pool("a", changed), Pool("b", devices(1))])
            await until(lambda: kit.published)
            # One slice of three: the generation stays, for no mixture can be seen.
            assert len(earth.wire.writes) == 1
            assert {tree["spec"]["pool"]["generation"] for tree in await earth.slices()} == {1}
            changed[0]["attributes"] = {"model": {"string": "y"}}
            changed[150]["attributes"] = {"model": {"string": "z"}}
            kit.want([Pool("a", changed), Pool("b", devices(1))])
            await until(lambda: kit.published)
            generations = [tree["spec"]["pool"]["generation"] for tree in await earth.slices()]
            assert generations == [2, 2, 2, 1]

    run(story)


def test_a_pool_that_shrinks_and_one_that_goes() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(300)), Pool("b", devices(1))])
            await until(lambda: kit.published)
            kit.want([Pool("a", devices(100))])
            await until(lambda: kit.published)
            found = await earth.slices()
            assert [(tree["spec"]["pool"]["name"], len(tree["spec"]["devices"])) for tree in found] == [
                ("a", 100)
            ]
            assert found[0]["spec"]["pool"]["resourceSliceCount"] == 1

    run(story)


def test_hundreds_of_slices_in_two_pools() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            pools = [Pool("a", devices(300), per_slice=1), Pool("b", devices(100), per_slice=1)]
            kit.want(pools)
            await until(lambda: kit.published, seconds=25.0)
            assert kit.counters.created == 400
            found = await earth.slices()
            names = [tree["spec"]["devices"][0]["name"] for tree in found]
            assert names == [f"w{n}" for n in (*range(300), *range(100))]
            # One goes, and comes again.
            await earth.admin.delete(RESOURCE_SLICES, found[17]["metadata"]["name"])
            await until_async(earth.slices, lambda slices: len(slices) == 400)
            assert [tree["spec"]["devices"][0]["name"] for tree in await earth.slices()] == names

    run(story, 60.0)


def test_altered_and_deleted_slices_are_restored() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(2))])
            await until(lambda: kit.published)
            (tree,) = await earth.slices()
            await earth.admin.delete(RESOURCE_SLICES, tree["metadata"]["name"])
            (again,) = await until_async(earth.slices)
            assert again["spec"]["devices"] == tree["spec"]["devices"]
            patch = {"spec": {"devices": [{"name": "bogus"}]}}
            await earth.admin.patch(RESOURCE_SLICES, again["metadata"]["name"], patch)
            await until_async(
                earth.slices, lambda slices: slices[0]["spec"]["devices"] == tree["spec"]["devices"]
            )
            # All at once, as a kubelet does when it starts.
            await earth.admin.delete_collection(RESOURCE_SLICES)
            await until_async(earth.slices)
            await until(lambda: kit.published)

    run(story)


def test_slices_that_nobody_wants_go() -> None:
    async def story() -> None:
        async with world() as earth:
            stray = {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": "old", "generation": 7, "resourceSliceCount": 1},
                "devices": [{"name": "x"}],
            }
            foreign = [{**stray, "driver": "other.example.com"}, {**stray, "nodeName": "node-2"}]
            for spec in (stray, *foreign):
                await earth.admin.create(RESOURCE_SLICES, {"metadata": {"generateName": "x-"}, "spec": spec})
            async with running(publisher(earth)) as kit:
                kit.want([Pool("a", devices(1))])
                await until(lambda: kit.published)
                await until_async(earth.slices, lambda slices: len(slices) == 3)
                # Later ones as well.
                await earth.admin.create(RESOURCE_SLICES, {"metadata": {"generateName": "x-"}, "spec": stray})
                await until_async(earth.slices, lambda slices: len(slices) == 3)
            assert sorted(tree["spec"]["pool"]["name"] for tree in await earth.slices()) == [
                "a",
                "old",
                "old",
            ]

    run(story)


def test_slices_with_names_of_another_kind_are_made_anew() -> None:
    async def story() -> None:
        async with world() as earth:
            spec = {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": "a", "generation": 4, "resourceSliceCount": 1},
                "devices": devices(1),
            }
            await earth.admin.create(RESOURCE_SLICES, {"metadata": {"name": "by-hand"}, "spec": spec})
            async with running(publisher(earth)) as kit:
                kit.want([Pool("a", devices(1))])
                await until(lambda: kit.published)
            (tree,) = await earth.slices()
            assert tree["metadata"]["name"].startswith("00000-")
            assert tree["spec"]["pool"]["generation"] == 5

    run(story)


def test_publishing_waits_while_the_api_is_away() -> None:
    async def story() -> None:
        async with world() as earth:
            earth.wire.cut()
            async with running(publisher(earth)) as kit:
                kit.want([Pool("a", devices(1))])
                await until(lambda: kit.problems)
                assert not kit.published
                earth.wire.mend()
                await until(lambda: kit.published)
                assert not kit.problems
                earth.wire.cut()
                kit.want([Pool("a", devices(2))])
                await until(lambda: kit.counters.failures > 1)
                assert "connection refused" in kit.problems[0]
                earth.wire.mend()
                await until(lambda: kit.published)
                assert len((await earth.slices())[0]["spec"]["devices"]) == 2

    run(story)


def test_what_happened_while_the_api_was_away_is_mended() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(1))])
            await until(lambda: kit.published)
            earth.wire.cut()
            await earth.admin.delete_collection(RESOURCE_SLICES)
            await asyncio.sleep(0.05)
            earth.wire.mend()
            await until_async(earth.slices)

    run(story)


def test_a_node_that_is_not_there_yet() -> None:
    async def story() -> None:
        async with world() as earth:
            await earth.admin.delete(NODES, NODE)
            async with running(publisher(earth)) as kit:
                kit.want([Pool("a", devices(1))])
                await until(lambda: kit.problems)
                assert kit.problems[0].startswith(
                    f'pool "a": retrieve node "{NODE}": nodes "{NODE}" not found'
                )
                await earth.add_node()
                await until(lambda: kit.published)

    run(story)


def test_a_node_made_anew_owns_the_slices() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(200))])
            await until(lambda: kit.published)
            await earth.admin.delete(NODES, NODE)
            uid = await earth.add_node()
            # As the garbage collector does: one after the other.
            for tree in await earth.slices():
                await earth.admin.delete(RESOURCE_SLICES, tree["metadata"]["name"])
                await asyncio.sleep(0.05)

            def owned(slices: list[dict[str, Any]]) -> bool:
                owners = [tree["metadata"]["ownerReferences"][0]["uid"] for tree in slices]
                return owners == [uid, uid]

            await until_async(earth.slices, owned)

    run(story)


def test_a_malformed_pool_holds_up_no_other() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            faults = kit.want([Pool("a", devices(1)), Pool("b", [{"name": "x"}, {"name": "x"}])])
            assert [str(fault) for fault in faults] == ['found duplicate device "x" in pool "b"']
            await until_async(earth.slices, lambda slices: len(slices) == 1)
            assert not kit.published
            assert kit.problems == ('found duplicate device "x" in pool "b"',)
            kit.want([Pool("a", devices(1)), Pool("b", [{"name": "x"}])])
            await until(lambda: kit.published)
            # What is there stays while its driver does not know better, and is still looked after.
            kit.want([Pool("a", devices(1)), Pool("b", [{"name": "x"}, {"name": "x"}])])
            await earth.admin.delete_collection(RESOURCE_SLICES)
            await until_async(earth.slices, lambda slices: len(slices) == 2)

    run(story)


def test_a_pool_that_the_server_refuses_holds_up_no_other() -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", [{"name": "Not a name"}]), Pool("b", devices(1))])
            await until_async(earth.slices, lambda slices: len(slices) == 1)
            await until(lambda: kit.counters.failures > 2)
            assert 'pool "a": create resource slice: ' in kit.problems[0]
            assert "spec.devices[0].name" in kit.problems[0]
            kit.want([Pool("a", devices(1)), Pool("b", devices(1))])
            await until(lambda: kit.published)

    run(story)


def test_fields_that_the_server_drops_are_told_and_not_sent_for_ever() -> None:
    async def story() -> None:
        async with world("DRADeviceTaints=false") as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(1, taints=[{"key": "worn", "effect": "NoSchedule"}]))])
            await until(lambda: kit.published)
            await asyncio.sleep(0.1)
            assert len(earth.wire.writes) == 1
            assert kit.problems == (
                'pool "a", slice #0: some fields were dropped by the apiserver,'
                " probably because these features are disabled: DRADeviceTaints",
            )
            kit.want([Pool("a", devices(1))])
            await until(lambda: kit.problems == ())

    run(story)


def test_who_keeps_altering_slices_is_answered_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with world() as earth, running(publisher(earth)) as kit:
            kit.want([Pool("a", devices(1))])
            await until(lambda: kit.published)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    while True:
                        for tree in await earth.slices():
                            patch = {"spec": {"devices": [{"name": "bogus"}]}}
                            await earth.admin.patch(RESOURCE_SLICES, tree["metadata"]["name"], patch)
                        await asyncio.sleep(0.01)
            assert 3 <= kit.counters.updated <= 8

    with caplog.at_level(logging.WARNING, "plimsoll.driver"):
        run(story)
    assert "slices of pool a were altered by others" in caplog.text


def test_a_slice_that_was_never_seen_is_not_believed_for_ever() -> None:
    """It was written and deleted while nobody looked: no event will ever tell."""

    async def story() -> None:
        async with world() as earth, running(publisher(earth, believed=0.3)) as kit:
            kit.want([Pool("a", devices(1))])
            await until(lambda: kit.published)
            (tree,) = await earth.slices()
            ghost = {**tree, "metadata": {**tree["metadata"], "uid": "ghost"}}
            ghost["metadata"]["name"] = tree["metadata"]["name"].replace("00000-", "00001-")
            kit._mine[ghost["metadata"]["name"]] = _Written(see_tree(ghost), "ghost", 10**9, kit._clock())
            kit.want([Pool("a", devices(129))])
            await until_async(earth.slices, lambda slices: len(slices) == 2)

    run(story)


def test_names_that_are_too_long_for_a_slice() -> None:
    async def story() -> None:
        async with world() as earth:
            node = "n" * 250
            await earth.add_node(node)
            for _ in range(2):
                async with running(Publisher(earth.client, "d" * 63, node)) as kit:
                    kit.want([Pool("a", devices(130))])
                    await until(lambda: kit.published)
            assert len(earth.wire.writes) == 2
            assert [tree["metadata"]["name"][:7] for tree in await earth.slices()] == ["00000-d", "00001-d"]

    run(story)


def test_withdrawing() -> None:
    async def story() -> None:
        async with world() as earth:
            async with running(publisher(earth)) as kit:
                kit.want([Pool("a", devices(200))])
                await until(lambda: kit.published)
            assert await kit.withdraw() == ""
            assert await earth.slices() == []
            assert await kit.withdraw() == ""
            earth.wire.cut()
            assert await kit.withdraw() == "connection refused"

    run(story)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_slices_are_as_wanted_in_the_end(seed: int) -> None:
    """Drivers change their minds, others write and delete, the API goes away, drivers are started anew."""
    dice = Random(seed)

    def wish() -> list[Pool]:
        names = dice.sample(["a", "b", "c"], dice.randint(0, 3))
        return [
            Pool(
                name, devices(dice.randint(0, 7), attributes={"n": {"int": dice.randint(0, 1)}}), per_slice=2
            )
            for name in names
        ]

    async def disturb(earth: World) -> None:
        for tree in await earth.slices():
            name = tree["metadata"]["name"]
            with suppress(ApiError):
                match dice.randint(0, 4):
                    case 0:
                        await earth.admin.delete(RESOURCE_SLICES, name)
                    case 1:
                        patch = {"spec": {"devices": [{"name": "bogus"}]}}
                        await earth.admin.patch(RESOURCE_SLICES, name, patch)
                    case 2:
                        pool = {"generation": dice.randint(0, 9), "resourceSliceCount": dice.randint(1, 9)}
                        await earth.admin.patch(RESOURCE_SLICES, name, {"spec": {"pool": pool}})

    async def story() -> None:
        async with world() as earth:
            wanted: list[Pool] = []
            for _ in range(3):
                async with running(publisher(earth)) as kit:
                    for _ in range(6):
                        wanted = wish()
                        kit.want(wanted)
                        await asyncio.sleep(dice.choice((0, 0.01, 0.05)))
                        await disturb(earth)
                        if dice.random() < 0.3:
                            earth.wire.cut()
                            await disturb(earth)
                            await asyncio.sleep(0.02)
                            earth.wire.mend()
            async with running(publisher(earth)) as kit:
                kit.want(wanted)
                await disturb(earth)

                async def right() -> bool:
                    found: dict[str, list[Any]] = {}
                    pools: dict[str, set[tuple[int, int]]] = {}
                    for tree in await earth.slices():
                        pool = tree["spec"]["pool"]
                        found.setdefault(pool["name"], []).extend(tree["spec"].get("devices") or ())
                        counted = (pool["generation"], pool["resourceSliceCount"])
                        pools.setdefault(pool["name"], set()).add(counted)
                    counts = {name: [count for _, count in seen] for name, seen in pools.items()}
                    return found == {pool.name: pool.devices for pool in wanted} and counts == {
                        pool.name: [max(1, -(-len(pool.devices) // 2))] for pool in wanted
                    }

                await until_async(right)
                await until(lambda: kit.published)

    run(story)
