"""Informers under random writes, with broken connections and compacted versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, TypeAlias

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.retries import Backoff
from plimsoll.errors import ApiError
from tests.cluster.conftest import CONNECTED
from tests.cluster.cutter import Cutter
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import config_map
from tests.waiting import until

Tree: TypeAlias = dict[str, Any]
QUICK = Backoff(first=0.01, most=0.1)


class Mirror(EventHandler[Tree]):
    """Copy of the objects built from events; fails if an event does not fit the former ones."""

    def __init__(self) -> None:
        self.objects: dict[str, Tree] = {}
        self.log: list[tuple[str, str, str]] = []

    def on_added(self, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert name not in self.objects, f"{name} was added twice"
        self.objects[name] = new
        self.log.append(("added", name, new["metadata"]["resourceVersion"]))

    def on_changed(self, old: Tree, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert self.objects[name] == old, f"{name}: not the last delivered state"
        assert int(old["metadata"]["resourceVersion"]) < int(new["metadata"]["resourceVersion"])
        assert old["metadata"]["uid"] == new["metadata"]["uid"]
        self.objects[name] = new
        self.log.append(("changed", name, new["metadata"]["resourceVersion"]))

    def on_removed(self, old: Tree) -> None:
        name = old["metadata"]["name"]
        assert self.objects.pop(name) == old, f"{name}: not the last delivered state"
        self.log.append(("removed", name, old["metadata"]["resourceVersion"]))


def decode(raw: bytes) -> Tree:
    tree: Tree = json.loads(raw)
    tree["metadata"].pop("managedFields", None)
    return tree


@asynccontextmanager
async def following(informer: Informer[Tree]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced(20)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert informer.faults == 0


async def churn(client: Client, namespace: str, dice: Random, writes: int) -> None:
    """Write to a few names at random."""
    for n in range(writes):
        name = f"c{dice.randint(0, 9)}"
        try:
            match dice.randint(0, 3):
                case 0:
                    await client.create(CONFIG_MAPS, config_map(name, n=str(n)), namespace)
                case 1 | 2:
                    await client.patch(CONFIG_MAPS, name, {"data": {"n": str(n)}}, namespace)
                case _:
                    await client.delete(CONFIG_MAPS, name, namespace)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


async def state(client: Client, namespace: str) -> dict[str, Tree]:
    listing = await client.list(CONFIG_MAPS, namespace)
    return {tree["metadata"]["name"]: tree for tree in map(decode, listing.items)}


async def caught_up(client: Client, namespace: str, mirror: Mirror) -> None:
    """Check that the mirror equals the server's state once a last write has been seen."""
    await client.create(CONFIG_MAPS, config_map("last"), namespace)
    await until(lambda: "last" in mirror.objects, context="the last write")
    assert mirror.objects == await state(client, namespace)


@run_by(Target.run_scenario, "target")
async def test_handlers_see_every_change_in_order(client: Client, namespace: str) -> None:
    await churn(client, namespace, Random(1), 20)
    first = await state(client, namespace)
    mirror = Mirror()
    informer = Informer(client, CONFIG_MAPS, decode, namespace=namespace, page=3)
    informer.add_handler(mirror)
    async with following(informer):
        assert mirror.objects == first
        await churn(client, namespace, Random(2), 60)
        await caught_up(client, namespace, mirror)
        assert {tree["metadata"]["name"]: tree for tree in informer.items()} == mirror.objects
        assert informer.get(namespace, "last") == mirror.objects["last"]
        assert informer.listings == 1
        late = Mirror()
        informer.add_handler(late)
        assert late.objects == mirror.objects


@run_by(Target.run_scenario, "target")
async def test_selectors_of_an_informer(client: Client, namespace: str) -> None:
    mirror = Mirror()
    informer = Informer(client, CONFIG_MAPS, decode, namespace=namespace, labels="in=yes")
    informer.add_handler(mirror)
    async with following(informer):
        await client.create(CONFIG_MAPS, config_map("a", labels={"in": "no"}), namespace)
        for value in ("yes", "no", "yes"):
            await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"in": value}}}, namespace)
        await client.delete(CONFIG_MAPS, "a", namespace)
        await client.create(CONFIG_MAPS, config_map("last", labels={"in": "yes"}), namespace)
        await until(lambda: "last" in mirror.objects)
        steps = [(kind, name) for kind, name, _ in mirror.log]
        assert steps == [
            ("added", "a"),
            ("removed", "a"),
            ("added", "a"),
            ("removed", "a"),
            ("added", "last"),
        ]


@pytest.mark.parametrize("target", CONNECTED, indirect=True)
@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 33))]
)
@run_by(Target.run_with_cutter, "target")
async def test_broken_connections_lose_nothing(
    client: Client, cut: Client, cutter: Cutter, namespace: str, *, seed: int
) -> None:
    dice = Random(seed)
    mirror = Mirror()
    informer = Informer(cut, CONFIG_MAPS, decode, namespace=namespace, page=3, backoff=QUICK)
    informer.add_handler(mirror)
    async with following(informer):
        for _ in range(8):
            # Every connection breaks after so many bytes: sometimes in the middle of an event.
            cutter.bytes_left = dice.choice([None, 6000, 9000, 20000])
            cutter.cut()
            await churn(client, namespace, dice, 15)
            await asyncio.sleep(dice.random() * 0.1)
        cutter.bytes_left = None
        cutter.cut()
        await caught_up(client, namespace, mirror)
        assert cutter.accepted > 5


@pytest.mark.parametrize("target", CONNECTED, indirect=True)
@run_by(Target.run_with_cutter, "target")
async def test_an_informer_reconnects_to_a_server(
    client: Client, cut: Client, cutter: Cutter, namespace: str
) -> None:
    mirror = Mirror()
    informer = Informer(cut, CONFIG_MAPS, decode, namespace=namespace, backoff=QUICK)
    informer.add_handler(mirror)
    async with following(informer):
        cutter.refusing = True
        cutter.cut()
        await churn(client, namespace, Random(4), 20)
        await until(lambda: informer.error is not None, context="an error")
        cutter.refusing = False
        await caught_up(client, namespace, mirror)
        assert informer.error is None


@run_by(Target.run_scenario, "target")
async def test_a_gap_in_the_history_causes_a_relist(
    client: Client, namespace: str, *, target: Target
) -> None:
    """The informer is made to request a compacted version; missed events are delivered, deletions
    included.
    """
    await target.age(client)
    for name in ("stays", "goes", "changes", "returns"):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    mirror = Mirror()
    informer = Informer(client, CONFIG_MAPS, decode, namespace=namespace, backoff=QUICK)
    informer.add_handler(mirror)
    async with following(informer):
        before = dict(mirror.objects)
    # The informer does not run while objects change.
    await client.delete(CONFIG_MAPS, "goes", namespace)
    await client.patch(CONFIG_MAPS, "changes", {"data": {"x": "1"}}, namespace)
    await client.delete(CONFIG_MAPS, "returns", namespace)
    await client.create(CONFIG_MAPS, config_map("returns"), namespace)
    await client.create(CONFIG_MAPS, config_map("comes"), namespace)
    mirror.log.clear()
    informer.cache.revision = "1"
    async with following(informer):
        await until(lambda: informer.listings == 2, context="another listing")
        await caught_up(client, namespace, mirror)
    steps = [(kind, name) for kind, name, _ in mirror.log]
    assert sorted(steps) == [
        ("added", "comes"),
        ("added", "last"),
        ("added", "returns"),
        ("changed", "changes"),
        ("removed", "goes"),
        ("removed", "returns"),
    ]
    assert mirror.objects["stays"] is before["stays"]
