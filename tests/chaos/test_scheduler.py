"""Scheduler and server killed at any time, under load.

Afterwards every pod that fits has a node, no device is allocated twice, no node is past its line, nothing
unused is held, and the ledgers agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from plimsoll.client import Client
from tests.chaos.forked_scheduler import ForkedScheduler
from tests.chaos.forked_server import ForkedServer
from tests.chaos.scheduler_load import PodFlow, count_pods, furnish, settle
from tests.waiting import DEADLINE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkedServer]:
    found = ForkedServer(tmp_path)
    found.start()
    yield found
    found.close()
    assert "Traceback" not in found.log.read_text()


@pytest.fixture
def scheduler(tmp_path: Path, server: ForkedServer) -> Iterator[ForkedScheduler]:
    found = ForkedScheduler(tmp_path, server.kubeconfig)
    found.start()
    yield found
    found.close()
    assert "Traceback" not in found.log.read_text()


async def torment(
    server: ForkedServer,
    scheduler: ForkedScheduler,
    *,
    nodes: int,
    pods: int,
    kills: int,
    seed: int,
    patience: float,
) -> None:
    dice = Random(seed)
    async with Client.connect(server.config()) as client:
        await furnish(client, nodes)
        pod_flow = PodFlow(client, dice)
        for number in range(kills):
            work = asyncio.create_task(_work(pod_flow, pods // kills))
            await asyncio.sleep(dice.random() * dice.choice((0.1, 0.5, 1.5)))
            victims = dice.choice(("scheduler", "scheduler", "server", "both")) if number else "scheduler"
            await asyncio.to_thread(_kill, server, scheduler, victims, dice)
            await work
        await pod_flow.create(max(pods - pod_flow.made, 0))
        problems = await settle(client, patience)
        assert not problems, "\n".join(problems[:20])
        counts = await count_pods(client)
        assert counts["bound"] > pod_flow.made // 3
        assert pod_flow.deleted > pods // 10
        # What those that wait live on: everything goes, and all that can have its turn.
        await pod_flow.delete(counts["bound"] // 2)
        problems = await settle(client, patience)
        assert not problems, "\n".join(problems[:20])
        assert scheduler.is_running()


async def _work(pod_flow: PodFlow, pods: int) -> None:
    await pod_flow.create(pods)
    await pod_flow.delete(pods // 5 + 1)


def _kill(server: ForkedServer, scheduler: ForkedScheduler, victims: str, dice: Random) -> None:
    if victims in ("scheduler", "both"):
        scheduler.kill()
    if victims in ("server", "both"):
        server.kill()
        server.start()
    if victims in ("scheduler", "both"):
        scheduler.start()
        if dice.random() < 0.3:  # and once more while it begins
            scheduler.kill()
            scheduler.start()


def test_a_few_kills_while_pods_flow(server: ForkedServer, scheduler: ForkedScheduler) -> None:
    asyncio.run(torment(server, scheduler, nodes=5, pods=80, kills=4, seed=1, patience=DEADLINE))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_pods_and_many_kills(server: ForkedServer, scheduler: ForkedScheduler, seed: int) -> None:
    asyncio.run(torment(server, scheduler, nodes=40, pods=1000, kills=30, seed=100 + seed, patience=120))
