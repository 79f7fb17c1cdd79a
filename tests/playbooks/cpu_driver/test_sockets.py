"""Random events on a CPU driver with all its sockets, in fewer steps than `test_random`.

Claims come from an API server through a gRPC client, and the driver registers and publishes as in a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError, ClaimRef, PreparedDevice
from plimsoll.node.claim_info import DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from tests.playbooks.cpu_driver.harness import AllocationSpec, RuntimeVersion, StatefulHarness
from tests.unit.drivers.cpu.state.fixtures import NODE, make_claim
from tests.unit.drivers.plugin.fixtures import ClusterFixture, cluster_fixture
from tests.unit.node.plugins.peers import QUICK


class SocketHarness(StatefulHarness):
    """Node whose driver is called over sockets."""

    def __init__(self, cluster: ClusterFixture, age: RuntimeVersion) -> None:
        super().__init__(age)
        self.cluster = cluster
        self.api = cast(Any, cluster.client)
        self.plugins = PluginManager(Layout(self.settings.kubelet_root), times=QUICK)
        self.count = 0

    def parts(self) -> dict[str, Any]:
        return {}

    def looked_after(self, driver: CpuDriver) -> bool:
        return True

    async def open(self) -> None:
        await self.plugins.start()
        await super().open()

    async def close(self) -> None:
        await self.plugins.stop()
        await super().close()

    async def connected(self) -> None:
        await super().connected()
        if self.driver is not None:
            driver = self.driver
            await self.until(
                lambda: driver.plugin_server.registered and driver.plugin_server.published, driver.problems
            )
            await self.until(lambda: any(each.connected for each in self.plugins.drivers()))

    async def kill_driver(self) -> None:
        if self.driver is not None:
            await self.driver.plugin_server.stop()  # a process that is killed loses its sockets
        await super().kill_driver()

    async def restart_agent(self) -> None:
        await self.plugins.stop()
        self.plugins = PluginManager(Layout(self.settings.kubelet_root), times=QUICK)
        await self.plugins.start()
        await self.connected()

    async def add_claim(self, *asked: AllocationSpec) -> AllocatedClaim:
        """Create a claim in the API, with devices."""
        self.count += 1
        name = f"claim-{self.count}"
        results = [replace(each, request="it").tree() | {"pool": NODE} for each in asked]
        ref = await self.cluster.add_claim(name, more=results)
        claim = make_claim(ref.uid, *(replace(each, request="it") for each in asked))
        return replace(claim, ref=ref)

    async def call_prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice] | ClaimError:
        answer: Any = (await self.plugins.prepare(DRIVER_NAME, [claim.ref]))[claim.ref.uid]
        return ClaimError(answer.message) if isinstance(answer, DriverFault) else answer

    async def call_unprepare(self, ref: ClaimRef) -> ClaimError | None:
        answer: Any = (await self.plugins.unprepare(DRIVER_NAME, [ref]))[ref.uid]
        return ClaimError(answer.message) if isinstance(answer, DriverFault) else None


async def _live(harness: SocketHarness, dice: Random, steps: int) -> None:
    for boxes in range(steps):
        uids = sorted(harness.model.assigned)
        running = sorted(harness.runtime.boxes)
        what = dice.choices(
            [
                "claim",
                "again",
                "shared",
                "pod",
                "end",
                "release",
                "driver",
                "kill",
                "runtime",
                "agent",
                "hotplug",
            ],
            [6, 2, 4, 6, 2, 4, 1, 1, 1, 1, 2],
        )[0]
        if what == "claim":
            share = f"00000000-0000-4000-8000-{dice.getrandbits(40):012x}"
            asked = AllocationSpec(f"cpudevnuma{dice.randrange(2):03d}", str(dice.randint(1, 3)), share=share)
            claim = await harness.add_claim(asked)
            fits = harness.fits(claim)
            answer = await harness.prepare(claim)
            assert isinstance(answer, ClaimError) != fits, answer
        elif what == "again" and uids:
            uid = dice.choice(uids)
            assert await harness.prepare(harness.claims[uid]) == harness.model.assigned[uid]
        elif what == "shared" and len(running) < 8:
            await harness.create(f"c{boxes}", "s", finish=dice.random() < 0.8)
        elif what == "pod" and uids and len(running) < 8:
            uid = dice.choice(uids)
            await harness.create(f"c{boxes}", f"p{uid}", [uid])
        elif what == "end" and running:
            await harness.runtime.end(dice.choice(running))
        elif what == "release" and uids:
            uid = dice.choice(uids)
            await harness.runtime.remove_pod(f"p{uid}")
            assert await harness.unprepare(uid) is None
        elif what in ("driver", "kill"):
            before = harness.snapshot()[:4]
            await (harness.stop_driver() if what == "driver" else harness.kill_driver())
            await harness.start_driver()
            assert harness.snapshot()[:4] == before
            await harness.connected()
        elif what == "runtime":
            await harness.runtime.stop()
            await harness.until(lambda: harness.driver is None or not harness.driver.enforcer.linked)
            await harness.runtime.start()
            await harness.connected()
        elif what == "agent":
            await harness.restart_agent()
        elif what == "hotplug":
            await harness.switch(set(dice.sample(range(8), dice.randint(0, 3))))
        await harness.check()


def _play(seed: int, steps: int) -> None:
    async def scenario() -> None:
        dice = Random(seed)
        async with cluster_fixture() as cluster:
            node = await cluster.add_node(NODE)
            assert node
            harness = SocketHarness(cluster, dice.choice(list(RuntimeVersion)))
            try:
                await harness.open()
                await _live(harness, dice, steps)
                for pod in sorted(harness.runtime.pods):
                    await harness.runtime.remove_pod(pod)
                for uid in sorted(harness.model.assigned):
                    assert await harness.unprepare(uid) is None
                await harness.check()
                assert not list(harness.settings.cdi.glob("*"))
            finally:
                await harness.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_random_events_with_real_sockets(seed: int) -> None:
    _play(seed, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_random_events_with_real_sockets_for_long(seed: int) -> None:
    _play(seed, 150)
