"""Components of a cluster: readiness, failures and the order of stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from plimsoll.errors import ConfigError
from plimsoll.up.components import RunningComponents
from tests.coroutines import run_by
from tests.waiting import DEADLINE


def run(work: Callable[[RunningComponents], Awaitable[None]]) -> None:
    async def story() -> None:
        await work(RunningComponents(ready_seconds=DEADLINE, stop_seconds=DEADLINE))

    asyncio.run(story())


def test_components_stop_in_reverse_order() -> None:
    stopped: list[str] = []

    async def story(components: RunningComponents) -> None:
        for name in ("scheduler", "node", "driver"):
            end = asyncio.Event()

            async def work(name: str = name, end: asyncio.Event = end) -> None:
                await end.wait()
                stopped.append(name)

            components.start(name, work(), end.set)
        await components.wait_ready(asyncio.sleep(0))
        await components.stop()

    run(story)
    assert stopped == ["driver", "node", "scheduler"]


@run_by(run)
async def test_a_component_that_exits_is_a_failure_unless_the_cluster_stops(
    components: RunningComponents,
) -> None:
    components.start("driver", asyncio.sleep(0), lambda: None)
    with pytest.raises(ConfigError, match="the driver exited unexpectedly"):
        await components.wait()
    with pytest.raises(ConfigError, match="the driver exited unexpectedly"):
        await components.wait_ready(asyncio.sleep(60))
    components.stopping.set()
    await components.wait()
    await components.stop()


@run_by(run)
async def test_a_component_that_is_not_ready_in_time(components: RunningComponents) -> None:
    async def late() -> None:
        raise TimeoutError

    with pytest.raises(ConfigError, match="not ready after 120 s; see the log"):
        await components.wait_ready(late())
