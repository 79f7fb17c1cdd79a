"""The CPU driver under a real kubelet with containerd and runc: processes run where their claims say.

In a cluster that is all ours, and in one that is all Kubernetes' own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import kubelet, worlds
from tests.real.kubelet import RealNode
from tests.real.stage import Stage, neighbour, pinned
from tests.real.worlds import WORLDS, run_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(kubelet.cannot_run()), reason=kubelet.cannot_run()),
]


@pytest.fixture(scope="module", params=WORLDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if reason := worlds.cannot_run(request.param):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as place:
        folder = Path(place)
        node = RealNode(folder / "n")
        for each in (node.folder, folder / "w"):
            each.mkdir()
        with run_world(request.param, folder / "w", node.name) as world:
            try:
                if reason := node.start(world.node):
                    pytest.skip(reason)
                stage = Stage(world, node)
                asyncio.run(stage.furnish())
                yield stage
            finally:
                node.stop()


def test_a_claim_is_for_one_container_and_comes_back(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour())
            assert await play.cpus("neighbour") == play.online
            await play.run(pinned())
            one = await play.claimed("pinned")
            assert len(one) == 1
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            await play.stays(wanted)
            await play.delete("pinned")
            await play.settles({("neighbour", "app"): play.online})
            assert play.files() == []

    asyncio.run(story())
