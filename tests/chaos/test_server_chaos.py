"""Server killed at any time, under writers, watches and informers over HTTP.

No acknowledged write is lost, no revision stands for two writes, watches resume without gaps and without
repetitions, informers converge to the truth, and every restart finds the store in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.retries import Backoff
from tests.chaos.forked_server import ForkedServer
from tests.chaos.server_load import LABEL, NS, Follower, RevisionLog, Tree, Writer
from tests.waiting import DEADLINE, until

WRITERS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkedServer]:
    found = ForkedServer(tmp_path)
    found.start()
    yield found
    found.close()
    assert "Traceback" not in found.log.read_text()


class OrderChecker(EventHandler[Tree]):
    """Informer handler that checks the order of events."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.events = 0

    def on_added(self, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert name not in self.objects
        self._put(new)

    def on_changed(self, old: Tree, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert self.objects[name] == int(old["metadata"]["resourceVersion"])
        assert self.objects[name] < int(new["metadata"]["resourceVersion"])
        self._put(new)

    def on_removed(self, old: Tree) -> None:
        del self.objects[old["metadata"]["name"]]
        self.events += 1

    def _put(self, tree: Tree) -> None:
        self.objects[tree["metadata"]["name"]] = int(tree["metadata"]["resourceVersion"])
        self.events += 1


async def torment(server: ForkedServer, kills: int, seed: int) -> RevisionLog:
    dice, ledger = Random(seed), RevisionLog()
    config = replace(server.config(), attempts=1, timeout=10.0)
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client.connect(config))
        writers = [Writer(number, client, ledger, Random(seed + number)) for number in range(WRITERS)]
        followers = [Follower(client, ledger, labels=labels) for labels in ("", "", f"{LABEL}=true")]
        informers, checkers = [], []
        for streamed in (False, True):
            informer: Informer[Tree] = Informer(
                client,
                CONFIG_MAPS,
                json.loads,
                namespace=NS,
                streamed=streamed,
                backoff=Backoff(first=0.01, most=0.1),
            )
            checkers.append(OrderChecker())
            informer.add_handler(checkers[-1])
            informers.append(informer)
        for follower in followers:
            await follower.begin()
        background = [asyncio.create_task(follower.run()) for follower in followers]
        background += [asyncio.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced(DEADLINE)
        working = [asyncio.create_task(writer.run(stopped)) for writer in writers]
        for _ in range(kills):
            target = ledger.counts["acknowledged"] + dice.choice((0, 1, 3, 8, 20))
            while ledger.counts["acknowledged"] < target:  # by number, as a busy machine is slower
                await asyncio.sleep(0.005)
                raise_failures(working, background)
            await asyncio.to_thread(server.kill)
            if dice.random() < 0.2:  # and once more while it starts
                await asyncio.to_thread(server.launch)
                await asyncio.sleep(0.2 * dice.random())
                await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            raise_failures(working, background)
        while ledger.counts["acknowledged"] <= 4 * kills:
            await asyncio.sleep(0.005)
            raise_failures(working, background)
        stopped.set()
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*working)
            for writer in writers:
                await writer.check()
            await converge(client, writers, followers, informers, checkers)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
    check_followers(ledger, followers)
    assert all(informer.faults == 0 for informer in informers)
    assert all(informer.listings == 1 for informer in informers), "a watch is resumed, not begun anew"
    return ledger


def raise_failures(*groups: list[asyncio.Task[None]]) -> None:
    for task in (each for group in groups for each in group if each.done()):
        task.result()


async def converge(
    client: Client,
    writers: list[Writer],
    followers: list[Follower],
    informers: list[Informer[Tree]],
    checkers: list[OrderChecker],
) -> None:
    """Wait until all clients know the state of the server."""
    listing = await client.list(CONFIG_MAPS, NS)
    truth = {}
    for raw in listing.items:
        tree = json.loads(raw)
        truth[tree["metadata"]["name"]] = int(tree["metadata"]["resourceVersion"])
    written = {
        name: state.revision for writer in writers for name, state in writer.known.items() if state.value
    }
    assert {name: revision for name, revision in truth.items() if name.startswith("w")} == written

    def is_converged() -> bool:
        known = [follower.objects for follower in followers[:2]]
        known += [one.objects for one in checkers]
        known += [
            {tree["metadata"]["name"]: int(tree["metadata"]["resourceVersion"]) for tree in informer.items()}
            for informer in informers
        ]
        return all(one == truth for one in known) and followers[2].objects == written

    await until(is_converged)


def check_followers(ledger: RevisionLog, followers: list[Follower]) -> None:
    """Check that no watch missed an acknowledged write or an event of another watch, or has duplicates."""
    end = min(follower.revision for follower in followers)
    for follower in followers:
        seen = set(follower.seen)
        assert len(seen) == len(follower.seen)
        expected = {one for one in ledger.writes if follower.since < one <= end}
        assert expected <= seen, sorted(expected - seen)
        assert {one for one in ledger.acknowledged if follower.since < one <= end} <= seen


def test_a_few_kills(server: ForkedServer) -> None:
    ledger = asyncio.run(torment(server, 12, 1))
    assert ledger.counts["acknowledged"] > 48
    assert ledger.counts["watches broken"] >= 3, "all followers were connected before the first kill"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_kills(server: ForkedServer, seed: int) -> None:
    ledger = asyncio.run(torment(server, 150, 100 + seed))
    assert ledger.counts["done all the same"] > 0, "some answers were lost on their way"
    assert ledger.counts["lost"] > 10
