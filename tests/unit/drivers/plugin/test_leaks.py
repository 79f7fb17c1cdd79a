"""Detection of framework tasks that a scenario leaves running."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.drivers.plugin.claim_status_writer import ClaimStatusWriter
from tests.coroutines import run_by
from tests.leaks import leaked_tasks
from tests.unit.drivers.plugin.fixtures import DRIVER, cluster_fixture, run


def test_a_scenario_that_leaves_a_framework_task_running_fails() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        async with cluster_fixture() as cluster:
            tasks.append(asyncio.create_task(ClaimStatusWriter(cluster.client, DRIVER).run()))
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match=r"ClaimStatusWriter\.run"):
        run(scenario)
    assert tasks[0].cancelled()


@run_by(run)
async def test_tasks_are_found_by_the_code_they_run_and_by_the_code_they_wait_for() -> None:
    async with cluster_fixture() as cluster:
        writer = ClaimStatusWriter(cluster.client, DRIVER)

        async def wait_for_the_writer() -> None:
            await writer.run()

        own = asyncio.create_task(asyncio.sleep(60))
        direct = asyncio.create_task(writer.run())
        indirect = asyncio.create_task(wait_for_the_writer())
        await asyncio.sleep(0)
        assert set(leaked_tasks("plimsoll/drivers/plugin")) == {direct, indirect}
        for task in (own, direct, indirect):
            task.cancel()
        await asyncio.gather(own, direct, indirect, return_exceptions=True)
        assert not leaked_tasks("plimsoll/drivers/plugin")
