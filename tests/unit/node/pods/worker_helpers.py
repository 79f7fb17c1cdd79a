"""Helpers shared by the tests of pod workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from plimsoll.client.endpoints import EVENTS
from plimsoll.up.local_cluster import LocalCluster
from tests.unit.node.pods.worker_harness import Node, node_of
from tests.waiting import DEADLINE, until

PLAIN = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 1}
WITH_CLAIM = {
    "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "PLACEHOLDER"}],
    "terminationGracePeriodSeconds": 1,
}


def run_scenario(cluster: LocalCluster, scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE), node_of(cluster) as node:
            await scenario(node)
            check_nothing_is_leaked(node)

    asyncio.run(run())


def check_nothing_is_leaked(node: Node) -> None:
    """Check that a deleted pod left nothing behind."""
    if node.worker is not None and node.worker.finished:
        assert node.machine.sandboxes() == []
        assert node.machine.containers() == []
        assert node.claim_cache.claims() == ()
        assert not node.gpus.held


async def is_phase(node: Node, phase: str) -> bool:
    return bool((await node.status()).get("phase") == phase)


async def has_reason(node: Node, reason: str) -> bool:
    events = await node.admin.list(EVENTS, "default")
    return any(f'"{reason}"'.encode() in raw and node.name.encode() in raw for raw in events.items)


async def with_claim(node: Node, **rest: Any) -> Any:
    spec = {
        **WITH_CLAIM,
        **rest,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{node.serial}"}],
    }
    pod = await node.create(spec)
    await node.create_claim(pod, f"claim-{node.serial}")
    return pod


async def gone(node: Node) -> None:
    assert node.worker is not None
    await until(lambda: node.worker is not None and node.worker.finished)
    assert await node.get() is None


async def restarted(node: Node, count: int) -> bool:
    (own,) = (await node.status()).get("containerStatuses") or [{}]
    return own.get("restartCount") == count and "running" in own["state"]


async def condition(node: Node, kind: str) -> dict[str, Any] | None:
    conditions = (await node.status()).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)
