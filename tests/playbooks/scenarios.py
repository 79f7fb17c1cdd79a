"""Runs of scenarios on a node harness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.playbooks.node_harness import NodeHarness, running
from tests.playbooks.script import clear, settle
from tests.waiting import DEADLINE

#: A process that ends with 0 on SIGUSR1; limits are shown as a plan, so that any user can run this.
_COMMAND = ("/bin/sh", "-c", "trap 'exit 0' USR1; while :; do sleep 0.05; done")
#: Settings of a node that runs processes.
PROCESSES: dict[str, Any] = {"runtime": "process", "cgroups": "plan", "images": {"x": _COMMAND}}


def run_scenario(scenario: Callable[[NodeHarness], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario; then wait until nothing changes, delete all pods and check that nothing is left."""

    async def run() -> None:
        async with running(**settings) as harness, asyncio.timeout(DEADLINE):
            await scenario(harness)
            await settle(harness)
            await clear(harness)

    asyncio.run(run())
