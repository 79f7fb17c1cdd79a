"""Our scheduler on a real kube-apiserver: with the alpha gates, and with default gates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    PODS,
)
from plimsoll.controllers import ControllerManager
from plimsoll.controllers.resource_claim.controller import ResourceClaimController
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.cluster.kube_apiserver import run_apiserver
from tests.real.programs import ASSETS, missing, skip_before
from tests.real.scheduled_pods import NS, bound, furnished, schedule
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
ON = "DRANodeAllocatableResources=true,DRADeviceTaintRules=true"


async def recover(client: Client) -> None:
    """Check that another scheduler started on the same objects has the same ledgers and continues."""
    again = SchedulerProcess(client, SchedulerSettings())
    task = asyncio.create_task(again.run())
    try:
        await again.ready(DEADLINE)
        found = await bound(client, "fits")
        leaves = next(name for name in ("g0", "g1", "g2", "g3") if found[name] != found["fits"])
        await client.delete(PODS, leaves, NS, grace=0)
        assert await bound(client, "too-large")
        snapshot = again.context.snapshot
        await until(_now(lambda: snapshot.assumed), lambda assumed: not assumed)
        used = sorted(ledger.requested["cpu"] for ledger in snapshot.ledgers if ledger is not None)
        assert used == [6100, 8000]
    finally:
        again.stop()
        await task


def _now(look: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def answer() -> Any:
        return look()

    return answer


@pytest.mark.parametrize("gates", [ON, ""], ids=["alpha", "stock"])
def test_pods_and_claims_on_one_ledger(tmp_path: Path, gates: str) -> None:
    if gates:
        skip_before(36, "which has the gates")

    async def scenario(client: Client) -> None:
        controllers = asyncio.create_task(
            ControllerManager(client, only=[ResourceClaimController.name]).run()
        )
        process = SchedulerProcess(client, SchedulerSettings())
        scheduling = asyncio.create_task(process.run())
        try:
            await process.ready(DEADLINE)
            await schedule(client, process, stock=not gates)
            process.stop()
            await scheduling
            await recover(client)
        finally:
            for task in (scheduling, controllers):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    with run_apiserver(ASSETS, tmp_path, gates) as config:

        async def run() -> None:
            async with (
                asyncio.timeout(4 * DEADLINE),
                Client.connect(config) as client,
                furnished(client, stock=not gates),
            ):
                await scenario(client)

        asyncio.run(run())
