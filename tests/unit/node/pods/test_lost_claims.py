"""Container restarts after the claim checkpoint was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from plimsoll.up.local_cluster import LocalCluster
from tests.unit.node.pods.worker_harness import node_of
from tests.unit.node.pods.worker_helpers import gone, is_phase, restarted, with_claim
from tests.waiting import DEADLINE, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as running:
        yield running


async def test_a_container_is_not_restarted_without_its_devices(cluster: LocalCluster) -> None:
    async with asyncio.timeout(DEADLINE), node_of(cluster) as node:
        pod = await with_claim(node)
        await node.begin(pod)
        await until(partial(is_phase, node, "Running"))
        await node.claim_cache.store.commit({claim.ref.uid: None for claim in node.claim_cache.claims()})
        node.gpus.faults = ["not yet"]
        await node.machine.crash(pod.metadata.uid, "c", 7)
        await until(partial(restarted, node, 1))
        assert node.log.count("prepared") == 2
        assert all(claim.ready for claim in node.claim_cache.claims())
        await node.delete()
        await gone(node)
        assert not node.gpus.held
